"""`tasks`: the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.names import remember_tasks
from edgepanda.cli.out import emit, hint, say, span, table

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient


@command(
    "tasks",
    examples="""
    edgepanda tasks
    edgepanda tasks --state uncertain --state waiting_review
    edgepanda tasks --capability servo.move --node desk --limit 20
    """,
)
@click.option("--state", "states", multiple=True, help="Only tasks in this state. Repeatable.")
@click.option("--capability", help="Only this capability.")
@click.option("--node", help="Only tasks that this node holds or held.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@click.option("--before", type=int, help="Go on from where the last list ended; it says the number.")
def tasks_command(
    settings: Settings,
    states: tuple[str, ...],
    capability: str | None,
    node: str | None,
    limit: int,
    before: int | None,
) -> None:
    """List tasks, newest first."""
    rows, following = ask(
        settings, lambda client: _fetch(client, limit, before, states=states, capability=capability, node=node)
    )
    if settings.json:
        emit({"tasks": rows, "next": following})
        return
    if not rows:
        say("no tasks")
        return
    show_tasks(rows)
    if following is not None:
        hint(f"There are more: --before {following}")


async def _fetch(
    client: AsyncClient, limit: int, before: int | None, **filters: Any
) -> tuple[list[dict[str, Any]], int | None]:
    rows: list[dict[str, Any]] = []
    while True:
        page = await client.list(before=before, limit=min(100, limit - len(rows)), **filters)
        rows += page["tasks"]
        before = page["next"]
        if before is None or len(rows) >= limit:
            remember_tasks(client.site, (row["id"] for row in rows))
            return rows, before


def show_tasks(rows: list[dict[str, Any]]) -> None:
    """A table of tasks as `task.list` gives them."""
    table(
        ["ID", "STATE", "CAPABILITY", "WHERE", "AGE", "GOAL OR REASON"],
        [
            (
                row["id"],
                row["state"],
                row["capability"],
                "/".join(word for word in (row.get("node"), row.get("device")) if word) or "-",
                span(row["age"]),
                row.get("goal") or row.get("reason") or "",
            )
            for row in rows
        ],
    )
