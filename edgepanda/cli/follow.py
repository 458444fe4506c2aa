"""Following one task: lines as things happen, the result at the end, and Ctrl-C that only detaches."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from edgepanda.cli.events import describe, output_lines
from edgepanda.cli.exits import INTERRUPTED
from edgepanda.cli.out import clock, coloured, emit, fields, hint, say
from edgepanda.cli.waiting import why_it_waits
from edgepanda.model.states import ENDED, NEEDS_PERSON

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.wire.messages import Event
    from edgepanda.wire.requests import TaskView


LAST_EVENT = 0.5  # seconds
_SETTLED = ENDED | NEEDS_PERSON


class View(Protocol):
    """Where lines, events and the present state go."""

    def line(self, text: str) -> None:
        """Say something."""

    def status(self, text: str) -> None:
        """How it stands at the moment."""

    def event(self, event: Event) -> None:
        """Something has happened."""


class Silent:
    """Shows nothing."""

    def line(self, text: str) -> None:
        """Dropped."""

    def status(self, text: str) -> None:
        """Dropped."""

    def event(self, event: Event) -> None:
        """Dropped."""


class JsonLines(Silent):
    """Events as objects, one a line."""

    def event(self, event: Event) -> None:
        """Print it."""
        emit({key: getattr(event, key) for key in ("seq", "at", "untrusted", "kind", "task", "attempt", "data")})


class Lines:
    """Plain lines; the present state is one of them."""

    def line(self, text: str) -> None:
        """Print it."""
        say(text)

    def status(self, text: str) -> None:
        """Print it."""
        say(text)

    def event(self, event: Event) -> None:
        """Print it; progress, which the ledger does not have, is a state of the moment."""
        if event.kind == "output":
            for line in output_lines(event.data.get("lines", ())):
                self.line(line)
            return
        text = describe(event.kind, event.data, event.attempt)
        if event.seq:
            self.line(f"{clock(event.at, untrusted=event.untrusted)}  {text}")
        else:
            self.status(f"              {text}")


class Terminal(Lines):
    """Lines, and below them the present state, which is written over."""

    def __init__(self, console: Any, spinner: Any) -> None:
        self._console, self._spinner = console, spinner

    def line(self, text: str) -> None:
        """Print it above the present state."""
        self._console.print(text, markup=False, highlight=False)

    def status(self, text: str) -> None:
        """Show it."""
        from rich.text import Text

        self._spinner.update(Text(text))


@contextlib.contextmanager
def live_view(as_json: bool, text: str) -> Iterator[View]:
    """The view that suits standard output: nothing for JSON, a live line on a terminal, else plain lines."""
    if as_json:
        yield Silent()
    elif not sys.stdout.isatty():
        yield Lines()
    else:
        from rich.console import Console
        from rich.text import Text

        console = Console(soft_wrap=True)
        with console.status(Text(text)) as spinner:
            yield Terminal(console, spinner)


class Followed:
    """A task that somebody waits for: its id, whether the ledger is known to have it, whether its output was shown."""

    def __init__(self, task_id: str, *, known: bool = False) -> None:
        self.id, self.known = task_id, known
        self.output_shown = False


async def follow(
    client: AsyncClient,
    task: Followed,
    view: View,
    work: Awaitable[TaskView],
    shown: asyncio.Future[int] | None = None,
) -> TaskView:
    """Show the task's events while `work` waits for its end. The client must watch.

    `shown`: the number of the last event that `work` has shown itself; until that is known, what comes is held back.
    """
    printer = asyncio.create_task(_show_events(client, task, view, shown))
    explainer = asyncio.create_task(_explain(client, task, view))
    try:
        found = await work
        if found.ended or found.needs_person:  # the answer may be here before the last event
            await asyncio.wait([printer], timeout=LAST_EVENT)
        return found
    finally:
        printer.cancel()
        explainer.cancel()
        await asyncio.gather(printer, explainer, return_exceptions=True)


async def _explain(client: AsyncClient, task: Followed, view: View) -> None:
    """Somebody looks at a task that does not begin: say what it waits for."""
    if why := await why_it_waits(client, task.id):
        view.line(f"              waits: {why}")


async def _show_events(client: AsyncClient, task: Followed, view: View, shown: asyncio.Future[int] | None) -> None:
    async for event in client.watch():
        last = await shown if shown is not None else 0
        if event.task != task.id or 0 < event.seq <= last:
            continue
        task.known = True
        task.output_shown = task.output_shown or event.kind == "output"
        view.event(event)
        if event.data.get("state") in _SETTLED:
            return


@contextlib.contextmanager
def detaching(task: Followed, as_json: bool) -> Iterator[None]:
    """Ctrl-C leaves the task alone: says how to come back to it, and exits with 130."""
    try:
        yield
    except KeyboardInterrupt:
        if as_json:
            emit({"detached": task.id, "submitted": task.known})
        goes_on = "the task goes on" if task.known else "the task may have been submitted, and then goes on"
        hint(f"\ndetached; {goes_on}. To come back: edgepanda watch {task.id}. To end it: edgepanda cancel {task.id}")
        raise SystemExit(INTERRUPTED) from None


def show_result(view: TaskView, *, output: bool = True) -> None:
    """State, value, evidence and answers of a task that has ended or waits for a person; what it printed, unless that
    was shown already.
    """
    from edgepanda.cli.show import result_rows

    what = " ".join(
        word for word in (view.capability, view.device or "", f"on {view.node}" if view.node else "") if word
    )
    say(f"{coloured(view.state)}  {what}")
    fields(result_rows(view))
    for line in output_lines(view.result.output) if output and view.result else ():
        say(line)
    if view.needs_person or not view.ended:
        for line in advice(view):
            hint(line)


def advice(view: TaskView) -> list[str]:
    """What a person can do about a task as it stands."""
    if view.state == "uncertain":
        return [
            "Nobody knows whether it was done. Look, then say so:",
            f'  edgepanda resolve {view.id} --as succeeded|failed|retry --because "..."',
        ]
    if view.state == "waiting_review":
        return [
            "It waits for your word:",
            f'  edgepanda review {view.id} accept|again|reject --because "..."',
        ]
    if not view.ended:
        return [f"It is {view.state}. To follow it: edgepanda watch {view.id}. To end it: edgepanda cancel {view.id}"]
    return []
