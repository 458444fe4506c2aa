"""Reports to the coordinator, repeated until they are acknowledged, and on disk where they must outlive a restart.

The end of a `safe` attempt that is acknowledged within a second is never written: were the node to die in that second,
the attempt would be done again, which changes nothing, and the SD card is spared. Everything else goes through the
journal's outbox first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.node.journal import AttemptRow, Journal, OutboxItem
from edgepanda.wire import messages, topics
from edgepanda.wire.bus import Bus

log = logging.getLogger("edgepanda.node")

PATIENCE = 1.0  # seconds without an acknowledgement after which a safe attempt's end is written to disk

_encode = msgspec.json.Encoder().encode


class Reporter:
    """The way of all reports."""

    def __init__(self, journal: Journal, node: str) -> None:
        self._journal, self._node = journal, node
        self.bus: Bus | None = None
        self._unwritten: dict[str, tuple[float, AttemptRow, OutboxItem]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[Any]] = set()
        self.problem: EdgePandaError | None = None  # why the journal takes nothing
        self.unacknowledged: set[tuple[str, int]] = set()  # attempts whose end the coordinator has not confirmed
        self._ends: dict[str, tuple[str, int]] = {}

    def resume(self, bus: Bus) -> None:
        """Use this bus, and say again what an earlier run left unacknowledged."""
        self.bus = bus
        for item in self._journal.outbox():
            body = decode(item.body)
            if isinstance(body, messages.Report):
                self._note_end(body)
                bus.deliver(topics.REPORT, body, node=self._node)

    def say(self, report: messages.Report) -> None:
        """Say it until it is acknowledged, as long as this process lives."""
        if self.bus is not None:
            self.bus.deliver(topics.REPORT, report, node=self._node)

    def hint(self, body: messages.Report) -> None:
        """Say it once."""
        if self.bus is not None:
            self.bus.send(topics.REPORT, body, node=self._node)

    def end(self, report: messages.FinishedReport | messages.Interrupted, row: AttemptRow, *, journaled: bool) -> None:
        """An attempt's last word. `journaled`: its row is in the journal already, so its end goes there at once."""
        item = OutboxItem(report.id, topics.REPORT.pattern, _encode(report))
        self._note_end(report)
        if journaled:
            result = _encode(report.result) if isinstance(report, messages.FinishedReport) else b"null"
            self.keep(self._journal.record_finished(row.task, row.attempt, result, item))
        else:
            loop = asyncio.get_running_loop()
            self._unwritten[report.id] = (loop.time() + PATIENCE, row, item)
            if self._timer is None:
                self._timer = loop.call_later(PATIENCE, self._write_late)
        self.say(report)

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

    def keep(self, write: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let a write to the journal go on; a failure is said once and shown, and ends nothing."""
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._written)
        return task

    async def flush(self) -> None:
        """Write everything that only memory has."""
        self._write_late(everything=True)
        await asyncio.gather(*self._writes, return_exceptions=True)

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
        for key, (_, row, item) in due:
            del self._unwritten[key]
            self.keep(self._write_end(row, item))
        if self._unwritten:
            soonest = min(entry[0] for entry in self._unwritten.values())
            self._timer = loop.call_at(soonest, self._write_late)

    async def _write_end(self, row: AttemptRow, item: OutboxItem) -> None:
        await self._journal.record(row)
        await self._journal.record_finished(row.task, row.attempt, b"null", item)

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
