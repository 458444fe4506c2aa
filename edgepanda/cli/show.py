"""`show`: all about one task."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.cards import fetch_nodes
from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.events import describe
from edgepanda.cli.out import clock, coloured, emit, fields, hint, plain, say
from edgepanda.cli.waiting import reason

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.wire.requests import TaskView

MOST_EVENTS = 1000  # of one task


@command(
    "show",
    examples="""
    edgepanda show 01h8qk3v2x7c4m9d5e6f
    edgepanda show 01h8qk3v2x7c4m9d5e6f --timeline
    edgepanda show 01h8qk3v2x7c4m9d5e6f --json
    """,
)
@click.argument("task_id", metavar="ID")
@click.option("--timeline", is_flag=True, help="A picture instead: who held it when, and what it waited for.")
def show_command(settings: Settings, task_id: str, timeline: bool) -> None:
    """All about one task.

    Its state and why, what was asked, the evidence and the answer to each criterion, what it printed, and everything
    that the ledger has of it. Where a person is needed it says what you can do.
    """
    view, lines, happened = ask(settings, lambda client: _fetch(client, task_id))
    if settings.json:
        emit({**msgspec.to_builtins(view), "output": lines, "events": happened})
    elif timeline:
        _draw(view, happened)
    else:
        _print(view, lines, happened)


def _draw(view: TaskView, happened: list[dict[str, Any]]) -> None:
    from edgepanda.cli.timeline import picture

    say(_head(view))
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    width = shutil.get_terminal_size().columns
    for line in picture(happened, now=time.time(), width=width, unicode=unicode):
        say(line)


async def _fetch(client: AsyncClient, task_id: str) -> tuple[TaskView, list[str], list[dict[str, Any]]]:
    view = await client.get(task_id)
    happened: list[dict[str, Any]] = []
    more = True
    while more and len(happened) < MOST_EVENTS:
        page = await client.events(task_id, after=happened[-1]["seq"] if happened else 0, limit=100)
        happened += page["events"]
        more = page["more"] and bool(page["events"])
    output = await client.output(task_id)
    if view.state == "queued":
        view = msgspec.structs.replace(view, reason=reason(view, await fetch_nodes(client)))
    return view, list(output["lines"]), happened


def _print(view: TaskView, lines: list[str], happened: list[dict[str, Any]]) -> None:
    from edgepanda.cli.follow import advice

    say(_head(view))
    fields([*_asked(view), *result_rows(view), *_of_people(happened), *_known(view, happened)])
    if lines:
        say("  output")
        for line in lines:
            say(f"    | {line}")
    say("  what happened")
    for event in happened:
        moment = clock(event["at"], untrusted=bool(event.get("untrusted")))
        say(f"    {moment}  {describe(event['kind'], event['data'] or {}, event['attempt'])}")
    for line in advice(view):
        hint(line)


def _head(view: TaskView) -> str:
    place = (view.capability, view.device or "", f"on {view.node}" if view.node else "")
    return f"{view.id}  {coloured(view.state)}  {' '.join(word for word in place if word)}"


def _asked_at(view: TaskView) -> str:
    return clock(view.created, untrusted="created" in view.untrusted)


def _asked(view: TaskView) -> list[tuple[str, str]]:
    limits = msgspec.to_builtins(view.limits)
    return [
        ("why", view.reason),
        ("asked", f"by {view.by or '?'} ({view.door}), {_asked_at(view)}"),
        ("goal", view.goal),
        ("arguments", plain({name: value for name, value in view.args.items() if value is not None})),
        ("constraints", "\n".join(view.constraints)),
        ("labels", plain(view.labels)),
        ("limits", plain(limits)),
        ("priority", str(view.priority) if view.priority else ""),
        ("rules", f"tier {view.tier}, replay {view.replay}"),
        ("attempt", str(view.attempt) if view.attempt else ""),
        ("progress", view.progress if view.state == "running" else ""),
        ("cancel", "asked for" if view.cancel and not view.ended else ""),
    ]


def _known(view: TaskView, happened: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Of a task that is or was uncertain: what its node, or its silence, tells of the attempt."""
    ends = [
        e for e in happened if e["kind"] in ("interrupted", "lost") and (e["data"] or {}).get("state") == "uncertain"
    ]
    if not ends:
        return []
    told = [e["data"].get("known") for e in ends if e["kind"] == "interrupted" and e["data"].get("known")]
    if not told:
        return [("known", f"nothing: {ends[-1]['data'].get('node') or 'its node'} has said nothing since")]
    known = dict(told[-1])
    rows = [("known", _cut_by(known))]
    if not any(e["data"].get("began") for e in ends if e["kind"] == "interrupted"):
        rows = [("known", "its node says that it never began")]
    if known.get("reads") is not None:
        rows.append(("reads now", f"{view.device}: {plain(known['reads'])}"))  # after its restart, to be exact
    if known.get("unread"):
        rows.append(("reads now", f"nothing: {known['unread']}"))
    return rows


def _cut_by(known: dict[str, Any]) -> str:
    if known.get("code") == "restarted":
        return "its node was restarted in the middle"
    return f"it was cut short: {known.get('message') or 'nobody says why'} [{known.get('code', '')}]"


def _of_people(happened: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Who decided about it, how and why."""
    said = [e for e in happened if e["kind"] == "resolved"]
    return [("resolved", "\n".join(describe("resolved", e["data"] or {}) + f", {clock(e['at'])}" for e in said))]


def result_rows(view: TaskView) -> list[tuple[str, str]]:
    """Value, evidence, answers and artifacts of a task, as names and texts."""
    from edgepanda.error_codes import usual_cure

    result = view.result
    rows = [("code", view.code)]
    if view.state != "uncertain" and (result is None or not result.message):  # they have a next step of their own
        rows.append(("next", usual_cure(view.code)))
    if result is None:
        return [*rows, ("criteria", "\n".join(view.criteria))]
    met = {answer.criterion: answer for answer in result.answers}
    criteria = []
    for criterion in view.criteria:
        answer = met.get(criterion)
        word = "open" if answer is None else "met" if answer.met else "not met"
        shown = f"   {plain(answer.evidence)}" if answer is not None and answer.evidence else ""
        criteria.append(f"{word}: {criterion}{shown}")
    return [
        *rows,
        ("said", result.narrative or result.message),
        ("value", "" if result.value is None else plain(result.value)),
        ("evidence", "\n".join(plain(item) for item in result.evidence)),
        ("criteria", "\n".join(criteria)),
        ("artifacts", "\n".join(plain(item) for item in result.artifacts)),
    ]
