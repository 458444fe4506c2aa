"""`watch`: what happens, as it happens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.events import describe
from edgepanda.cli.exits import INTERRUPTED, task_code
from edgepanda.cli.follow import Followed, detaching, follow, live_view, show_result
from edgepanda.cli.out import clock, emit, hint, say

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

    With --json each event is an object on a line of its own; a task's last line is the task itself.
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
    before = await client.get(task_id)
    past = await client.events(task_id, limit=100)
    for event in past["events"]:
        if settings.json:
            emit({key: event[key] for key in ("seq", "at", "kind", "task", "attempt", "data")})
        else:
            say(f"{clock(event['at'])}  {describe(event['kind'], event['data'] or {}, event['attempt'])}")
    if before.ended:
        return before
    waiting = client.wait(task_id, timeout=settings.timeout)
    if settings.json:
        printer = asyncio.create_task(_emit_events(client, task_id))
        try:
            return await waiting
        finally:
            printer.cancel()
            await asyncio.gather(printer, return_exceptions=True)
    with live_view(False, f"{before.state} ...") as view:
        return await follow(client, Followed(task_id, known=True), view, waiting)


async def _emit_events(client: AsyncClient, task_id: str | None) -> None:
    async for event in client.watch():
        if task_id is None or event.task == task_id:
            emit(_plain(event))


def _plain(event: Event) -> dict[str, Any]:
    facts = msgspec.to_builtins(event)
    return {key: facts.get(key) for key in ("seq", "at", "kind", "task", "attempt", "data")}


def _watch_site(settings: Settings) -> int:
    async def work(client: AsyncClient) -> None:
        digest = await client.digest()  # says at once if nobody serves this site
        if not settings.json:
            hint(f"watching {len(digest['nodes'])} nodes; Ctrl-C ends it")
        try:
            async with asyncio.timeout(settings.timeout):
                await (_emit_events(client, None) if settings.json else _print_events(client))
        except TimeoutError:
            return

    try:
        ask(Settings(settings.config, settings.json, None, settings.verbose), work, watch=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


async def _print_events(client: AsyncClient) -> None:
    async for event in client.watch():
        if event.seq:
            say(f"{clock(event.at)}  {event.task or '-':<20}  {describe(event.kind, event.data, event.attempt)}")
