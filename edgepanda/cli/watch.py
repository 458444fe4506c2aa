"""`watch`: what happens, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.board import site_view
from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.exits import INTERRUPTED, task_code
from edgepanda.cli.follow import Followed, JsonLines, View, detaching, follow, live_view, show_result
from edgepanda.cli.out import emit, hint

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.wire.messages import Event
    from edgepanda.wire.requests import TaskView


@command(
    "watch",
    timeout_help="How long to watch (default: a task until it ends; the site until Ctrl-C).",
    examples="edgepanda watch\nedgepanda watch 01h8qk3v2x7c4m9d5e6f\nedgepanda watch --json",
)
@click.argument("task_id", metavar="[ID]", required=False)
def watch_command(settings: Settings, task_id: str | None) -> int:
    """Follow one task until it ends or needs a person, or everything at the site.

    With --json each event is an object on a line of its own. The site's first line says that watching has begun; a
    task's last line is the task itself. On a terminal the open tasks stand below what happens.
    """
    if task_id is None:
        return _watch_site(settings)
    with detaching(Followed(task_id, known=True), settings.json):
        view = ask(settings, lambda client: _watch_task(client, settings, task_id), watch=True)
    if settings.json:
        emit({"task": msgspec.to_builtins(view)})
    else:
        show_result(view)
    return task_code(view)


async def _watch_task(client: AsyncClient, settings: Settings, task_id: str) -> TaskView:
    """First what has happened already, then what happens."""
    task = Followed(task_id, known=True)
    shown: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    with contextlib.nullcontext(JsonLines()) if settings.json else live_view(False, f"{task_id} ...") as view:

        async def past_and_end() -> TaskView:
            shown.set_result(await _show_past(client, view, task_id))
            return await client.wait(task_id, timeout=settings.timeout)

        before = await client.get(task_id)
        if before.ended:
            await _show_past(client, view, task_id)
            return before
        return await follow(client, task, view, past_and_end(), shown)


async def _show_past(client: AsyncClient, view: View, task_id: str) -> int:
    """Show what the ledger has of the task; gives the number of the last entry."""
    last, more = 0, True
    while more:
        page = await client.events(task_id, after=last, limit=100)
        for row in page["events"]:
            last = row["seq"]
            view.event(_event(row))
        more = page["more"] and bool(page["events"])
    return last


def _event(row: dict[str, Any]) -> Event:
    from edgepanda.wire.messages import Event

    facts = {key: row[key] for key in ("seq", "at", "kind", "task", "attempt")}
    return Event(id=str(row["seq"]), data=row["data"] or {}, untrusted=bool(row.get("untrusted")), **facts)


def _watch_site(settings: Settings) -> int:
    async def work(client: AsyncClient) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.timeout):
                await _show_all(client, settings)

    try:
        ask(settings._replace(timeout=None), work, watch=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


async def _show_all(client: AsyncClient, settings: Settings) -> None:
    digest = await client.digest()  # says at once if nobody serves this site
    if settings.json:
        emit({"watching": [node["name"] for node in digest["nodes"]]})
    else:
        hint(f"watching {len(digest['nodes'])} nodes; Ctrl-C ends it")
    with contextlib.nullcontext(JsonLines()) if settings.json else site_view(digest) as view:
        async for event in client.watch():
            view.event(event)
