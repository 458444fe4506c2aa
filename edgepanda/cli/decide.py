"""`cancel`, `resolve`, `review`: a person's word on a task."""

from __future__ import annotations

from typing import Any

import click

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.out import coloured, emit, say
from edgepanda.errors import EdgePandaError


@command(
    "cancel",
    examples='edgepanda cancel 01h8qk3v2x7c4m9d5e6f\nedgepanda cancel 01h8qk3v2x7c4m9d5e6f --because "wrong angle"',
)
@click.argument("task_id", metavar="ID")
@click.option("--because", default="", help="Why; it is recorded.")
def cancel_command(settings: Settings, task_id: str, because: str) -> None:
    """Ask for a task to end.

    A task that nobody holds ends at once. Otherwise its node ends it and reports; if it finished first, it stays
    finished.
    """
    try:
        done = ask(settings, lambda client: client.cancel(task_id, because))
    except EdgePandaError as error:
        if error.code != "invalid_state":
            raise
        state = error.details.get("state", "over")
        raise EdgePandaError(f"the task has ended already: it is {state}", code=error.code, where=task_id) from error
    _tell(settings, done, "" if done["state"] == "cancelled" else "; its node was asked to end it")


@command(
    "resolve",
    examples="""
    edgepanda resolve 01h8qk3v2x7c4m9d5e6f --as succeeded --because "the letter lies in the tray"
    edgepanda resolve 01h8qk3v2x7c4m9d5e6f --as retry --because "the printer was off"
    """,
)
@click.argument("task_id", metavar="ID")
@click.option(
    "--as", "outcome", type=click.Choice(["succeeded", "failed", "retry"]), required=True, help="What became of it."
)
@click.option("--because", required=True, help="How you know; it is recorded.")
def resolve_command(settings: Settings, task_id: str, outcome: str, because: str) -> None:
    """Say what became of an uncertain task.

    A task is uncertain when it had begun, cannot be done twice without harm, and its node never reported the end.
    """
    _tell(settings, ask(settings, lambda client: client.resolve(task_id, outcome, because)))


@command(
    "review",
    examples="""
    edgepanda review 01h8qk3v2x7c4m9d5e6f accept --because "the picture is sharp"
    edgepanda review 01h8qk3v2x7c4m9d5e6f reject --because "the picture is blurred"
    """,
)
@click.argument("task_id", metavar="ID")
@click.argument("verdict", metavar="accept|again|reject", type=click.Choice(["accept", "again", "reject"]))
@click.option("--because", default="", help="Why; it is recorded. `accept` needs it: it stands in for evidence.")
def review_command(settings: Settings, task_id: str, verdict: str, because: str) -> None:
    """Accept a task's result, have it done again, or reject it.

    A task waits for review when it finished and a criterion was not answered.
    """
    _tell(settings, ask(settings, lambda client: client.review(task_id, verdict, because)))


def _tell(settings: Settings, done: dict[str, Any], more: str = "") -> None:
    if settings.json:
        emit(done)
    else:
        say(f"{done['id']}  {coloured(done['state'])}{more}")
