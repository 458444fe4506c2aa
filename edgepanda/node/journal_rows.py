"""What the node's journal keeps: its values, its tables, and the writing of many changes in a few statements."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.head import Head
from edgepanda.sqlite import Format, Row, put_rows

AttemptState = Literal["accepted", "starting", "permitted", "began", "finished", "acked"]
RANK: dict[str, int] = {
    state: rank for rank, state in enumerate(("accepted", "starting", "permitted", "began", "finished", "acked"))
}

KEEP_ACKED = 10_000
KEEP_SECONDS = 60.0  # twice a lease's time to live: an attempt is remembered for longer than its lease can be replayed
MAX_OUTBOX = 100_000  # reports that wait for the coordinator
MAX_OUTBOX_BYTES = 64 * 1024 * 1024  # of their bodies
MAX_TOMBSTONES = 1_000

FORMAT = Format(
    "journal",
    0x45504A31,
    (
        """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('incarnation', '0');
CREATE TABLE attempts (
    born INTEGER PRIMARY KEY, task TEXT NOT NULL, attempt INTEGER NOT NULL, state TEXT NOT NULL,
    capability TEXT NOT NULL, device TEXT, action TEXT NOT NULL, replay TEXT NOT NULL, lease BLOB NOT NULL,
    result BLOB, work TEXT, updated REAL NOT NULL, UNIQUE (task, attempt));
CREATE INDEX attempts_open ON attempts (born) WHERE state <> 'acked';
CREATE INDEX attempts_acked ON attempts (born) WHERE state = 'acked';
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, topic TEXT NOT NULL, body BLOB NOT NULL,
    task TEXT, attempt INTEGER);
CREATE TABLE tombstones (
    born INTEGER PRIMARY KEY, task TEXT NOT NULL, attempt INTEGER NOT NULL, UNIQUE (task, attempt));
CREATE TABLE witness (ledger TEXT PRIMARY KEY, height INTEGER NOT NULL, hash TEXT NOT NULL) WITHOUT ROWID;
""",
    ),
    cache_kib=256,
)

COLUMNS = "task, attempt, state, capability, device, action, replay, lease, result, work, updated"
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in ("state", "result", "work", "updated"))

Key = tuple[str, int]


class JournalError(EdgePandaError):
    """What the journal refuses.

    Of attempts `journal_duplicate`, `journal_unknown`, `journal_order`; of the outbox `outbox_full`; of a coordinator
    `ledger_foreign`, `epoch_stale`.
    """

    code = "journal_unknown"


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt on this node. `lease` and `result` are JSON, `work` its directory, `updated` wall seconds."""

    task: str
    attempt: int
    state: AttemptState
    capability: str
    device: str | None
    action: str
    replay: str
    lease: bytes
    result: bytes | None = None
    work: str | None = None
    updated: float = 0.0

    @property
    def key(self) -> Key:
        """Task and attempt."""
        return self.task, self.attempt


class Newest(msgspec.Struct, frozen=True, array_like=True):
    """The newest command that a device accepted: of the site, by its order (0: none), and directly, by milliseconds of
    the boot's clock (-1: none).
    """

    order: int = 0
    direct_ms: int = -1


class NewestOfAll(msgspec.Struct, frozen=True):
    """Those of all devices, as the journal keeps them: orders count in this ledger, milliseconds in this boot."""

    ledger: str = ""
    boot: str = ""
    of: dict[str, Newest] = {}


class OutboxItem(msgspec.Struct, frozen=True):
    """A body that is sent again until it is acknowledged by its id. `topic` names where to, `seq` is its place."""

    id: str
    topic: str
    body: bytes
    seq: int = 0


class Advance(msgspec.Struct, frozen=True):
    """A step of an open attempt; None leaves work and result as they are."""

    task: str
    attempt: int
    state: AttemptState
    updated: float
    work: str | None = None
    result: bytes | None = None


class Change(msgspec.Struct, frozen=True):
    """What one call writes; all of it or nothing. `finishing` says which attempt an outbox item reports as finished."""

    record: Sequence[AttemptRow] = ()
    advance: Sequence[Advance] = ()
    outbox: Sequence[OutboxItem] = ()
    finishing: tuple[str, Key] | None = None
    acknowledged: Sequence[str] = ()
    tombstones: Sequence[Key] = ()
    meta: Sequence[tuple[str, str]] = ()
    head: Head | None = None
    forget: str | None = None  # a ledger of which lower heads count from now on


class _Known:
    """The part of the tables that the writer thread keeps in memory: what is open, and a few counts."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute(f"SELECT {COLUMNS} FROM attempts WHERE state <> 'acked'")  # noqa: S608
        self.open: dict[Key, AttemptRow] = {row.key: row for row in map(attempt_row, rows)}
        finishing = connection.execute("SELECT id, task, attempt FROM outbox WHERE task IS NOT NULL")
        self.finishing: dict[str, Key] = {item: (task, attempt) for item, task, attempt in finishing}
        self.outbox = _count(connection, "SELECT count(*) FROM outbox")
        self.outbox_bytes = _outbox_bytes(connection)
        self.acked = _count(connection, "SELECT count(*) FROM attempts WHERE state = 'acked'")
        self.tombstones = _count(connection, "SELECT count(*) FROM tombstones")
        self.heights: dict[str, int] = dict(connection.execute("SELECT ledger, height FROM witness"))


class JournalApplier:
    """Writes changes on the store's writer thread, several at once."""

    def __init__(self, keep: int = KEEP_ACKED, clock: Callable[[], float] = time.monotonic) -> None:
        self._keep = keep
        self._known: _Known | None = None
        self._recent: _Recent | None = None
        self._clock = clock
        self.outbox = (0, 0)  # reports and bytes that wait, as last committed; may be read by any thread

    def apply(self, connection: sqlite3.Connection, items: Sequence[Change]) -> list[None]:
        """Do the changes in order. Raises `JournalError` for a duplicate, an unknown attempt, a step back."""
        if self._known is None:
            self._known = _Known(connection)
        if self._recent is None:
            self._recent = _Recent(self._known.acked, self._clock)
        batch = _Batch(self._known)
        for item in items:
            batch.add(item)
        try:
            batch.write(connection)
        except sqlite3.IntegrityError as error:
            raise JournalError(
                "this attempt is in the journal already", code="journal_duplicate", where="journal"
            ) from error
        self._known.acked += batch.acked
        self._prune(connection, self._known, self._recent.add(batch.acked))
        return [None] * len(items)

    def committed(self) -> None:
        """What is kept in memory is what is on disk now."""
        if self._known is not None:
            self.outbox = (self._known.outbox, self._known.outbox_bytes)

    def rolled_back(self) -> None:
        """Read it again before the next change."""
        self._known = None

    def _prune(self, connection: sqlite3.Connection, known: _Known, recent: int) -> None:
        surplus = known.acked - max(self._keep, recent)
        if surplus > 0:
            connection.execute(
                "DELETE FROM attempts WHERE born IN "
                "(SELECT born FROM attempts WHERE state = 'acked' ORDER BY born LIMIT ?)",
                (surplus,),
            )
            known.acked -= surplus
        surplus = known.tombstones - MAX_TOMBSTONES
        if surplus > 0:
            connection.execute(
                "DELETE FROM tombstones WHERE born IN (SELECT born FROM tombstones ORDER BY born LIMIT ?)", (surplus,)
            )
            known.tombstones -= surplus


class _Recent:
    """How many attempts were acknowledged in the last `KEEP_SECONDS`, or up to twice that; all old ones at first."""

    def __init__(self, acked: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._before = 0
        self._now = acked

    def add(self, acked: int) -> int:
        elapsed = self._clock() - self._since
        if elapsed >= KEEP_SECONDS:
            self._before = self._now if elapsed < 2 * KEEP_SECONDS else 0
            self._now = 0
            self._since += elapsed
        self._now += acked
        return self._before + self._now


class _Batch:
    """The rows of several changes; of what is written twice, the last counts."""

    def __init__(self, known: _Known) -> None:
        self._known = known
        self._new: dict[Key, AttemptRow] = {}
        self._changed: dict[Key, AttemptRow] = {}
        self._outbox: dict[str, Row] = {}
        self._removed: list[str] = []
        self._tombstones: list[Row] = []
        self._meta: dict[str, str] = {}
        self._heads: dict[str, Head] = {}
        self._forgotten: list[str] = []
        self.acked = 0

    def add(self, change: Change) -> None:
        for row in change.record:
            self._record(row)
        for step in change.advance:
            self._advance(step)
        for item in change.outbox:
            key = change.finishing[1] if change.finishing and change.finishing[0] == item.id else (None, None)
            self._outbox[item.id] = (item.id, item.topic, item.body, *key)
        if change.finishing:
            self._known.finishing[change.finishing[0]] = change.finishing[1]
        for item_id in change.acknowledged:
            self._acknowledge(item_id)
        self._tombstones += change.tombstones
        self._meta.update(change.meta)
        if change.forget is not None:
            self._known.heights.pop(change.forget, None)
            self._heads.pop(change.forget, None)
            self._forgotten.append(change.forget)
        if change.head is not None and change.head.height > self._known.heights.get(change.head.ledger, -1):
            self._known.heights[change.head.ledger] = change.head.height
            self._heads[change.head.ledger] = change.head

    def _record(self, row: AttemptRow) -> None:
        if row.key in self._known.open:
            raise JournalError(
                f"attempt {row.attempt} is in the journal already", code="journal_duplicate", where=row.task
            )
        self._known.open[row.key] = self._new[row.key] = row

    def _advance(self, step: Advance) -> None:
        row = self._known.open.get((step.task, step.attempt))
        if row is None:
            raise JournalError(f"the journal has no open attempt {step.attempt}", where=step.task)
        if RANK[step.state] < RANK[row.state]:
            raise JournalError(
                f"attempt {step.attempt} is {row.state} and cannot become {step.state}",
                code="journal_order",
                where=step.task,
            )
        result = step.result if step.result is not None else row.result
        work = step.work if step.work is not None else row.work
        changed = msgspec.structs.replace(row, state=step.state, updated=step.updated, result=result, work=work)
        self._put(changed)

    def _put(self, row: AttemptRow) -> None:
        rows = self._new if row.key in self._new else self._changed
        rows[row.key] = row
        if row.state == "acked":
            del self._known.open[row.key]
            self.acked += 1
        else:
            self._known.open[row.key] = row

    def _acknowledge(self, item_id: str) -> None:
        self._outbox.pop(item_id, None)
        self._removed.append(item_id)
        key = self._known.finishing.pop(item_id, None)
        row = self._known.open.get(key) if key is not None else None
        if row is not None:
            self._put(msgspec.structs.replace(row, state="acked"))

    def write(self, connection: sqlite3.Connection) -> None:
        insert = f"INSERT INTO attempts ({COLUMNS}) VALUES"
        put_rows(connection, insert, [attempt_values(row) for row in self._new.values()])
        update = f"ON CONFLICT (task, attempt) DO UPDATE SET {_CHANGES}"
        put_rows(connection, insert, [attempt_values(row) for row in self._changed.values()], update)
        self._write_outbox(connection)
        before = connection.total_changes
        put_rows(connection, "INSERT OR IGNORE INTO tombstones (task, attempt) VALUES", self._tombstones)
        self._known.tombstones += connection.total_changes - before
        put_rows(connection, "INSERT OR REPLACE INTO meta VALUES", list(self._meta.items()))
        connection.executemany("DELETE FROM witness WHERE ledger = ?", [(ledger,) for ledger in self._forgotten])
        heads: list[Row] = [(head.ledger, head.height, head.hash) for head in self._heads.values()]
        put_rows(connection, "INSERT OR REPLACE INTO witness VALUES", heads)

    def _write_outbox(self, connection: sqlite3.Connection) -> None:
        # An item that is there already stays as it is: the same id is the same body.
        before = connection.total_changes
        insert = "INSERT INTO outbox (id, topic, body, task, attempt) VALUES"
        put_rows(connection, insert, list(self._outbox.values()), "ON CONFLICT (id) DO NOTHING")
        added = connection.total_changes - before
        self._known.outbox += added
        self._known.outbox_bytes += sum(len(values[2]) for values in self._outbox.values())
        if self._removed:
            ids = msgspec.json.encode(self._removed).decode()
            delete = "DELETE FROM outbox WHERE id IN (SELECT value FROM json_each(?)) RETURNING length(body)"
            sizes = [size for (size,) in connection.execute(delete, (ids,))]
            self._known.outbox -= len(sizes)
            self._known.outbox_bytes -= sum(sizes)
        if added < len(self._outbox):
            self._known.outbox_bytes = _outbox_bytes(connection)
        if added and (self._known.outbox > MAX_OUTBOX or self._known.outbox_bytes > MAX_OUTBOX_BYTES):
            raise outbox_full(self._known.outbox, self._known.outbox_bytes)


def attempt_row(row: Row) -> AttemptRow:
    """The value of a row with `COLUMNS`."""
    task, attempt, state, capability, device, action, replay, lease, result, work, updated = row
    return AttemptRow(
        task=task,
        attempt=attempt,
        state=state,
        capability=capability,
        device=device,
        action=action,
        replay=replay,
        lease=lease,
        result=result,
        work=work,
        updated=updated,
    )


def attempt_values(row: AttemptRow) -> Row:
    """The row, with `COLUMNS`, of a value."""
    head = (row.task, row.attempt, row.state, row.capability, row.device, row.action, row.replay)
    return (*head, row.lease, row.result, row.work, row.updated)


def outbox_full(count: int, size: int) -> JournalError:
    """The error that says how many reports, of how many bytes, wait for the coordinator."""
    return JournalError(
        f"{count} reports of {size / 1024**2:.1f} MiB wait for the coordinator; {MAX_OUTBOX} of "
        f"{MAX_OUTBOX_BYTES // 1024**2} MiB are the most",
        code="outbox_full",
        where="outbox",
        cure="bring the coordinator or the broker back",
    )


def _outbox_bytes(connection: sqlite3.Connection) -> int:
    return _count(connection, "SELECT coalesce(sum(length(body)), 0) FROM outbox")


def _count(connection: sqlite3.Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])
