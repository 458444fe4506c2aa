"""The ledger: the coordinator's append-only, hash-chained record, and the current state of every task beside it.

An append writes its events and the task rows, counters and node cards that follow from them in one commit, which it
shares with whatever else is under way. Look-ups go through indexes and cost the same with one ended task or a million.
"""

# ruff: noqa: S608 - the queries are put together from fixed text; every value is bound

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from edgepanda.coordinator.counters import Counters
from edgepanda.coordinator.ledger_check import Verification, verify_snapshot
from edgepanda.coordinator.ledger_rows import (
    ENDED,
    FORMAT,
    Append,
    Appended,
    Event,
    LedgerApplier,
    NodeRow,
    TaskRow,
    read_tail,
)
from edgepanda.coordinator.marks import marked
from edgepanda.coordinator.task_filter import SCANNED, Narrow
from edgepanda.model.head import Head
from edgepanda.sqlite import Row, Store

__all__ = [
    "ENDED",
    "Appended",
    "Event",
    "Head",
    "Ledger",
    "NodeRow",
    "StoredEvent",
    "TaskPage",
    "TaskRow",
    "Verification",
]

_ANY = Narrow()
_LATEST = 1e11  # wall seconds: far beyond any clock
_TASK = "id, state, capability, node, created, updated, digest, record"


class StoredEvent(msgspec.Struct, frozen=True):
    """An event as recorded. `at` is wall time in seconds; `payload` is None where it was dropped."""

    seq: int
    at: float
    kind: str
    task: str | None
    attempt: int | None
    digest: str
    hash: str
    payload: bytes | None


class TaskPage(msgspec.Struct, frozen=True):
    """Some tasks, newest first; `next` continues the list (as `before`), None at its end."""

    tasks: list[TaskRow]
    next: int | None


class Ledger:
    """An open ledger. Made by `Ledger.open`."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        meta: dict[str, str] = dict(store.read("SELECT key, value FROM meta"))
        self.id: str = meta["ledger"]
        self.epoch = int(meta["epoch"])
        with store.snapshot() as connection:
            head = read_tail(connection, self.id)
        self._applier = LedgerApplier(self.id, head)
        self._counters = Counters(store)

    @classmethod
    def open(cls, path: Path | str, *, writable: bool = True, clock: Callable[[], float] = time.time) -> Self:
        """Open a ledger, or create one with a random id. `writable=False` looks only, also beside a live coordinator.

        `clock` gives wall seconds. Raises `StorageError` (see `Store.open`).
        """
        store = Store.open(path, FORMAT) if writable else Store.open_readonly(path, FORMAT)
        try:
            return cls(store, clock)
        except BaseException:
            store.close()
            raise

    @property
    def head(self) -> Head:
        """The newest committed point of the chain (when opened to look only: at the time of opening)."""
        return self._applier.head

    def close(self) -> None:
        """Finish what is queued and close; may be called twice."""
        self._store.close()

    async def begin_epoch(self, *, trusted: bool = True) -> int:
        """Commit an `epoch` event and give the new epoch: the last one plus 1, the first is 1.

        `trusted`: somebody has set the clock.
        """
        epoch = self.epoch + 1
        event = Event("epoch", None, None, marked({"epoch": epoch}, trusted=trusted))
        await self._store.submit(self._applier, Append(self._now(), (event,), epoch=epoch))
        self.epoch = epoch
        return epoch

    async def append(
        self,
        events: Sequence[Event],
        *,
        tasks: Sequence[TaskRow] = (),
        counters: Sequence[tuple[str, int, int]] = (),
        nodes: Sequence[NodeRow] = (),
    ) -> Appended:
        """Append events, and write the rows that follow from them, in one commit; returns after it.

        Appends are recorded in the order in which they began to run. A task that the ledger does not know yet needs an
        event of its own among `events` (`ledger_no_event`); a later record may change without one. `counters` are (key,
        highest, window) from `check_counter`; `counter` shows them at once, and shows them taken back if this fails.
        A node row replaces the one of its name. After an error nothing of this append is in the ledger, except that
        `storage_unwritable` leaves open whether a power cut at that moment kept it.
        """
        waiter = self._store.submit(self._applier, Append(self._now(), events, tasks, counters, nodes))
        for key, highest, window in counters:
            self._counters.begin(key, highest, window)
        if counters:
            waiter.add_done_callback(lambda done: self._end_counters(counters, done))
        result: Appended = await waiter
        return result

    def _end_counters(self, counters: Sequence[tuple[str, int, int]], done: asyncio.Future[Any]) -> None:
        failed = not done.cancelled() and done.exception() is not None
        for key, _, _ in counters:
            self._counters.end(key, failed=failed)

    def counter(self, key: str) -> tuple[int, int]:
        """The highest value and the window (1,024 bits) of a client's key, with the appends that are under way."""
        return self._counters.get(key)

    def task(self, task_id: str) -> TaskRow | None:
        """The committed state of a task."""
        rows = self._store.read(f"SELECT {_TASK} FROM tasks WHERE id = ?", (task_id,))
        return TaskRow(*rows[0]) if rows else None

    def live_tasks(self) -> list[TaskRow]:
        """All tasks that have not ended, oldest first."""
        return [TaskRow(*row) for row in self._store.read(f"SELECT {_TASK} FROM tasks WHERE ended = 0 ORDER BY born")]

    def list_tasks(
        self,
        *,
        states: Sequence[str] | None = None,
        capability: str | None = None,
        node: str | None = None,
        before: int | None = None,
        limit: int = 50,
        since: float | None = None,
        until: float | None = None,
        narrow: Narrow = _ANY,
    ) -> TaskPage:
        """Tasks, newest first, of these states, this capability, this node; `before` is the last page's `next`.

        `since` and `until` are wall seconds of the submit. A page that is narrowed by what no index has looks into
        `SCANNED` tasks at most: it may be short, or empty, and have a `next` all the same.
        """
        first = self._first_since(since) if since is not None else 0
        if until is not None:
            before = min(self._first_since(until), before if before is not None else 2**63 - 1)
        if narrow.wanted:
            return self._narrowed(_list_query(states, capability, node, before, SCANNED, first), narrow, limit)
        sql, args = _list_query(states, capability, node, before, limit + 1, first)
        rows = self._store.read(sql, args)
        following = rows[limit - 1][0] if len(rows) > limit else None
        return TaskPage([TaskRow(*row[1:]) for row in rows[:limit]], following)

    def _narrowed(self, scanned: tuple[str, list[Any]], narrow: Narrow, limit: int) -> TaskPage:
        (inner, args), (condition, values) = scanned, narrow.condition()
        rows = self._store.read(
            f"SELECT * FROM ({inner}) WHERE {condition} ORDER BY born DESC LIMIT ?", [*args, *values, limit + 1]
        )
        if len(rows) > limit:
            following = rows[limit - 1][0]
        else:
            count, oldest = self._store.read(f"SELECT count(*), min(born) FROM ({inner})", args)[0]
            following = oldest if count == SCANNED else None
        return TaskPage([TaskRow(*row[1:]) for row in rows[:limit]], following)

    def _first_since(self, moment: float) -> int:
        """The number of the first event at or after this wall time (seconds): by halves, for times have no index."""
        at = round(max(0.0, min(moment, _LATEST)) * 1000)
        low, high = 1, self.head.height + 1
        while low < high:
            middle = (low + high) // 2
            if self._store.read("SELECT at FROM chain WHERE seq >= ? ORDER BY seq LIMIT 1", (middle,))[0][0] < at:
                low = middle + 1
            else:
                high = middle
        return low

    def counts(self) -> dict[str, int]:
        """How many tasks are in each state that has any."""
        return dict(self._store.read("SELECT state, tasks FROM counts WHERE tasks > 0"))

    def events(self, *, after: int = 0, task: str | None = None, limit: int = 100) -> list[StoredEvent]:
        """Events with a sequence number above `after`, in order: all, or those of one task."""
        of_task, args = ("task = ? AND ", (task,)) if task is not None else ("", ())
        rows = self._store.read(
            "SELECT seq, at, kind, task, attempt, digest, hash, body FROM chain LEFT JOIN payloads USING (seq) "
            f"WHERE {of_task}seq > ? ORDER BY seq LIMIT ?",
            (*args, after, limit),
        )
        return [_stored_event(row) for row in rows]

    def nodes(self) -> list[NodeRow]:
        """The last that is known of every node, by name."""
        rows = self._store.read("SELECT name, kid, card, revision, incarnation FROM nodes ORDER BY name")
        return [NodeRow(*row) for row in rows]

    def verify(self, *, witnesses: Sequence[Head] = ()) -> Verification:
        """Check the whole ledger as it is now. Takes seconds for a long one: run it in a thread (`to_thread`)."""
        with self._store.snapshot() as connection:
            return verify_snapshot(connection, self.id, witnesses)

    def _now(self) -> int:
        return round(self._clock() * 1000)


def _stored_event(row: Row) -> StoredEvent:
    seq, at, kind, task, attempt, digest, value, body = row
    return StoredEvent(seq, at / 1000, kind, task, attempt, digest.hex(), value.hex(), body)


def _list_query(
    states: Sequence[str] | None,
    capability: str | None,
    node: str | None,
    before: int | None,
    limit: int,
    first: int = 0,
) -> tuple[str, list[Any]]:
    """The query for one page.

    With a filter, each ended state is one range of an index and the live tasks are another; they are merged by age, so
    that no page reads more than its length from each.
    """
    older = before if before is not None else 2**63 - 1
    if states is None and capability is None and node is None:
        sql = f"SELECT born, {_TASK} FROM tasks WHERE born < ? AND born >= ? ORDER BY born DESC LIMIT ?"
        return sql, [older, first, limit]
    filters = [(name, value) for name, value in (("node", node), ("capability", capability)) if value is not None]
    clause = "".join(f" AND {name} = ?" for name, _ in filters)
    values = [value for _, value in filters]
    parts: list[str] = []
    args: list[Any] = []
    for state in ENDED if states is None else [state for state in ENDED if state in states]:
        parts.append(_part(f"ended = 1 AND state = ?{clause}"))
        args += [state, *values, older, first, limit]
    live = None if states is None else [state for state in states if state not in ENDED]
    if live is None or live:
        among = "" if live is None else f" AND state IN ({','.join('?' * len(live))})"
        parts.append(_part(f"ended = 0{among}{clause}"))
        args += [*(live or ()), *values, older, first, limit]
    if not parts:
        return f"SELECT born, {_TASK} FROM tasks WHERE 0", []
    return f"{' UNION ALL '.join(parts)} ORDER BY born DESC LIMIT ?", [*args, limit]


def _part(condition: str) -> str:
    inner = f"SELECT born, {_TASK} FROM tasks WHERE {condition} AND born < ? AND born >= ? ORDER BY born DESC LIMIT ?"
    return f"SELECT * FROM ({inner})"
