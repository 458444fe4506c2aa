"""The node's journal: attempts, outbox, tombstones, witness; what is refused and what survives."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepanda.model.head import Head
from edgepanda.node import journal_rows
from edgepanda.node.journal import MOST_NEWEST, AttemptRow, Journal, JournalError, Newest, OutboxItem
from edgepanda.node.journal_rows import MAX_TOMBSTONES, JournalApplier
from edgepanda.storage import StorageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal.open(path, clock=lambda: 50.0)
    yield opened
    opened.close()


def row(task: str = "t1", attempt: int = 1) -> AttemptRow:
    return AttemptRow(
        task=task,
        attempt=attempt,
        state="accepted",
        capability="servo.move",
        device="pan",
        action="move",
        replay="safe",
        lease=b'{"ttl":30}',
        updated=1.0,
    )


def item(name: str) -> OutboxItem:
    return OutboxItem(name, "report", b'{"id":"' + name.encode() + b'"}')


async def finish(journal: Journal, task: str) -> None:
    await journal.record(row(task))
    await journal.record_finished(task, 1, b"{}", item(f"end-{task}"))
    await journal.acknowledge([f"end-{task}"])


def refused(error: pytest.ExceptionInfo[JournalError]) -> str:
    return error.value.code


def test_every_start_is_counted(path: Path) -> None:
    for expected in (1, 2, 3):
        journal = Journal.open(path)
        assert journal.incarnation == expected
        journal.close()


async def test_an_attempt_goes_its_way_and_is_found_after_a_restart(path: Path) -> None:
    journal = Journal.open(path, clock=lambda: 50.0)
    await journal.record(row(), outbox=[item("a")])
    assert journal.attempt("t1", 1) == row()
    await journal.advance("t1", 1, "starting", work="/var/work")
    await journal.advance("t1", 1, "began", outbox=[item("b")])
    journal.close()
    journal = Journal.open(path)
    (found,) = journal.open_attempts()
    assert (found.state, found.work, found.updated, found.lease) == ("began", "/var/work", 50.0, b'{"ttl":30}')
    assert [(one.id, one.topic) for one in journal.outbox()] == [("a", "report"), ("b", "report")]
    await journal.record_finished("t1", 1, b'{"ok":1}', item("end"))
    assert [one.id for one in journal.outbox()] == ["a", "b", "end"]
    await journal.acknowledge(["a", "end", "unknown"])
    assert [one.id for one in journal.outbox()] == ["b"]
    assert journal.open_attempts() == []
    found = journal.attempt("t1", 1)
    assert found is not None
    assert (found.state, found.result) == ("acked", b'{"ok":1}')
    journal.close()


async def test_a_second_lease_of_an_attempt_is_refused_for_ever(path: Path) -> None:
    journal = Journal.open(path)
    both = await asyncio.gather(journal.record(row()), journal.record(row()), return_exceptions=True)
    assert both[0] is None
    assert isinstance(both[1], JournalError)
    await journal.record(row(attempt=2))
    await finish(journal, "t2")
    journal.close()
    journal = Journal.open(path)
    for known in (row(), row("t2")):
        with pytest.raises(JournalError) as caught:
            await journal.record(known)
        assert refused(caught) == "journal_duplicate"
    journal.close()


async def test_an_attempt_never_goes_back(journal: Journal) -> None:
    await journal.record(row())
    await journal.advance("t1", 1, "began")
    await journal.advance("t1", 1, "began")
    with pytest.raises(JournalError) as caught:
        await journal.advance("t1", 1, "permitted")
    assert refused(caught) == "journal_order"
    with pytest.raises(JournalError) as caught:
        await journal.advance("t1", 2, "began")
    assert refused(caught) == "journal_unknown"
    await finish(journal, "t2")
    with pytest.raises(JournalError) as caught:
        await journal.advance("t2", 1, "finished")
    assert refused(caught) == "journal_unknown"
    found = journal.attempt("t1", 1)
    assert found is not None
    assert found.state == "began"


async def test_one_refusal_leaves_what_came_with_it_whole(journal: Journal) -> None:
    outcomes = await asyncio.gather(
        journal.record(row("t1")),
        journal.advance("nothing", 1, "began", outbox=[item("never")]),
        journal.record_finished("t1", 1, b"{}", item("end")),
        journal.record(outbox=[item("more")]),
        journal.acknowledge(["end"]),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), JournalError, *[type(None)] * 3]
    assert [one.id for one in journal.outbox()] == ["more"]
    assert journal.open_attempts() == []


async def test_the_outbox_keeps_its_order_and_one_of_each(journal: Journal) -> None:
    names = [f"i{n}" for n in (5, 3, 9, 1, 7)]
    await journal.record(outbox=list(map(item, names)))
    await journal.record(outbox=[OutboxItem("i3", "report", b"another"), item("i0")])
    assert [one.id for one in journal.outbox()] == [*names, "i0"]
    assert journal.outbox()[1].body == item("i3").body
    third = journal.outbox(limit=3)[-1]
    assert [one.id for one in journal.outbox(after=third.seq)] == ["i1", "i7", "i0"]
    await asyncio.gather(journal.record(outbox=[item("i3")]), journal.acknowledge(["i3"]))
    await journal.acknowledge(names)
    await journal.record(outbox=[item("i8")])
    assert [one.id for one in journal.outbox()] == ["i0", "i8"]


async def test_a_full_outbox_says_so(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_rows, "MAX_OUTBOX", 2)
    await journal.record(outbox=[item("a"), item("b")])
    with pytest.raises(JournalError) as caught:
        await journal.record(outbox=[item("c")])
    assert refused(caught) == "outbox_full"
    await journal.acknowledge(["a"])
    await journal.record(outbox=[item("c")])
    assert [one.id for one in journal.outbox()] == ["b", "c"]


async def test_the_bytes_of_the_outbox_are_bounded_and_counted_over_a_restart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(item("a").body)
    journal = Journal.open(path)
    await journal.record(outbox=[item("a"), item("b")])
    await journal.record(outbox=[OutboxItem("a", "report", b"x" * 500), item("c")])  # "a" stays as it is
    assert journal.waiting == (3, 3 * size)
    await journal.acknowledge(["b", "nobody's"])
    assert journal.waiting == (2, 2 * size)
    monkeypatch.setattr(journal_rows, "MAX_OUTBOX_BYTES", 2 * size)
    with pytest.raises(JournalError) as caught:
        await journal.record(outbox=[item("d")])
    assert refused(caught) == "outbox_full"
    journal.close()
    again = Journal.open(path)
    assert again.waiting == (2, 2 * size)
    again.close()


async def test_the_newest_head_is_kept_with_the_next_commit(path: Path) -> None:
    journal = Journal.open(path)
    await journal.note_coordinator("L", 1)
    await journal.record(outbox=[item("a"), item("b")])
    await journal.acknowledge(["a"], Head("L", 7, "h7"))
    await journal.acknowledge(["b"], Head("L", 5, "h5"))
    await journal.acknowledge([], Head("L", 9, "h9"))
    await journal.acknowledge([], Head("other", 50, "x"))
    assert journal.witness() == Head("L", 9, "h9")
    journal.close()
    journal = Journal.open(path)
    assert journal.witness() == Head("L", 7, "h7")
    await journal.acknowledge([], Head("L", 9, "h9"))
    await journal.record(row())
    journal.close()
    journal = Journal.open(path)
    assert (journal.witness(), journal.witness("none")) == (Head("L", 9, "h9"), None)
    journal.close()


async def test_an_older_or_another_coordinator_is_refused(path: Path) -> None:
    journal = Journal.open(path)
    assert (journal.ledger, journal.epoch, journal.witness()) == (None, 0, None)
    await journal.note_coordinator("L", 4)
    journal.close()
    journal = Journal.open(path)
    await journal.note_coordinator("L", 4)
    with pytest.raises(JournalError) as caught:
        await journal.note_coordinator("L", 3)
    assert refused(caught) == "epoch_stale"
    with pytest.raises(JournalError) as caught:
        await journal.note_coordinator("M", 9)
    assert refused(caught) == "ledger_foreign"
    await journal.accept_ledger("M")
    await journal.note_coordinator("M", 1)
    assert (journal.ledger, journal.epoch) == ("M", 1)
    journal.close()


async def test_cancels_before_their_lease_are_remembered_and_bounded(path: Path) -> None:
    journal = Journal.open(path)
    await asyncio.gather(*[journal.bury(f"t{n}", 1) for n in range(MAX_TOMBSTONES + 20)])
    await journal.bury("t500", 1)
    assert journal.is_buried("t500", 1)
    assert not journal.is_buried("t500", 2)
    journal.close()
    journal = Journal.open(path)
    assert [journal.is_buried(f"t{n}", 1) for n in (19, 20, MAX_TOMBSTONES + 19)] == [False, True, True]
    journal.close()


async def test_what_was_acknowledged_is_bounded_but_never_within_the_time_of_a_lease(path: Path) -> None:
    now = [0.0]
    journal = Journal.open(path)
    journal._applier = JournalApplier(keep=5, clock=lambda: now[0])
    for n in range(12):
        await finish(journal, f"a{n}")
    assert journal.attempt("a0", 1) is not None
    now[0] = 200.0
    await finish(journal, "b0")
    assert [n for n in range(12) if journal.attempt(f"a{n}", 1)] == [8, 9, 10, 11]
    assert journal.attempt("b0", 1) is not None
    await journal.record(row("open"))
    for n in range(1, 9):
        now[0] += 200.0
        await finish(journal, f"b{n}")
    assert [one.task for one in journal.open_attempts()] == ["open"]
    assert journal._store.read("SELECT count(*) FROM attempts") == [(6,)]
    journal.close()


async def test_a_full_disk_refuses_and_then_goes_on(journal: Journal) -> None:
    await journal.record(row())
    await journal._store.write(_no_more_pages)
    with pytest.raises(StorageError) as caught:
        await journal.record_finished("t1", 1, b"x" * 100_000, item("end"))
    assert caught.value.code == "storage_full"
    assert journal.outbox() == []
    await journal.record_finished("t1", 1, b"{}", item("end"))
    await journal.acknowledge(["end"])
    assert journal.open_attempts() == []


async def test_a_fact_that_could_not_be_kept_is_written_when_it_comes_again(journal: Journal) -> None:
    await journal._store.write(_no_more_pages)
    with pytest.raises(StorageError):
        await journal.set_meta({"large": "x" * 100_000, "small": "1"})
    assert journal.meta("small") == "1"
    await journal.set_meta({"small": "1"})
    assert journal._store.read("SELECT value FROM meta WHERE key = 'small'") == [("1",)]


def _no_more_pages(connection) -> None:
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 1}").fetchone()


async def test_an_idle_journal_writes_nothing(journal: Journal, path: Path) -> None:
    await journal.note_coordinator("L", 1)
    await journal.bury("t", 1)
    log = path.with_name("journal.db-wal")
    before = log.stat()
    for height in range(20):
        await journal.note_coordinator("L", 1)
        await journal.acknowledge([], Head("L", height, "h"))
        await journal.bury("t", 1)
        await journal.set_meta({"epoch": "1"})
    after = log.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_look_ups_have_their_index(journal: Journal) -> None:
    for sql, index in (
        ("SELECT lease FROM attempts WHERE task = 't' AND attempt = 1", "sqlite_autoindex_attempts_1"),
        ("SELECT lease FROM attempts WHERE state <> 'acked' ORDER BY born", "attempts_open"),
        ("SELECT born FROM attempts WHERE state = 'acked' ORDER BY born LIMIT 1", "attempts_acked"),
        ("SELECT body FROM outbox WHERE seq > 3 ORDER BY seq LIMIT 1", "PRIMARY KEY"),
    ):
        plan = [step[3] for step in journal._store.read(f"EXPLAIN QUERY PLAN {sql}")]
        assert len(plan) == 1
        assert index in plan[0]


KILLED = """
import asyncio, os, sys
from edgepanda.node.journal import AttemptRow, Journal, OutboxItem
async def lane(journal, lane):
    for n in range(10**6):
        task = f"l{lane}-{n}"
        await journal.record(AttemptRow(task=task, attempt=1, state="accepted", capability="a.b", device=None,
                                        action="x", replay="unsafe", lease=b"{}"))
        await journal.advance(task, 1, "began")
        os.write(1, f"began {task}\\n".encode())
        await journal.record_finished(task, 1, b"{}", OutboxItem(task, "report", b"{}"))
        os.write(1, f"finished {task}\\n".encode())
async def main():
    journal = Journal.open(sys.argv[1])
    await asyncio.gather(*[lane(journal, number) for number in range(4)])
asyncio.run(main())
"""


def test_after_a_kill_it_is_known_what_had_begun(path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(200)]
    child.kill()
    lines += child.stdout.readlines()
    child.wait()
    child.stdout.close()
    journal = Journal.open(path)
    waiting = {one.id for one in journal.outbox(limit=10**6)}
    for line in lines:
        if not line.endswith("\n"):
            continue
        word, task = line.split()
        found = journal.attempt(task, 1)
        assert found is not None
        assert found.state in ("began", "finished")
        if word == "finished":
            assert found.state == "finished"
            assert task in waiting
    journal.close()


# the newest command of each device


async def test_the_newest_command_of_a_device_goes_with_the_next_commit(path: Path, journal: Journal) -> None:
    size = path.with_name(path.name + "-wal").stat().st_size
    journal.note_newest("pan", Newest(7, 5))
    assert path.with_name(path.name + "-wal").stat().st_size == size
    await journal.bury("t1", 1)
    journal.note_newest("tilt", Newest(8))  # lost with the process
    journal._store.close()
    again = Journal.open(path)
    try:
        assert again.newest == {"pan": Newest(7, 5)}
        size = path.with_name(path.name + "-wal").stat().st_size
        await again.keep_newest()  # nothing is new
        assert path.with_name(path.name + "-wal").stat().st_size == size
    finally:
        again.close()


async def test_a_refused_commit_keeps_the_newest_command_for_the_next(path: Path, journal: Journal) -> None:
    journal.note_newest("pan", Newest(7))
    with pytest.raises(JournalError):
        await journal.advance("nobody", 1, "finished")
    journal.close()
    again = Journal.open(path)
    assert again.newest == {"pan": Newest(7)}
    again.close()


@pytest.mark.parametrize("text", ["", "{", '{"of":{"pan":"x"}}', '{"of":[]}'])
async def test_what_cannot_be_read_of_it_keeps_nobody_from_starting(path: Path, journal: Journal, text: str) -> None:
    await journal.set_meta({"newest": text})
    journal.close()
    again = Journal.open(path)
    assert again.newest == {}
    again.close()


def test_of_many_devices_the_newest_thousand_are_kept(journal: Journal) -> None:
    for number in range(MOST_NEWEST + 5):
        journal.note_newest(f"d{number}", Newest(number))
    assert (len(journal.newest), next(iter(journal.newest))) == (MOST_NEWEST, "d5")
