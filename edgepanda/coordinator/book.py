"""The living tasks in memory, and their way into the ledger.

Changes of one turn of the loop become one append; what must follow a commit (answers, leases, acknowledgements) is
handed over with `then`. One append is under way at a time, what comes meanwhile shares the next one. When an append
fails, everything in memory is read anew from the ledger and whoever waits is told: no answer without a commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from edgepanda.coordinator import record as records
from edgepanda.coordinator.deadlines import ALONE, IN_COMPANY, Now, carried, kept
from edgepanda.coordinator.ledger import Appended, Event, Ledger, NodeRow
from edgepanda.coordinator.marks import marked, unmarked
from edgepanda.coordinator.record import Record
from edgepanda.errors import EdgePandaError
from edgepanda.model import states
from edgepanda.model.states import Happening
from edgepanda.wire import messages

log = logging.getLogger("edgepanda.coordinator")

PAUSE = 1.0  # seconds between appends while the ledger takes nothing
LOOK = 60.0  # seconds between looks at what remains of limits
MOST_KEPT = 1_000  # tasks whose limits are kept with one commit

Done = Callable[[], None]
Failed = Callable[[EdgePandaError], None]


class Live:
    """A task that has not ended, with what is not worth keeping: its lease's end, who waits for it."""

    __slots__ = ("again_at", "lease_until", "output", "progress", "record", "rests", "watchers")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.lease_until: float | None = None  # seconds on the coordinator's boot clock
        self.again_at = 0.0  # it failed for now and does not begin again before; seconds on the same clock
        self.rests: dict[str, tuple[float, float]] = {}  # nodes that declined for now: until when, and for how long
        self.progress = ""
        self.output: list[str] = []
        self.watchers: list[Callable[[Record], None]] = []


class _Batch:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.records: dict[str, Record] = {}
        self.counters: dict[str, tuple[int, int]] = {}
        self.nodes: dict[str, NodeRow] = {}
        self.then: list[tuple[Done, Failed | None]] = []

    @property
    def empty(self) -> bool:
        return not (self.writes or self.then)

    @property
    def writes(self) -> bool:
        return bool(self.events or self.records or self.counters or self.nodes)


class Book:
    """All living tasks; the only writer of the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        clock: Callable[[], Now],
        publish: Callable[[list[messages.Event]], None],
        on_change: Callable[[Live], None],
        on_reload: Callable[[], None],
    ) -> None:
        self.ledger = ledger
        self.live: dict[str, Live] = {}
        self.problem: EdgePandaError | None = None  # why the ledger takes nothing
        self._clock, self._publish, self._on_change, self._on_reload = clock, publish, on_change, on_reload
        self._batch = _Batch()
        self._before_flush: list[Callable[[], None]] = []
        self._scheduled: asyncio.Handle | None = None
        self._committing: asyncio.Task[None] | None = None
        self._under_way: dict[str, Record] = {}  # what the append under way will have written
        self._looked = {ALONE: float("-inf"), IN_COMPANY: float("-inf")}  # when limits were looked at, boot seconds
        self.reload()

    def reload(self) -> None:
        """Memory is what the ledger says, with the limits on this boot's clock."""
        before, now = self.live, self._clock()
        self.live = {row.id: Live(records.read(row)) for row in self.ledger.live_tasks()}
        for task_id, live in self.live.items():
            if task_id in before:
                live.watchers = before[task_id].watchers
            limits = carried(live.record.deadlines, now)
            if limits is not live.record.deadlines:  # a reboot: kept, so that the next one counts from here
                self.keep(live, msgspec.structs.replace(live.record, deadlines=limits))

    def find(self, task_id: str) -> Live | None:
        """The task, living or ended; None if the ledger has never heard of it."""
        live = self.live.get(task_id)
        if live is not None:
            return live
        record = self._batch.records.get(task_id) or self._under_way.get(task_id)
        if record is None:
            row = self.ledger.task(task_id)
            record = records.read(row) if row is not None else None
        return Live(record) if record is not None else None

    def before_flush(self, action: Callable[[], None]) -> None:
        """Call it once before the turn's changes are appended: it may add to them (matching does)."""
        if action not in self._before_flush:
            self._before_flush.append(action)
        self._schedule()

    # changes

    def add(self, record: Record, event: Happening, data: dict[str, Any]) -> Live:
        """A new task, after its first event."""
        live = Live(record)
        self.live[record.id] = live
        self.change(live, event, data)
        return live

    def change(
        self,
        live: Live,
        event: Happening,
        data: dict[str, Any] | None = None,
        *,
        implied: Happening | None = None,
        **fields: Any,
    ) -> Record:
        """Let the event happen to the task and record it. Raises `StateError`, and then nothing has changed.

        `implied` is an event that the other one shows to have happened first (an end shows a start); it gets no entry.
        """
        before = live.record
        standing = states.step(before.standing, implied) if implied is not None else before.standing
        reason = states.why(standing.state, event, standing)
        standing = states.step(standing, event)
        after = msgspec.structs.replace(
            before, standing=standing, **{"reason": reason, **records.updated(before, self._clock()), **fields}
        )
        self.note(live, str(event.kind), after, {**(data or {}), "state": str(standing.state)})
        self._on_change(live)
        return after

    def note(self, live: Live, kind: str, after: Record, data: dict[str, Any]) -> None:
        """Record something about a task that the table of states has no row for."""
        live.record = after
        if after.ended:
            self.live.pop(after.id, None)
        else:
            self.live[after.id] = live
        attempt = after.standing.attempt or None
        self._batch.events.append(Event(kind, after.id, attempt, self._payload(data)))
        self._batch.records[after.id] = after
        self._schedule()

    def keep(self, live: Live, after: Record) -> None:
        """Keep a detail of a living task without an event of its own."""
        live.record = after
        self._batch.records[after.id] = after
        self._schedule()

    def keep_limits(self) -> None:
        """Keep what remains of limits that were kept long ago, so that a power cut does not give it back."""
        found = self._worth_keeping(ALONE)
        if found:
            self._batch.records |= found
            self._schedule()

    def _worth_keeping(self, after: float) -> dict[str, Record]:
        now = self._clock()
        if now.boottime - self._looked[after] < LOOK:
            return {}
        self._looked[after] = now.boottime
        found: dict[str, Record] = {}
        for task_id, live in self.live.items():
            limits = kept(live.record.deadlines, now, after=after)
            if limits is not live.record.deadlines and len(found) < MOST_KEPT:
                live.record = found[task_id] = msgspec.structs.replace(live.record, deadlines=limits)
        return found

    def decision(self, kind: str, data: dict[str, Any]) -> None:
        """Record a control decision that belongs to no task."""
        self._batch.events.append(Event(kind, None, None, self._payload(data)))
        self._schedule()

    def _payload(self, data: dict[str, Any]) -> bytes:
        return marked(data, trusted=self._clock().synchronised)

    def count(self, key: str, highest: int, window: int) -> None:
        """Keep a client's counter with this turn's changes."""
        self._batch.counters[key] = (highest, window)
        self._schedule()

    def counter(self, key: str) -> tuple[int, int]:
        """The newest value and window of a client's counter, with what this turn has taken."""
        return self._batch.counters.get(key) or self.ledger.counter(key)

    def keep_node(self, row: NodeRow) -> None:
        """Keep what is known of a node with this turn's changes."""
        self._batch.nodes[row.name] = row
        self._schedule()

    def then(self, done: Done, failed: Failed | None = None) -> None:
        """Call `done` when this turn's changes are on disk, or `failed` when they could not be kept."""
        self._batch.then.append((done, failed))
        self._schedule()

    # the way to the disk

    def _schedule(self) -> None:
        if self._scheduled is None and self._committing is None:
            loop = asyncio.get_running_loop()
            soon = self.problem is None
            self._scheduled = loop.call_soon(self._flush) if soon else loop.call_later(PAUSE, self._flush)

    def _flush(self) -> None:
        self._scheduled = None
        actions, self._before_flush = self._before_flush, []
        for action in actions:
            _guarded(action)
        batch, self._batch = self._batch, _Batch()
        if batch.writes:
            batch.records |= self._worth_keeping(IN_COMPANY)
        if not batch.empty:
            self._under_way = batch.records
            self._committing = asyncio.create_task(self._commit(batch))

    async def _commit(self, batch: _Batch) -> None:
        try:
            if batch.events or batch.records or batch.counters or batch.nodes:
                appended = await self._append(batch)
                self.problem = None
                _guarded(lambda: self._publish(_published(batch, appended)))
            for done, _ in batch.then:
                _guarded(done)
        except EdgePandaError as error:
            self._failed(batch, error)
        except Exception as error:  # a value that the ledger cannot hold: whoever waits is told all the same
            log.exception("an append failed inside the coordinator")
            self._failed(
                batch,
                EdgePandaError(
                    f"the coordinator failed: {error}",
                    where="ledger",
                    cure="the coordinator's log has the details; report them",
                ),
            )
        finally:
            self._committing = None
            self._under_way = {}
            if not self._batch.empty or self._before_flush:
                self._schedule()

    async def _append(self, batch: _Batch) -> Appended:
        return await self.ledger.append(
            batch.events,
            tasks=[record.row() for record in batch.records.values()],
            counters=[(key, *value) for key, value in batch.counters.items()],
            nodes=list(batch.nodes.values()),
        )

    def _failed(self, batch: _Batch, error: EdgePandaError) -> None:
        if self.problem is None:
            log.error("the ledger cannot be written: %s [%s]", error, error.code)
        self.problem = error
        lost, self._batch, self._under_way = self._batch, _Batch(), {}
        try:
            self.reload()
            self._on_reload()
        except EdgePandaError as unread:  # memory goes on ahead of the disk; the next append will tell
            log.error("the ledger cannot be read either: %s [%s]", unread, unread.code)
        for _, failed in [*batch.then, *lost.then]:
            if failed is not None:
                _guarded(lambda failed=failed: failed(error))  # type: ignore[misc]

    async def close(self) -> None:
        """Finish what is under way."""
        while self._committing is not None or self._scheduled is not None:
            if self._scheduled is not None:
                self._scheduled.cancel()
                self._flush()
            if self._committing is not None:
                await self._committing


def _guarded(action: Done) -> None:
    """One answer that cannot be given does not keep back the others."""
    try:
        action()
    except Exception:
        log.exception("what goes with a commit failed")


def _published(batch: _Batch, appended: Appended) -> list[messages.Event]:
    published = []
    for seq, event in enumerate(batch.events, appended.first):
        data, untrusted = unmarked(event.payload)
        published.append(
            messages.Event(
                id=str(seq),
                seq=seq,
                at=appended.at,
                kind=event.kind,
                task=event.task,
                attempt=event.attempt,
                data=data or {},
                untrusted=bool(untrusted),
            )
        )
    return published
