"""The node's journal: its durable record of attempts, the outbox of what the coordinator has not acknowledged yet, the
cancels that came before their lease, and the newest that it has seen of the ledger.

(task, attempt) is the key: a lease that comes again finds its attempt here. Reads show what is committed; whoever
decides by them awaits the write first. An idle journal writes nothing: a head that comes with an acknowledgement is
kept in memory and goes to disk with the next commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from edgepanda.model.head import Head
from edgepanda.node.journal_rows import (
    COLUMNS,
    FORMAT,
    KEEP_ACKED,
    MAX_TOMBSTONES,
    Advance,
    AttemptRow,
    AttemptState,
    Change,
    JournalApplier,
    JournalError,
    Key,
    Newest,
    NewestOfAll,
    OutboxItem,
    attempt_row,
)
from edgepanda.sqlite import Store
from edgepanda.storage import StorageError
from edgepanda.wire.clock import boot_id

__all__ = ["AttemptRow", "AttemptState", "Head", "Journal", "JournalError", "Newest", "OutboxItem"]

NEWEST = "newest"  # the name of that fact
MOST_NEWEST = 1_000  # devices of which the newest command is kept


class Journal:
    """An open journal. Made by `Journal.open`, which counts the start."""

    def __init__(self, store: Store, applier: JournalApplier, clock: Callable[[], float]) -> None:
        self._store = store
        self._applier = applier
        self._clock = clock
        self._meta: dict[str, str] = dict(store.read("SELECT key, value FROM meta"))
        self._kept = dict(self._meta)  # the part of it that is on disk
        rows = store.read("SELECT task, attempt FROM tombstones ORDER BY born")
        self._tombstones: dict[Key, bool] = {(task, attempt): True for task, attempt in rows}  # True: on disk
        witnesses = store.read("SELECT ledger, height, hash FROM witness")
        self._heads = {ledger: Head(ledger, height, value) for ledger, height, value in witnesses}
        self._newest: Head | None = None  # seen in this run, to go with the next commit
        self.newest = _read_newest(self._meta.get(NEWEST, ""), self.ledger)  # command of each device
        self._newer = False  # than what is on disk

    @classmethod
    def open(cls, path: Path | str, *, keep: int = KEEP_ACKED, clock: Callable[[], float] = time.time) -> Self:
        """Open or create a journal and commit one more start.

        `keep` bounds the acknowledged attempts that are remembered (more while they come faster than `keep` a minute);
        `clock` gives wall seconds. Raises `StorageError` (see `Store.open`).
        """
        store = Store.open(path, FORMAT)
        try:
            applier = JournalApplier(keep)
            incarnation = int(store.read("SELECT value FROM meta WHERE key = 'incarnation'")[0][0]) + 1
            store.submit_now(applier, Change(meta=(("incarnation", str(incarnation)),)))
            return cls(store, applier, clock)
        except BaseException:
            store.close()
            raise

    def close(self) -> None:
        """Finish what is queued, keep what goes with the next commit, and close; may be called twice."""
        newest, self._newest = self._newest, None
        if newest is not None or self._newer:
            with contextlib.suppress(StorageError):  # a disk that takes nothing any more has been told of before
                self._store.submit_now(self._applier, self._with_newest(Change(head=newest)))
        self._store.close()

    @property
    def incarnation(self) -> int:
        """How many times this journal was opened, this one included."""
        return int(self._meta["incarnation"])

    # Attempts. Each of these returns after its commit; calls that are not awaited are still recorded in order.

    async def record(self, *rows: AttemptRow, outbox: Sequence[OutboxItem] = ()) -> None:
        """Record new attempts, and put items into the outbox with them, to be kept until they are acknowledged.

        An item whose id is there already changes nothing. Raises `journal_duplicate`, `outbox_full`.
        """
        await self._submit(Change(record=rows, outbox=outbox, head=self._newest))

    async def advance(
        self,
        task: str,
        attempt: int,
        state: AttemptState,
        *,
        work: str | None = None,
        result: bytes | None = None,
        outbox: Sequence[OutboxItem] = (),
    ) -> None:
        """Take an open attempt to a later state (or the same), with its work directory or result where given.

        Raises `journal_unknown` where no such attempt is open, `journal_order` for a step back.
        """
        step = Advance(task, attempt, state, self._clock(), work, result)
        await self._submit(Change(advance=(step,), outbox=outbox, head=self._newest))

    async def record_finished(self, task: str, attempt: int, result: bytes, item: OutboxItem) -> None:
        """Record how an attempt ended together with the report of it; its acknowledgement closes the attempt.

        Raises `journal_unknown`, `outbox_full`.
        """
        step = Advance(task, attempt, "finished", self._clock(), None, result)
        await self._submit(
            Change(advance=(step,), outbox=(item,), finishing=(item.id, (task, attempt)), head=self._newest)
        )

    async def record_ended(self, row: AttemptRow, result: bytes, item: OutboxItem) -> None:
        """Record an attempt that has ended already, with its result and the report of it, in one commit.

        Raises `journal_duplicate`, `outbox_full`.
        """
        step = Advance(row.task, row.attempt, "finished", self._clock(), None, result)
        finishing = (item.id, row.key)
        await self._submit(
            Change(record=(row,), advance=(step,), outbox=(item,), finishing=finishing, head=self._newest)
        )

    def attempt(self, task: str, attempt: int) -> AttemptRow | None:
        """An attempt as committed; acknowledged ones until they are pruned."""
        rows = self._store.read(f"SELECT {COLUMNS} FROM attempts WHERE task = ? AND attempt = ?", (task, attempt))  # noqa: S608
        return attempt_row(rows[0]) if rows else None

    def open_attempts(self) -> list[AttemptRow]:
        """The attempts that are not acknowledged, oldest first."""
        rows = self._store.read(f"SELECT {COLUMNS} FROM attempts WHERE state <> 'acked' ORDER BY born")  # noqa: S608
        return [attempt_row(row) for row in rows]

    # The outbox.

    async def acknowledge(self, ids: Sequence[str], head: Head | None = None) -> None:
        """Remove items, close the attempts whose end they reported, and keep the head that came with the word.

        Unknown ids are ignored. Without ids nothing is written: the head goes with the next commit.
        """
        if head is not None:
            self.see(head)
        if ids:
            await self._submit(Change(acknowledged=ids, head=self._newest))

    def outbox(self, *, after: int = 0, limit: int = 1000) -> list[OutboxItem]:
        """Items in the order in which they were put in, from the one after `seq`."""
        rows = self._store.read(
            "SELECT id, topic, body, seq FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)
        )
        return [OutboxItem(*row) for row in rows]

    @property
    def waiting(self) -> tuple[int, int]:
        """How many reports wait in the outbox, and the bytes of their bodies."""
        return self._applier.outbox

    # Cancels that came before their lease.

    async def bury(self, task: str, attempt: int) -> None:
        """Remember that an attempt is cancelled, so that its lease, if it still comes, is refused."""
        if self._tombstones.get((task, attempt)):
            return
        self._tombstones[task, attempt] = False
        if len(self._tombstones) > MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]
        await self._submit(Change(tombstones=((task, attempt),), head=self._newest))
        self._tombstones[task, attempt] = True

    def is_buried(self, task: str, attempt: int) -> bool:
        """Whether the attempt was cancelled before its lease came (true from the moment `bury` is called)."""
        return (task, attempt) in self._tombstones

    # The coordinator and its ledger.

    @property
    def ledger(self) -> str | None:
        """The id of the ledger that this node works for; None before the first."""
        return self._meta.get("ledger")

    @property
    def epoch(self) -> int:
        """The highest epoch seen of that ledger; 0 before the first."""
        return int(self._meta.get("epoch", "0"))

    def witness(self, ledger: str | None = None) -> Head | None:
        """The newest head seen of a ledger (default: the one that this node works for)."""
        return self._heads.get(ledger or self.ledger or "")

    async def note_coordinator(self, ledger: str, epoch: int) -> None:
        """Keep a coordinator's ledger id and epoch; writes only what is new.

        Raises `ledger_foreign` for another ledger than the one accepted, `epoch_stale` for a lower epoch.
        """
        if self.ledger not in (None, ledger):
            raise JournalError(
                f"this coordinator has the ledger {ledger}, this node works for {self.ledger}",
                code="ledger_foreign",
                where="ledger",
                cure=f"bring the old ledger back, or accept the new one with `edgepanda node --accept-ledger {ledger}`",
            )
        if epoch < self.epoch:
            raise JournalError(
                f"this coordinator is in epoch {epoch}, epoch {self.epoch} was seen before",
                code="epoch_stale",
                where="epoch",
                cure="end the older of two coordinators, or bring its newest ledger back",
            )
        if (ledger, epoch) != (self.ledger, self.epoch):
            await self.set_meta({"ledger": ledger, "epoch": str(epoch)})

    async def accept_ledger(self, ledger: str) -> None:
        """Work for this ledger from now on, by an operator's word: another one, or an older copy of the one known.

        Its epochs and the orders of its commands count from the start; what was seen of it before is forgotten.
        """
        self._heads.pop(ledger, None)
        self.newest = {device: Newest(direct_ms=each.direct_ms) for device, each in self.newest.items()}
        self._newer = bool(self.newest)
        if self._newest is not None and self._newest.ledger == ledger:
            self._newest = None
        await self._submit(Change(forget=ledger))
        await self.set_meta({"ledger": ledger, "epoch": "0"})

    def meta(self, key: str) -> str | None:
        """A small fact kept under a name."""
        return self._meta.get(key)

    async def set_meta(self, values: dict[str, str]) -> None:
        """Keep small facts; readable at once, durable when this returns. Writes nothing that is kept already."""
        changed = {key: value for key, value in values.items() if self._kept.get(key) != value}
        self._meta.update(changed)
        if changed:
            await self._submit(Change(meta=tuple(changed.items()), head=self._newest))
            self._kept.update(changed)

    def see(self, head: Head) -> None:
        """A head of the ledger was seen; it is kept with the next commit."""
        known = self._heads.get(head.ledger)
        if known is None or head.height > known.height:
            self._heads[head.ledger] = self._newest = head

    def note_newest(self, device: str, newest: Newest) -> None:
        """The device has accepted a newer command; kept with the next commit, so that after a restart too no older one
        follows it.
        """
        self.newest.pop(device, None)
        self.newest[device] = newest
        if len(self.newest) > MOST_NEWEST:
            del self.newest[next(iter(self.newest))]
        self._newer = True

    async def keep_newest(self) -> None:
        """Commit what `note_newest` was told, if no other commit has done so."""
        if self._newer:
            await self._submit(Change(head=self._newest))

    def _with_newest(self, change: Change) -> Change:
        if not self._newer:
            return change
        self._newer = False
        text = msgspec.json.encode(NewestOfAll(self.ledger or "", boot_id(), self.newest)).decode()
        return msgspec.structs.replace(change, meta=(*change.meta, (NEWEST, text)))

    def _submit(self, change: Change) -> asyncio.Future[Any]:
        newer = self._newer
        waiter = self._store.submit(self._applier, self._with_newest(change))
        if newer:
            waiter.add_done_callback(self._newest_written)
        return waiter

    def _newest_written(self, done: asyncio.Future[Any]) -> None:
        if done.cancelled() or done.exception() is not None:
            self._newer = True


def _read_newest(text: str, ledger: str | None) -> dict[str, Newest]:
    """What is kept of devices' newest commands. Orders of another ledger say nothing. Of a direct command of an earlier
    boot only this is left: it is newer than all that was submitted before this boot, or nobody knows when.
    """
    try:
        kept = msgspec.json.decode(text, type=NewestOfAll)
    except msgspec.MsgspecError:
        return {}
    same_boot = kept.boot == boot_id()
    return {
        device: Newest(
            order=each.order if kept.ledger == (ledger or "") else 0,
            direct_ms=each.direct_ms if same_boot or each.direct_ms < 0 else 1,
        )
        for device, each in kept.of.items()
    }
