"""What is open at the site at the moment, kept up to date by events: the live part of `watch`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from edgepanda.cli.events import describe
from edgepanda.cli.out import clock, say, span
from edgepanda.model.states import ENDED

if TYPE_CHECKING:
    from edgepanda.wire.messages import Event

MOST_ROWS = 12
_ORDER = ("waiting_consent", "waiting_answer", "waiting_review", "uncertain", "running", "leased", "queued")


class Open(NamedTuple):
    """A task that has not ended; `since` is in wall seconds."""

    task: str
    state: str
    what: str
    node: str
    since: float
    progress: str = ""


class Board:
    """All open tasks that were told of."""

    def __init__(self, digest: dict[str, Any]) -> None:
        self._open: dict[str, Open] = {}
        for row in (*digest["needs_person"], *digest["running"], *digest["queued"]):
            what = " ".join(word for word in (row["capability"], row.get("device") or "") if word)
            self._open[row["id"]] = Open(row["id"], row["state"], what, row.get("node") or "", row["updated"])

    def take(self, event: Event) -> None:
        """Take an event in. What it does not know the beginning of it shows from now on."""
        if event.task is None:
            return
        known = self._open.get(event.task)
        data = event.data
        state = str(data.get("state") or (known.state if known else ""))
        if state in ENDED:
            self._open.pop(event.task, None)
        elif known is None and state:
            asked = data.get("task", {})
            what = " ".join(word for word in (asked.get("capability", "?"), asked.get("device") or "") if word)
            self._open[event.task] = Open(event.task, state, what, data.get("node") or "", event.at)
        elif known is not None:
            self._open[event.task] = _changed(known, event, state)

    def rows(self, now: float) -> list[tuple[str, str, str, str, str, str]]:
        """Task, state, what, node, how long it has been so, progress: those that need somebody first."""
        rank = {state: place for place, state in enumerate(_ORDER)}
        found = sorted(self._open.values(), key=lambda each: (rank.get(each.state, len(rank)), each.since))
        shown = [
            (each.task, each.state, each.what, each.node, span(max(0.0, now - each.since)), each.progress)
            for each in found[:MOST_ROWS]
        ]
        left = len(found) - len(shown)
        return [*shown, *([("", f"and {left} more", "", "", "", "")] if left else [])]


def _changed(known: Open, event: Event, state: str) -> Open:
    if event.kind == "progress":
        return known._replace(progress=describe(event.kind, event.data))
    if state == known.state:
        return known
    node = "" if state == "queued" else event.data.get("node") or known.node
    return known._replace(state=state, node=node, since=event.at, progress="")


class SiteView:
    """Plain lines, one for each event of the ledger."""

    def event(self, event: Event) -> None:
        """Print it."""
        if event.seq:
            say(line_of(event))


class LiveSiteView(SiteView):
    """The same above, and the open tasks below, written over as they change."""

    def __init__(self, board: Board, console: Any) -> None:
        self._board, self._console = board, console

    def event(self, event: Event) -> None:
        """Print it and take it in."""
        self._board.take(event)
        if event.seq:
            self._console.print(line_of(event), markup=False, highlight=False)


def line_of(event: Event) -> str:
    """An event of the site as a line."""
    moment = clock(event.at, untrusted=event.untrusted)
    return f"{moment}  {event.task or '-':<20}  {describe(event.kind, event.data, event.attempt)}"


@contextlib.contextmanager
def site_view(digest: dict[str, Any]) -> Iterator[SiteView]:
    """The view that suits standard output: with a live part on a terminal, else lines."""
    if not sys.stdout.isatty():
        yield SiteView()
        return
    import time

    from rich.console import Console
    from rich.live import Live

    board, console = Board(digest), Console(soft_wrap=True)
    with Live(console=console, get_renderable=lambda: _table(board, time.time()), refresh_per_second=4, transient=True):
        yield LiveSiteView(board, console)


def _table(board: Board, now: float) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for header in ("OPEN", "STATE", "WHAT", "NODE", "SINCE", "PROGRESS"):
        table.add_column(header, no_wrap=True, overflow="ellipsis")
    rows = board.rows(now)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if not rows:
        table.add_row("nothing")
    return table
