"""`logs`: what nodes have logged of late, from the nodes themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from edgepanda.cli.common import Settings, ask, command, node_argument, quiet
from edgepanda.cli.exits import INTERRUPTED, UNREACHABLE, exit_code
from edgepanda.cli.local import CONNECT_WITHIN, LocalNode
from edgepanda.cli.out import clock, emit, hint, say
from edgepanda.cli.tasks import moment
from edgepanda.errors import EdgePandaError
from edgepanda.wire.requests import LONGEST_LOG_WAIT, LogLine, LogPage, Logs

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient

AGAIN = 1.0  # seconds before a node that did not answer is asked again
LEVELS = ("debug", "info", "warning", "error")


class Source(NamedTuple):
    """A node, and how to read a page of its log."""

    node: str
    read: Callable[[Logs], Awaitable[LogPage]]


@command(
    "logs",
    examples="""
    edgepanda logs
    edgepanda logs desk --since 10m --level warning
    edgepanda logs desk --follow
    edgepanda logs --task 01h8qk3v2x7c4m9d5e6f
    """,
    timeout_help="How long to wait for an answer (default: 10s).",
)
@node_argument
@click.option("--task", metavar="ID", help="Only lines of this task; without NODE from each node that had an attempt.")
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines until Ctrl-C.")
@click.option("--since", type=moment, metavar="WHEN", help="Not older: 10m (ago), or 2026-11-30.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="Only this level and worse ones.")
@click.option("--lines", type=click.IntRange(0), default=200, show_default=True, help="At most so many older lines.")
def logs_command(
    settings: Settings,
    node: str | None,
    task: str | None,
    follow: bool,
    since: float | None,
    **narrow: Any,
) -> int:
    """Show what a node has logged: it keeps its newest 500 lines in memory, without secrets.

    Without NODE it is this machine's node, which answers also when the broker is away. With --json each line is an
    object on a line of its own. Where lines are missing, or the node was started anew, that is said in their place.
    """
    ago = None if since is None else max(0.0, time.time() - since)
    asked = Logs(task=task, since=ago, **narrow)
    try:
        if node is None and task is None:
            quiet(settings)
            return asyncio.run(_show([_this_machines(settings)], asked, settings, follow))
        return ask(settings, lambda client: _over_the_bus(client, node, asked, settings, follow))
    except KeyboardInterrupt:
        return INTERRUPTED


def _this_machines(settings: Settings) -> Source:
    local = LocalNode.of(settings.load())
    if not local.present:
        raise EdgePandaError(
            "no node runs on this machine",
            code="no_answer",
            where=str(local.path),
            cure="name one: `edgepanda nodes` lists them; or start this one",
        )

    async def read(asked: Logs) -> LogPage:
        within = (settings.timeout or CONNECT_WITHIN) + asked.wait
        return msgspec.convert(await local.request("logs", msgspec.to_builtins(asked), within=within), LogPage)

    return Source("", read)


async def _over_the_bus(client: AsyncClient, node: str | None, asked: Logs, settings: Settings, follow: bool) -> int:
    def source(name: str) -> Source:
        return Source(name, lambda wanted: client.logs(name, wanted))

    names = [node] if node else await _had_it(client, str(asked.task))
    if not names:
        hint("no node has had an attempt of this task yet")
    return await _show([source(name) for name in names], asked, settings, follow)


async def _had_it(client: AsyncClient, task_id: str) -> list[str]:
    """The nodes that had an attempt of the task, as the ledger tells."""
    found: dict[str, None] = {}
    after, more = 0, True
    while more:
        page = await client.events(task_id, after=after, limit=100)
        for row in page["events"]:
            after = row["seq"]
            if row["kind"] in ("leased", "direct"):
                found[str((row["data"] or {}).get("node"))] = None
        more = page["more"] and bool(page["events"])
    return list(found)


async def _show(sources: list[Source], asked: Logs, settings: Settings, follow: bool) -> int:
    """First what is there, of several nodes in the order of time; then what comes."""
    shown = Shown(settings.json, named=len(sources) > 1)
    if len(sources) == 1:
        further = [await _pages(sources[0], asked, shown.page)]
        unreachable = False
    else:
        kept: list[tuple[LogPage, Logs]] = []
        found = await asyncio.gather(
            *(_pages(source, asked, lambda *page: kept.append(page)) for source in sources), return_exceptions=True
        )
        shown.merged([page for page, _ in kept])
        further = [_further(source, one, asked, shown) for source, one in zip(sources, found, strict=True)]
        unreachable = any(isinstance(one, EdgePandaError) for one in found)
    if follow:
        await asyncio.gather(*(_follow(*each, shown) for each in zip(sources, further, strict=True)))
    return UNREACHABLE if unreachable else 0


def _further(source: Source, found: Logs | BaseException, asked: Logs, shown: Shown) -> Logs:
    if isinstance(found, Logs):
        return found
    if not isinstance(found, EdgePandaError) or exit_code(found) != UNREACHABLE:
        raise found
    shown.lost(source.node, found)
    return asked


async def _pages(source: Source, asked: Logs, take: Callable[[LogPage, Logs], None]) -> Logs:
    """All pages that are there; gives what to ask for after them."""
    while True:
        page = await source.read(asked)
        take(page, asked)
        asked = msgspec.structs.replace(asked, after=page.next, start=page.start, since=None)
        if not page.more:
            return asked


async def _follow(source: Source, asked: Logs, shown: Shown) -> None:
    """Go on for ever; a node, broker or coordinator that is away is waited for."""
    asked = msgspec.structs.replace(asked, wait=LONGEST_LOG_WAIT)

    def take(page: LogPage, before: Logs) -> None:
        nonlocal asked  # kept with each page, so that nothing is shown twice when the next one does not come
        shown.page(page, before)
        asked = msgspec.structs.replace(asked, after=page.next, start=page.start, since=None)

    while True:
        try:
            await _pages(source, asked, take)
        except EdgePandaError as error:
            if exit_code(error) != UNREACHABLE and error.code != "busy":
                raise
            shown.lost(source.node, error)
            await asyncio.sleep(AGAIN)


class Shown:
    """Prints pages: lines, gaps, and once each time that a node cannot be reached."""

    def __init__(self, as_json: bool, *, named: bool) -> None:
        self._json, self._named = as_json, named
        self._lost: set[str] = set()

    def page(self, page: LogPage, asked: Logs) -> None:
        """One page, behind what is missing before it."""
        self._lost.discard(page.node)
        self._lost.discard("")
        if asked.start not in (0, page.start):
            self._note(page.node, f"{page.node} was started anew (start {page.start})", restarted=page.start)
        if page.missed:
            self._note(page.node, f"{page.missed} lines are missing: they are kept no longer", missed=page.missed)
        for line in page.lines:
            self._line(page.node, page.start, line)

    def merged(self, pages: list[LogPage]) -> None:
        """The lines of several nodes in the order of time, by their own clocks."""
        lines = [(line.at, page.node, page.start, line) for page in pages for line in page.lines]
        for _, node, start, line in sorted(lines, key=lambda each: each[:2]):
            self._line(node, start, line)

    def lost(self, node: str, error: EdgePandaError) -> None:
        """A node, or the way to it, is away."""
        if node not in self._lost:
            self._lost.add(node)
            self._note(node, f"{error} [{error.code}]", unreachable=error.code)

    def _line(self, node: str, start: int, line: LogLine) -> None:
        if self._json:
            emit({"node": node, "start": start, **msgspec.to_builtins(line)})
        else:
            place = f"{node}  " if self._named else ""
            say(f"{clock(line.at)}  {place}{line.level.upper()} {line.logger}: {visible(line.text)}")

    def _note(self, node: str, text: str, **facts: Any) -> None:
        if self._json:
            emit({"node": node, **facts})
        else:
            hint(f"-- {text}")


def visible(text: str) -> str:
    """The text, with what a terminal would obey written out."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
