"""What the ledger keeps: its values, its tables, and the writing of many appends in a few statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from edgepanda.coordinator import chain
from edgepanda.coordinator.counters import window_to_bytes
from edgepanda.model.head import Head
from edgepanda.sqlite import Format, Row, put_rows
from edgepanda.storage import StorageError

ENDED = ("succeeded", "failed", "timed_out", "cancelled", "expired")

_STEP_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('ledger', lower(hex(randomblob(16)))), ('epoch', '0');
CREATE TABLE chain (
    seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, task TEXT, attempt INTEGER,
    digest BLOB NOT NULL, hash BLOB NOT NULL);
CREATE INDEX chain_task ON chain (task, seq) WHERE task IS NOT NULL;
CREATE TABLE payloads (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE tasks (
    born INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, state TEXT NOT NULL, ended INTEGER NOT NULL,
    capability TEXT NOT NULL, node TEXT, created REAL NOT NULL, updated REAL NOT NULL, digest TEXT NOT NULL,
    seq INTEGER NOT NULL, record BLOB NOT NULL);
-- What has ended is indexed once, when it ends; what lives is few, and its changes touch one small index.
CREATE INDEX tasks_live ON tasks (born) WHERE ended = 0;
CREATE INDEX tasks_state ON tasks (state, born) WHERE ended = 1;
CREATE INDEX tasks_capability ON tasks (capability, state, born) WHERE ended = 1;
CREATE INDEX tasks_node ON tasks (node, state, born) WHERE ended = 1;
CREATE INDEX tasks_both ON tasks (node, capability, state, born) WHERE ended = 1;
CREATE TABLE counts (state TEXT PRIMARY KEY, tasks INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER count_new AFTER INSERT ON tasks BEGIN
    INSERT INTO counts VALUES (new.state, 1) ON CONFLICT (state) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TRIGGER count_change AFTER UPDATE OF state ON tasks WHEN old.state <> new.state BEGIN
    UPDATE counts SET tasks = tasks - 1 WHERE state = old.state;
    INSERT INTO counts VALUES (new.state, 1) ON CONFLICT (state) DO UPDATE SET tasks = tasks + 1;
END;
CREATE TABLE counters (key TEXT PRIMARY KEY, highest INTEGER NOT NULL, window BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE nodes (
    name TEXT PRIMARY KEY, kid TEXT NOT NULL, card BLOB, revision INTEGER NOT NULL, incarnation INTEGER NOT NULL)
    WITHOUT ROWID;
"""

FORMAT = Format("ledger", 0x45504C31, (_STEP_1,))

_TASK_COLUMNS = "born, id, state, ended, capability, node, created, updated, digest, seq, record"
_TASK_CHANGES = ", ".join(
    f"{name} = excluded.{name}" for name in ("state", "ended", "capability", "node", "updated", "seq", "record")
)


class Event(msgspec.Struct, frozen=True):
    """Something that happened, to be appended. `payload` is JSON; its SHA-256 goes into the chain."""

    kind: str
    task: str | None
    attempt: int | None
    payload: bytes


class TaskRow(msgspec.Struct):
    """A task's current state. Times are wall seconds for people; `digest` is of what was submitted.

    `record` is JSON that the ledger does not look into. Identity, `created` and `digest` stay as first written.
    """

    id: str
    state: str
    capability: str
    node: str | None
    created: float
    updated: float
    digest: str
    record: bytes


class NodeRow(msgspec.Struct):
    """The last that is known of a node: its key, its card (signed bytes), the card's revision, its count of starts."""

    name: str
    kid: str
    card: bytes | None
    revision: int
    incarnation: int


class Append(msgspec.Struct, frozen=True):
    """What one append writes; all of it or nothing. `at` is in milliseconds."""

    at: int
    events: Sequence[Event]
    tasks: Sequence[TaskRow] = ()
    counters: Sequence[tuple[str, int, int]] = ()
    nodes: Sequence[NodeRow] = ()
    epoch: int | None = None


class Appended(msgspec.Struct, frozen=True):
    """The head after an append, the sequence number of its first event, and the events' time in wall seconds."""

    head: Head
    first: int
    at: float


def read_tail(connection: sqlite3.Connection, ledger: str) -> Head:
    """The head as the tables have it."""
    row = connection.execute("SELECT seq, hash FROM chain ORDER BY seq DESC LIMIT 1").fetchone()
    return Head(ledger, row[0], row[1].hex()) if row else Head(ledger, 0, chain.genesis(ledger))


class LedgerApplier:
    """Writes appends on the store's writer thread. Knows the chain's end, and reads it again after a rollback."""

    def __init__(self, ledger: str, head: Head) -> None:
        self.head = head  # as committed; replaced whole, so any thread may look
        self._ledger = ledger
        self._tail: Head | None = head

    def apply(self, connection: sqlite3.Connection, items: Sequence[Append]) -> list[Appended]:
        """Number and hash the events in the order of the appends, and write everything with few statements."""
        batch = _Batch(self._tail or read_tail(connection, self._ledger))
        results = [batch.add(item) for item in items]
        batch.write(connection)
        self._tail = batch.tail
        return results

    def committed(self) -> None:
        """Publish the new head."""
        if self._tail is not None:
            self.head = self._tail

    def rolled_back(self) -> None:
        """Forget the chain's end: the next append reads it."""
        self._tail = None


class _Batch:
    """The rows of several appends; of what is written twice, the last counts."""

    def __init__(self, tail: Head) -> None:
        self.tail = tail
        self.links: list[Row] = []
        self.payloads: list[Row] = []
        self.tasks: dict[str, tuple[TaskRow, int, int]] = {}  # first and last event
        self.changes: list[TaskRow] = []  # records that change without an event
        self.counters: dict[str, Row] = {}
        self.nodes: dict[str, Row] = {}
        self.epoch: int | None = None

    def add(self, item: Append) -> Appended:
        first = self.tail.height + 1
        last_of = self._add_events(item)
        for task in item.tasks:
            self._add_task(task, last_of.get(task.id))
        for key, highest, window in item.counters:
            self.counters[key] = (key, highest, window_to_bytes(window))
        for node in item.nodes:
            self.nodes[node.name] = (node.name, node.kid, node.card, node.revision, node.incarnation)
        if item.epoch is not None:
            self.epoch = item.epoch
        return Appended(self.tail, first, item.at / 1000)

    def _add_events(self, item: Append) -> dict[str, int]:
        last_of: dict[str, int] = {}
        seq, value = self.tail.height, self.tail.hash
        for event in item.events:
            seq += 1
            digest = chain.digest(event.payload)
            value = chain.link(value, seq, item.at, event.kind, event.task, event.attempt, digest)
            self.links.append(
                (seq, item.at, event.kind, event.task, event.attempt, bytes.fromhex(digest), bytes.fromhex(value))
            )
            self.payloads.append((seq, event.payload))
            if event.task is not None:
                last_of[event.task] = seq
        self.tail = Head(self.tail.ledger, seq, value)
        return last_of

    def _add_task(self, task: TaskRow, seq: int | None) -> None:
        known = self.tasks.get(task.id)
        if known is not None:
            self.tasks[task.id] = (task, known[1], seq or known[2])
        elif seq is not None:
            self.tasks[task.id] = (task, seq, seq)
        else:
            self.changes.append(task)

    def write(self, connection: sqlite3.Connection) -> None:
        put_rows(connection, "INSERT INTO chain VALUES", self.links)
        put_rows(connection, "INSERT INTO payloads VALUES", self.payloads)
        for task in self.changes:
            _change_task(connection, task)
        put_rows(
            connection,
            f"INSERT INTO tasks ({_TASK_COLUMNS}) VALUES",
            [_task_values(*entry) for entry in self.tasks.values()],
            f"ON CONFLICT (id) DO UPDATE SET {_TASK_CHANGES}",
        )
        put_rows(connection, "INSERT OR REPLACE INTO counters VALUES", list(self.counters.values()))
        put_rows(connection, "INSERT OR REPLACE INTO nodes VALUES", list(self.nodes.values()))
        if self.epoch is not None:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (str(self.epoch),))


def _task_values(task: TaskRow, first: int, last: int) -> Row:
    ended = int(task.state in ENDED)
    head = (first, task.id, task.state, ended, task.capability, task.node)
    return (*head, task.created, task.updated, task.digest, last, task.record)


def _change_task(connection: sqlite3.Connection, task: TaskRow) -> None:
    changed = connection.execute(
        "UPDATE tasks SET state = ?, ended = ?, capability = ?, node = ?, updated = ?, record = ? WHERE id = ?",
        (task.state, int(task.state in ENDED), task.capability, task.node, task.updated, task.record, task.id),
    )
    if changed.rowcount != 1:
        raise StorageError(
            "a new task needs an event of its own", code="ledger_no_event", where=task.id, cure="append both together"
        )
