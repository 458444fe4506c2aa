"""`tasks`: the list."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.common import Settings, ask, command, duration, label_option, node_option
from edgepanda.cli.names import MOST_TASKS, remember_tasks
from edgepanda.cli.out import emit, hint, say, span, table
from edgepanda.model.states import NEEDS_PERSON

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient


GOAL = 14  # columns that the last one needs to be worth showing
_DATES = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")


def moment(text: str) -> float:
    """Wall seconds of a local date (2026-11-30, '2026-11-30 08:15'), or of a time ago (90s, 2h, 3d)."""
    for form in _DATES:
        with contextlib.suppress(ValueError, OverflowError):
            return time.mktime(time.strptime(text.strip(), form))
    try:
        return time.time() - duration(text)
    except click.BadParameter:
        raise click.BadParameter(f"{text!r} is no moment; write 2026-11-30, '2026-11-30 08:15', 2h or 3d") from None


@command(
    "tasks",
    examples="""
    edgepanda tasks
    edgepanda tasks --needs-person
    edgepanda tasks --state failed,timed_out --since 2d
    edgepanda tasks --device pan --by maria --goal window --all
    edgepanda tasks --capability servo.move --node desk --limit 20
    """,
)
@click.option("--state", "states", multiple=True, help="Only in this state, or these: a,b. Repeatable.")
@click.option("--needs-person", is_flag=True, help="Only those that wait for a person, or whose outcome is uncertain.")
@click.option("--capability", help="Only this capability.")
@click.option("--device", help="Only tasks for this device.")
@node_option("Only tasks that this node holds or held.")
@label_option("Only tasks that asked for this label.")
@click.option("--since", type=moment, metavar="WHEN", help="Submitted then or later: 2026-11-30, or 2h (ago).")
@click.option("--until", type=moment, metavar="WHEN", help="Submitted before that.")
@click.option("--by", help="Only what this peer asked for.")
@click.option("--goal", default="", metavar="TEXT", help="Only with this text in the goal.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@click.option("--all", "everything", is_flag=True, help="All that there are, whatever --limit says.")
@click.option("--before", type=int, help="Go on from where the last list ended; it says the number.")
def tasks_command(
    settings: Settings,
    states: tuple[str, ...],
    needs_person: bool,
    limit: int,
    everything: bool,
    before: int | None,
    **filters: Any,
) -> None:
    """List tasks, newest first. All filters must hold."""
    wanted = {state.strip() for text in states for state in text.split(",")}
    if needs_person:
        wanted = wanted & set(NEEDS_PERSON) if wanted else set(NEEDS_PERSON)
    if needs_person and not wanted:
        raise click.UsageError("--needs-person and --state have no state in common")
    most = None if everything else limit
    rows, following = ask(settings, lambda client: _fetch(client, most, before, states=sorted(wanted), **filters))
    if settings.json:
        emit({"tasks": rows, "next": following})
        return
    if not rows:
        say("no tasks")
        return
    show_tasks(rows)
    if following is not None:
        hint(f"There are more: --before {following}, or --all")


async def _fetch(
    client: AsyncClient, most: int | None, before: int | None, **filters: Any
) -> tuple[list[dict[str, Any]], int | None]:
    """So many tasks, or all. A page may be short and have a next one: the coordinator looks into so many at a time."""
    rows: list[dict[str, Any]] = []
    while True:
        page = await client.list(before=before, limit=100 if most is None else min(100, most - len(rows)), **filters)
        rows += page["tasks"]
        before = page["next"]
        if before is None or (most is not None and len(rows) >= most):
            remember_tasks(client.site, [row["id"] for row in rows[:MOST_TASKS]])
            return rows, before


def show_tasks(rows: list[dict[str, Any]]) -> None:
    """A table of tasks as `task.list` gives them; on a terminal no wider than that."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    headers, lines = columns(rows, width)
    table(headers, lines)


def columns(rows: list[dict[str, Any]], width: int | None) -> tuple[list[str], list[list[str]]]:
    """Headers and cells that fit into so many columns (None: any number): the last is cut, the least goes. Pure."""
    headers = ["ID", "STATE", "CAPABILITY", "WHERE", "AGE", "GOAL OR REASON"]
    lines = [
        [
            row["id"],
            row["state"],
            row["capability"],
            "/".join(word for word in (row.get("node"), row.get("device")) if word) or "-",
            ("~" if "created" in row.get("untrusted", ()) else "") + span(row["age"]),
            " ".join((row.get("goal") or row.get("reason") or "").split()),
        ]
        for row in rows
    ]
    if width is None:
        return headers, lines
    taken = [max(len(cell) for cell in column) + 2 for column in zip(headers, *lines, strict=True)]
    kept = [0, 1, 2, 3, 4, 5]
    for least in (5, 3, 4):
        flexible = GOAL if least == 5 else taken[least]
        if sum(taken[at] for at in kept if at not in (5, least)) + flexible > width:
            kept.remove(least)
    room = width - sum(taken[at] for at in kept if at != 5)
    for line in lines:
        line[5] = line[5] if len(line[5]) <= room else line[5][: room - 3] + "..."
    return [headers[at] for at in kept], [[line[at] for at in kept] for line in lines]
