"""`submit`: a task with all that can be said about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.arguments import guess_args, parse_args
from edgepanda.cli.cards import fetch_offers
from edgepanda.cli.common import Settings, ask, command, duration, label_option, node_option
from edgepanda.cli.exits import task_code
from edgepanda.cli.follow import Followed, detaching, follow, live_view, show_result
from edgepanda.cli.names import remember_tasks
from edgepanda.cli.out import emit, say

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.wire.requests import TaskView


@command(
    "submit",
    timeout_help="How long to wait: for the coordinator's answer (default: 10s), or with --wait for the end.",
    examples="""
    edgepanda submit servo.move angle=30 --criterion "position within 1 degree" --wait
    edgepanda submit build.heavy target=all --goal "a release" --constraint "no network" --priority 5
    edgepanda submit servo.move angle=0 --node desk --device pan --valid-for 10s
    edgepanda submit build.heavy --id nightly-2026-11-30 --deadline 2h --label fast=yes
    """,
)
@click.argument("capability")
@click.argument("words", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--goal", default="", help="What it is for, in your words.")
@click.option("--constraint", "constraints", multiple=True, help="What must not happen. Repeatable.")
@click.option("--criterion", "criteria", multiple=True, help="What must be shown for success. Repeatable.")
@click.option("--device", help="This device only.")
@node_option("This node only; the task waits while it is away.")
@label_option("Nodes or devices with this label.")
@click.option("--priority", type=int, default=0, help="-100 to 100; higher goes first (default: 0).")
@click.option("--deadline", type=duration, metavar="TIME", help="From submit to finish.")
@click.option("--valid-for", type=duration, metavar="TIME", help="It may not begin later (30s for device actions).")
@click.option("--deliver-within", type=duration, metavar="TIME", help="How long it may wait for an absent node.")
@click.option("--run-timeout", type=duration, metavar="TIME", help="How long one attempt may run.")
@click.option("--max-attempts", type=int, metavar="N", help="How often it is tried, if safe (default: the card's).")
@click.option("--retry-backoff", type=duration, metavar="TIME", help="Pause before it is tried again; it doubles.")
@click.option("--id", "task_id", help="Your own id: submitting it again with the same content changes nothing.")
@click.option("--wait/--no-wait", default=False, help="Follow it to its end (default: print the id and return).")
def submit_command(settings: Settings, capability: str, words: tuple[str, ...], wait: bool, **said: Any) -> int:
    """Submit a task; prints its id once the ledger has it.

    A task that was accepted survives a power cut at any moment. Success needs evidence, and an answer to each
    criterion; a criterion that nobody answers makes the task wait for your review.
    """
    from edgepanda.model.ids import new_id

    task_id = said.pop("task_id") or new_id()
    rest = {**_told(said), "id": task_id}
    if not wait:
        done = ask(settings, lambda client: _submit(client, capability, words, rest))
        if settings.json:
            emit(done)
        else:
            say(done["id"])
        return 0
    task = Followed(task_id)
    with detaching(task, settings.json):
        view = ask(
            settings, lambda client: _submit_and_wait(client, settings, task, capability, words, rest), watch=True
        )
    if settings.json:
        emit(view)
    else:
        show_result(view, output=not task.output_shown)
    return task_code(view)


def _told(said: dict[str, Any]) -> dict[str, Any]:
    """The options in the client's words."""
    from edgepanda.model.task import Limits

    limits = Limits(
        timeout=said.pop("run_timeout"),
        valid_for=said.pop("valid_for"),
        deliver_within=said.pop("deliver_within"),
        deadline=said.pop("deadline"),
        max_attempts=said.pop("max_attempts"),
        retry_backoff=said.pop("retry_backoff"),
    )
    return {**said, "limits": limits}


async def _args(client: AsyncClient, capability: str, words: tuple[str, ...], rest: dict[str, Any]) -> dict[str, Any]:
    """Typed by the schema of whoever offers it; the coordinator checks them again."""
    if not words:
        return {}
    offers = [o for o in await fetch_offers(client, rest["node"]) if o.capability == capability]
    fitting = [o for o in offers if rest["device"] in (None, o.device)]
    return parse_args(words, fitting[0].action) if fitting else guess_args(words)


async def _submit(client: AsyncClient, capability: str, words: tuple[str, ...], rest: dict[str, Any]) -> dict[str, Any]:
    done = await client.submit(capability, await _args(client, capability, words, rest), **rest)
    remember_tasks(client.site, [done["id"]])
    return done


async def _submit_and_wait(
    client: AsyncClient,
    settings: Settings,
    task: Followed,
    capability: str,
    words: tuple[str, ...],
    rest: dict[str, Any],
) -> TaskView:
    args = await _args(client, capability, words, rest)
    if not settings.json:
        say(task.id)
    with live_view(settings.json, f"{capability} ...") as view:
        work = client.run(capability, args, timeout=settings.timeout, **rest)
        return await follow(client, task, view, work)
