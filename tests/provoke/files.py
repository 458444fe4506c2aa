"""Errors of what a machine keeps: files, documents, journal, ledger, keys."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import msgspec

from edgepanda import sqlite as sqlite_module
from edgepanda.coordinator import chain
from edgepanda.coordinator.chain import Problem
from edgepanda.coordinator.ledger import Ledger
from edgepanda.documents import DocumentFile, Documents
from edgepanda.errors import EdgePandaError
from edgepanda.model.head import Head
from edgepanda.node import journal_rows
from edgepanda.node.journal import Journal, OutboxItem
from edgepanda.node.socket import LocalSocket
from edgepanda.sqlite import Format, Store
from edgepanda.trust.identity import Identity
from tests.provoke.kit import Here, provokes
from tests.rig.desk import at_desk
from tests.rig.workbench import at_bench

NOTES = Format("notes", 0x4E4F5445, ("CREATE TABLE notes (text TEXT);",))
NOWHERE = Path("/dev/null")


def notes(here: Here) -> Path:
    """A file of notes, closed."""
    path = here.folder / "notes.db"
    Store.open(path, NOTES).close()
    return path


def fill(connection: sqlite3.Connection) -> None:
    """More than the file may have."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 1}").fetchone()
    connection.execute("INSERT INTO notes VALUES (?)", ("x" * 100_000,))


@provokes("storage_full")
def _(here: Here) -> None:
    store = Store.open(notes(here), NOTES)
    try:
        store.write_now(fill)
    finally:
        store.close()


@provokes("storage_refused")
def _(here: Here) -> None:
    store = Store.open(notes(here), NOTES)
    try:
        store.read("SELECT nothing FROM notes")
    finally:
        store.close()


@provokes("storage_readonly")
def _(here: Here) -> None:
    store = Store.open_readonly(notes(here), NOTES)
    try:
        store.write_now(fill)
    finally:
        store.close()


@provokes("storage_unwritable")
def _(_here: Here) -> None:
    Store.open(NOWHERE / "notes.db", NOTES)


@provokes("storage_damaged")
def _(here: Here) -> None:
    path = here.folder / "notes.db"
    path.write_bytes(b"no database at all" * 100)
    Store.open(path, NOTES)


@provokes("storage_locked")
def _(here: Here) -> None:
    first = Store.open(notes(here), NOTES)
    try:
        Store.open(first.path, NOTES)
    finally:
        first.close()


@provokes("storage_newer")
def _(here: Here) -> None:
    path = here.folder / "notes.db"
    Store.open(path, after_steps(NOTES, 2)).close()
    Store.open(path, NOTES)


@provokes("storage_older")
def _(here: Here) -> None:
    Store.open_readonly(notes(here), after_steps(NOTES, 2))


def after_steps(known: Format, versions: int) -> Format:
    """The format after some more steps."""
    return Format(known.name, known.application_id, (*known.steps, *["SELECT 1;"] * (versions - 1)))


@provokes("storage_foreign")
def _(here: Here) -> None:
    path = here.folder / "notes.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE songs (name TEXT)")
    Store.open(path, NOTES)


@provokes("storage_missing")
def _(here: Here) -> None:
    Store.open_readonly(here.folder / "notes.db", NOTES)


@provokes("storage_closed")
def _(here: Here) -> None:
    store = Store.open(notes(here), NOTES)
    store.close()
    store.read("SELECT * FROM notes")


@provokes("storage_busy")
def _(here: Here) -> None:
    here.patch.setattr(sqlite_module, "MAX_QUEUE", 0)
    store = Store.open(notes(here), NOTES)
    try:
        store.write_now(fill)
    finally:
        store.close()


@provokes("document_damaged")
def _(here: Here) -> None:
    path = here.folder / "peers.json"
    path.write_text("{")
    Documents(path)


@provokes("document_newer")
def _(here: Here) -> None:
    path = here.folder / "peers.json"
    path.write_text('{"format": 99, "tables": {}}')
    Documents(path)


@provokes("document_unlocked")
def _(here: Here) -> None:
    DocumentFile(here.folder / "peers.json").write({"peers": {}})


@provokes("journal_duplicate")
async def _(here: Here) -> None:
    with at_bench(here.folder, here.patch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        row = bench.journal.attempt("task-0001", 1)
        assert row is not None
        await bench.journal.record(row)


@provokes("journal_order")
async def _(here: Here) -> None:
    with at_bench(here.folder, here.patch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        await bench.journal.advance("task-0001", 1, "accepted")


@provokes("journal_unknown")
async def _(here: Here) -> None:
    with at_bench(here.folder, here.patch) as bench:
        await bench.journal.advance("task-0001", 1, "began")


@provokes("outbox_full")
async def _(here: Here) -> None:
    here.patch.setattr(journal_rows, "MAX_OUTBOX", 1)
    journal = Journal.open(here.folder / "journal.db")
    try:
        await journal.record(outbox=[OutboxItem("a", "report", b"{}"), OutboxItem("b", "report", b"{}")])
    finally:
        journal.close()


@provokes("socket_unusable")
async def _(_here: Here) -> None:
    await LocalSocket(NOWHERE / "run" / "node.sock", {}).start()


# keys


@provokes("key_unreadable")
def _(here: Here) -> None:
    Identity.load(here.folder / "node.key")


@provokes("key_unwritable")
def _(_here: Here) -> None:
    Identity.load_or_create(NOWHERE / "keys" / "node.key")


@provokes("key_damaged")
def _(here: Here) -> None:
    path = here.folder / "node.key"
    path.touch(mode=0o600)
    Identity.load(path)


@provokes("key_exposed")
def _(here: Here) -> None:
    path = here.folder / "node.key"
    Identity.load_or_create(path)
    path.chmod(0o644)
    Identity.load(path)


# the ledger


def damaged(here: Here, *changes: str) -> str:
    """What `audit verify` says of a ledger with one task, after these changes by a stranger."""
    state = here.folder / ".edgepanda"
    state.mkdir(mode=0o700)

    async def work() -> None:
        with at_desk(state) as desk:
            desk.joins()
            await desk.submit("task-0001")

    asyncio.run(work())
    with sqlite3.connect(state / "ledger.db") as connection:
        for change in changes:
            connection.execute(change)
    code, out, err = here.run("audit", "verify", "--offline", "--config", here.config("[coordinator]\n"))
    assert (code, err) == (1, "")
    return out


for _code, _change in {
    "chain_changed": "UPDATE chain SET kind = 'other' WHERE seq = 2",
    "chain_missing": "DELETE FROM chain WHERE seq = 1",
    "payload_changed": "UPDATE payloads SET body = '{}' WHERE seq = 2",
    "payload_stray": "INSERT INTO payloads (seq, body) VALUES (99, '{}')",
    "task_without_event": "UPDATE tasks SET seq = 99",
    "task_state_changed": "UPDATE tasks SET state = 'succeeded'",
}.items():
    provokes(_code)(lambda here, change=_change: damaged(here, change))


def seen(here: Here, change: Callable[[Head], Head]) -> EdgePandaError:
    """The fault of a ledger with one entry that a witness has seen otherwise."""
    ledger = Ledger.open(here.folder / "ledger.db")
    try:
        asyncio.run(ledger.begin_epoch())
        (problem,) = ledger.verify(witnesses=[change(ledger.head)]).problems
    finally:
        ledger.close()
    return as_error(problem)


def as_error(problem: Problem) -> EdgePandaError:
    """A fault of the ledger, as `audit verify` shows it."""
    return EdgePandaError(problem.message, code=problem.code, where=f"entry {problem.seq}")


for _code, _other in {
    "chain_rewritten": {"hash": "00" * 32},
    "chain_shortened": {"height": 9},
    "chain_foreign": {"ledger": "another"},
}.items():
    provokes(_code)(lambda here, other=_other: seen(here, lambda head: msgspec.structs.replace(head, **other)))


@provokes("chain_reordered")
def _(_here: Here) -> EdgePandaError:
    first = chain.Link(2, 0, "epoch", None, None, "", "")
    report = chain.verify([first, msgspec.structs.replace(first, seq=1)], "ledger")
    return as_error(next(problem for problem in report.problems if problem.code == "chain_reordered"))


@provokes("ledger_no_event")
async def _(here: Here) -> None:
    with at_desk(here.folder) as desk:
        desk.joins()
        await desk.submit("task-0001")
        row = desk.ledger.task("task-0001")
        assert row is not None
        await desk.ledger.append([], tasks=[msgspec.structs.replace(row, id="task-0002")])
