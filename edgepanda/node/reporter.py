"""Reports to the coordinator, repeated until they are acknowledged, and on disk where they must outlive a restart.

The end of a `safe` attempt that is acknowledged within a second is never written: were the node to die in that second,
the attempt would be done again, which changes nothing, and the SD card is spared. Everything else goes through the
journal's outbox first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.node import journal_rows
from edgepanda.node.journal import AttemptRow, Journal, OutboxItem
from edgepanda.wire import messages, topics
from edgepanda.wire.bus import Bus

log = logging.getLogger("edgepanda.node")

PATIENCE = 1.0  # seconds without an acknowledgement after which a safe attempt's end is written to disk
WINDOW = 1_000  # reports of the outbox that are under way at one time
FULL = 0.9  # of the outbox: nothing new begins; the rest is for the ends of what has begun
ROOM = 0.8  # of the outbox: below, work is taken again

_encode = msgspec.json.Encoder().encode


class Reporter:
    """The way of all reports."""

    def __init__(self, journal: Journal, node: str) -> None:
        self._journal, self._node = journal, node
        self.bus: Bus | None = None
        self.before_end: Callable[[], None] = lambda: None  # says what must be heard before an attempt's last word
        self._unwritten: dict[str, tuple[float, AttemptRow, bytes, OutboxItem]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[Any]] = set()
        self.problem: EdgePandaError | None = None  # why the journal takes nothing
        self.unacknowledged: set[tuple[str, int]] = set()  # attempts whose end the coordinator has not confirmed
        self._ends: dict[str, tuple[str, int]] = {}
        self.full: EdgePandaError | None = None  # why nothing new may begin: its end would find no place
        self._behind = False  # the outbox holds reports that are not under way
        self._after = 0  # place in the outbox of the last one that was

    def resume(self, bus: Bus) -> None:
        """Use this bus, and say again what an earlier run left unacknowledged."""
        self.bus = bus
        self._behind = True
        self._feed()

    def say(self, report: messages.Report) -> bool:
        """Say it until it is acknowledged, as long as this process lives. False if that cannot be done now."""
        if self.bus is None:
            return False
        try:
            self.bus.deliver(topics.REPORT, report, node=self._node)
        except EdgePandaError as error:
            log.error("a report on %s.%d must wait: %s [%s]", report.task, report.attempt, error, error.code)
            return False
        return True

    def hint(self, body: messages.Report) -> None:
        """Say it once, if it can be said."""
        if self.bus is not None:
            with contextlib.suppress(EdgePandaError):
                self.bus.send(topics.REPORT, body, node=self._node)

    def end(self, report: messages.FinishedReport | messages.Interrupted, row: AttemptRow, *, journaled: bool) -> None:
        """An attempt's last word. `journaled`: its row is in the journal already, so its end goes there at once."""
        self.before_end()
        item = OutboxItem(report.id, topics.REPORT.pattern, _encode(report))
        result = _encode(report.result) if isinstance(report, messages.FinishedReport) else b"null"
        self._note_end(report)
        if journaled:
            self.keep(self._journal.record_finished(row.task, row.attempt, result, item))
        else:
            loop, heard = asyncio.get_running_loop(), self.bus is not None and self.bus.up
            self._unwritten[report.id] = (loop.time() + (PATIENCE if heard else 0.0), row, result, item)
            if not heard:  # nobody can acknowledge it
                self._write_late()
            elif self._timer is None:
                self._timer = loop.call_later(PATIENCE, self._write_late)
        if not self.say(report):
            self._behind = True

    def unwritten(self, task: str, attempt: int) -> bytes | None:
        """The result of an attempt that has ended and is not in the journal yet."""
        found = (e[2] for e in self._unwritten.values() if e[1].key == (task, attempt))
        return next(found, None)

    def acknowledged(self, ids: tuple[str, ...]) -> None:
        """The coordinator has these."""
        if self.bus is not None:
            self.bus.settle(ids)
        written = []
        for report_id in ids:
            ended = self._ends.pop(report_id, None)
            if ended is not None:
                self.unacknowledged.discard(ended)
                if self._unwritten.pop(report_id, None) is None:
                    written.append(report_id)
        if written:
            self.keep(self._journal.acknowledge(written))
        self._feed()

    def keep(self, write: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let a write to the journal go on; a failure is said once and shown, and ends nothing."""
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._written)
        return task

    def look(self) -> bool:
        """See how full the outbox is; True where `full` has come or gone. Results are never dropped to make room."""
        count, size = self._journal.waiting
        load = max(count / journal_rows.MAX_OUTBOX, size / journal_rows.MAX_OUTBOX_BYTES)
        if self.full is None and load >= FULL:
            self.full = journal_rows.outbox_full(count, size)
            log.error("no new work is taken: %s [%s]", self.full, self.full.code)
        elif self.full is not None and load < ROOM:
            self.full = None
            log.info("work is taken again: %d reports wait for the coordinator", count)
        else:
            return False
        return True

    def check_room(self) -> None:
        """Raises `outbox_full` where the end of what begins now might find no place."""
        self.look()
        if self.full is not None:
            raise journal_rows.outbox_full(*self._journal.waiting)

    async def flush(self) -> None:
        """Write everything that only memory has."""
        self._write_late(everything=True)
        await asyncio.gather(*self._writes, return_exceptions=True)

    def _feed(self) -> None:
        """Say what the outbox holds, a window at a time: there may be more than can be under way."""
        while self._behind and self.bus is not None and len(self._ends) <= WINDOW // 2:
            items = self._journal.outbox(after=self._after, limit=WINDOW)
            self._behind = len(items) == WINDOW
            for item in items:
                if not self.bus.waits_for(item.id) and not self._say_stored(item):
                    self._behind = True
                    return
                self._after = item.seq

    def _say_stored(self, item: OutboxItem) -> bool:
        try:
            report = decode(item.body)
        except (msgspec.MsgspecError, KeyError) as error:
            log.error("a report in the journal cannot be read, and is dropped: %s", error)
            self.keep(self._journal.acknowledge([item.id]))
            return True
        if not isinstance(report, messages.Report):
            return True
        self._note_end(report)
        return self.say(report)

    def _note_end(self, report: messages.Report) -> None:
        if isinstance(report, messages.FinishedReport | messages.Interrupted):
            self._ends[report.id] = (report.task, report.attempt)
            self.unacknowledged.add((report.task, report.attempt))

    def _write_late(self, *, everything: bool = False) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        due = [(key, entry) for key, entry in self._unwritten.items() if everything or entry[0] <= loop.time()]
        for key, (_, row, result, item) in due:
            del self._unwritten[key]
            self.keep(self._journal.record_ended(row, result, item))
        if self._unwritten:
            soonest = min(entry[0] for entry in self._unwritten.values())
            self._timer = loop.call_at(soonest, self._write_late)

    def _written(self, task: asyncio.Task[Any]) -> None:
        self._writes.discard(task)
        error = task.exception() if not task.cancelled() else None
        if isinstance(error, EdgePandaError):
            if self.problem is None or self.problem.code != error.code:
                log.error("the journal: %s [%s]", error, error.code)
            self.problem = error
        elif error is not None:
            log.error("the journal cannot be written", exc_info=error)
        else:
            self.problem = None


def decode(body: bytes) -> messages.Body:
    """A body of any type from its JSON."""
    kind = messages.ALL[msgspec.json.decode(body)["type"]]
    decoded: messages.Body = msgspec.json.decode(body, type=kind)
    return decoded
