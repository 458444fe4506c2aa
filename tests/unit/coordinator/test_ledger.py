"""The ledger: what an append keeps, what is refused, what is flat, and what the proof finds."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.coordinator import ledger as ledgers
from edgepanda.coordinator import ledger_rows
from edgepanda.coordinator.ledger import Event, Head, Ledger, NodeRow, TaskRow, _list_query
from edgepanda.coordinator.task_filter import Narrow
from edgepanda.errors import EdgePandaError
from edgepanda.model import states
from edgepanda.storage import StorageError
from edgepanda.wire.counter import MAX_VALUE, WINDOW, check_counter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    opened = Ledger.open(path, clock=lambda: 1000.5)
    yield opened
    opened.close()


def event(kind: str = "submitted", task: str | None = "t1", attempt: int | None = None) -> Event:
    return Event(kind, task, attempt, b'{"k":1}')


def row(task: str = "t1", state: str = "queued", capability: str = "a.b", node: str | None = None) -> TaskRow:
    return TaskRow(task, state, capability, node, 1.5, 2.5, "d" * 64, b'{"s":1}')


async def put(ledger: Ledger, task: str, *states: str, capability: str = "a.b", node: str | None = None) -> None:
    for state in states:
        await ledger.append([event(state, task)], tasks=[row(task, state, capability, node)])


def damage(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_the_ended_states_are_those_of_the_table() -> None:
    assert set(ledger_rows.ENDED) == {str(state) for state in states.ENDED}


async def test_an_append_gives_head_and_numbers_and_is_found_again(path: Path) -> None:
    ledger = Ledger.open(path, clock=lambda: 1000.5)
    start = ledger.head
    assert (start.ledger, start.height) == (ledger.id, 0)
    done = await ledger.append(
        [event(), event("leased", attempt=1)], tasks=[row()], nodes=[NodeRow("n", "k", b"c", 1, 2)]
    )
    assert (done.first, done.at, done.head.height) == (1, 1000.5, 2)
    assert ledger.head == done.head
    more = await ledger.append([event("site", None)])
    assert (more.first, more.head.height) == (3, 3)
    ledger.close()
    again = Ledger.open(path)
    assert (again.id, again.head) == (ledger.id, more.head)
    assert again.task("t1") == row()
    assert again.nodes() == [NodeRow("n", "k", b"c", 1, 2)]
    kept = again.events(task="t1")
    assert [(e.seq, e.at, e.kind, e.attempt, e.payload) for e in kept] == [
        (1, 1000.5, "submitted", None, b'{"k":1}'),
        (2, 1000.5, "leased", 1, b'{"k":1}'),
    ]
    assert [e.seq for e in again.events(after=1, limit=5)] == [2, 3]
    assert again.events(after=2)[0].hash == more.head.hash
    again.close()


async def test_every_start_has_a_higher_epoch(path: Path) -> None:
    for expected in (1, 2, 3):
        ledger = Ledger.open(path)
        assert await ledger.begin_epoch() == ledger.epoch == expected
        ledger.close()


async def test_many_appends_at_once_are_numbered_in_the_order_of_their_calls(ledger: Ledger) -> None:
    done = await asyncio.gather(*[ledger.append([event(task=f"t{n}"), event()]) for n in range(200)])
    assert [one.first for one in done] == list(range(1, 401, 2))
    assert [e.task for e in ledger.events(limit=400)][::2] == [f"t{n}" for n in range(200)]
    assert ledger.verify(witnesses=[one.head for one in done]).ok


async def test_a_failed_append_leaves_head_and_the_next_one_right(ledger: Ledger) -> None:
    before, refused, after = await asyncio.gather(
        ledger.append([event()], tasks=[row()]),
        ledger.append([event(task=None)], tasks=[row("unknown")]),
        ledger.append([event("leased")], tasks=[row(state="leased")]),
        return_exceptions=True,
    )
    assert not isinstance(before, BaseException)
    assert not isinstance(after, BaseException)
    assert (before.head.height, after.head.height) == (1, 2)
    assert isinstance(refused, EdgePandaError)
    assert refused.code == "ledger_no_event"
    assert ledger.head == after.head
    assert ledger.verify().ok


async def _fail(ledger: Ledger) -> None:
    await ledger._store.write(lambda _: 1 / 0)


async def test_an_append_that_is_run_again_for_the_sake_of_another_keeps_its_number(ledger: Ledger) -> None:
    gathered = threading.Event()
    held = ledger._store.write(lambda _: gathered.wait(5))  # so that the next three share a commit
    attempts = [
        asyncio.ensure_future(one)
        for one in (
            ledger.append([event()], tasks=[row()]),
            _fail(ledger),
            ledger.append([event("leased")], tasks=[row(state="leased")]),
        )
    ]
    await asyncio.sleep(0)
    gathered.set()
    await held
    first, failed, second = await asyncio.gather(*attempts, return_exceptions=True)
    assert isinstance(failed, ZeroDivisionError)
    assert not isinstance(first, BaseException)
    assert not isinstance(second, BaseException)
    assert (first.first, second.first) == (1, 2)
    assert ledger.verify(witnesses=[first.head, second.head]).ok


async def test_a_full_disk_takes_an_append_back_and_the_next_one_fits(ledger: Ledger) -> None:
    await put(ledger, "t1", "queued")
    head, counter = ledger.head, ledger.counter("k")
    await ledger._store.write(lambda c: c.execute(f"PRAGMA max_page_count={_pages(c) + 1}").fetchone())
    with pytest.raises(StorageError) as caught:
        await ledger.append([Event("big", "t2", None, b"x" * 100_000)], tasks=[row("t2")], counters=[("k", 5, 1)])
    assert caught.value.code == "storage_full"
    assert (ledger.head, ledger.counter("k"), ledger.task("t2")) == (head, counter, None)
    done = await ledger.append([event("leased")], tasks=[row(state="leased")], counters=[("k", 5, 1)])
    assert (done.first, ledger.counter("k")) == (2, (5, 1))
    assert ledger.verify(witnesses=[head, done.head]).ok


def _pages(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA page_count").fetchone()[0])


async def test_a_task_keeps_its_birth_and_its_digest(ledger: Ledger) -> None:
    await put(ledger, "t1", "queued")
    changed = TaskRow("t1", "leased", "a.b", "n", 99.0, 3.5, "e" * 64, b"{}")
    await ledger.append([event("leased")], tasks=[changed])
    found = ledger.task("t1")
    assert found == TaskRow("t1", "leased", "a.b", "n", 1.5, 3.5, "d" * 64, b"{}")
    await ledger.append([], tasks=[TaskRow("t1", "leased", "a.b", "n", 1.5, 4.5, "d" * 64, b"[]")])
    found = ledger.task("t1")
    assert found is not None
    assert (found.updated, found.record) == (4.5, b"[]")


async def test_counts_and_live_tasks_follow_every_change(ledger: Ledger) -> None:
    await put(ledger, "t1", "queued", "leased", "running", "succeeded")
    await asyncio.gather(put(ledger, "t2", "queued"), put(ledger, "t3", "queued", "uncertain"))
    assert ledger.counts() == {"succeeded": 1, "queued": 1, "uncertain": 1}
    assert [task.id for task in ledger.live_tasks()] == ["t2", "t3"]
    await put(ledger, "t3", "failed")
    assert [task.id for task in ledger.live_tasks()] == ["t2"]


async def test_lists_are_paged_newest_first_under_every_filter(ledger: Ledger) -> None:
    every = [
        (f"t{n:02}", state, f"c.{n % 3}", f"n{n % 2}")
        for n, state in enumerate(["succeeded", "failed", "queued", "running", "expired"] * 8)
    ]
    for task, state, capability, node in every:
        await ledger.append([event(task=task)], tasks=[row(task, state, capability, node)])
    for wanted in (None, ["failed"], ["queued", "expired"], ["running"], ["nonsense"], []):
        for capability in (None, "c.1"):
            for node in (None, "n0"):
                expected = [
                    task
                    for task, state, cap, on in reversed(every)
                    if (wanted is None or state in wanted) and capability in (None, cap) and node in (None, on)
                ]
                assert _pages_of(ledger, wanted, capability, node) == expected


async def test_times_of_a_list_are_those_of_the_events(tmp_path: Path) -> None:
    now = [1000.0]
    ledger = Ledger.open(tmp_path / "timed.db", clock=lambda: now[0])
    for number in range(9):
        now[0] = 1000.0 + number
        await ledger.append([event(task=f"t{number}"), event(task=f"t{number}")], tasks=[row(f"t{number}", "failed")])
    for since, until, expected in ((1003, 1006, "543"), (1007.5, None, "8"), (None, 1001.5, "10"), (2000, 3000, "")):
        for among in (None, ["failed"]):
            page = ledger.list_tasks(states=among, since=since, until=until)
            assert "".join(task.id[1:] for task in page.tasks) == expected
    ledger.close()


async def test_a_narrowed_page_looks_into_so_many_tasks_and_goes_on(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "SCANNED", 10)
    for number in range(35):
        body = b'{"task": {"device": "pan", "labels": {"k": "v"}}}' if number % 16 == 1 else b'{"task": {}}'
        kept = msgspec.structs.replace(row(f"t{number:02}", "failed"), record=body)
        await ledger.append([event(task=f"t{number:02}")], tasks=[kept])
    for narrow in (Narrow(device="pan"), Narrow(labels={"k": "v"})):
        pages, before = [], None
        while not pages or before is not None:
            page = ledger.list_tasks(narrow=narrow, before=before, limit=3)
            pages.append([task.id for task in page.tasks])
            before = page.next
        assert pages == [["t33"], ["t17"], [], ["t01"]]
    assert ledger.list_tasks(narrow=Narrow(labels={"k": "w"}), states=["queued"]).next is None


def _pages_of(ledger: Ledger, states: list[str] | None, capability: str | None, node: str | None) -> list[str]:
    found: list[str] = []
    before: int | None = None
    while True:
        page = ledger.list_tasks(states=states, capability=capability, node=node, before=before, limit=3)
        found += [task.id for task in page.tasks]
        before = page.next
        if before is None:
            return found


@pytest.mark.parametrize("states", [None, ["failed"], ["queued", "failed"]])
@pytest.mark.parametrize("capability", [None, "a.b"])
@pytest.mark.parametrize("node", [None, "n"])
def test_no_list_scans_or_sorts_the_tasks(
    ledger: Ledger, states: list[str] | None, capability: str | None, node: str | None
) -> None:
    sql, args = _list_query(states, capability, node, None, 10)
    for step in _plan(ledger, sql, args):
        if "tasks" in step:
            assert step.startswith("SEARCH tasks USING"), step
    index = {(1, 1): "tasks_both", (1, 0): "tasks_node", (0, 1): "tasks_capability"}.get((bool(node), bool(capability)))
    if index:
        assert any(index in step for step in _plan(ledger, sql, args))


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT id FROM tasks WHERE ended = 0 ORDER BY born", "tasks_live"),
        ("SELECT state FROM tasks WHERE id = 'x'", "sqlite_autoindex_tasks_1"),
        ("SELECT seq FROM chain WHERE task = 'x' AND seq > 5 ORDER BY seq LIMIT 3", "chain_task"),
        ("SELECT seq FROM chain ORDER BY seq DESC LIMIT 1", "chain"),
    ],
)
def test_every_look_up_has_its_index(ledger: Ledger, sql: str, index: str) -> None:
    plan = _plan(ledger, sql, [])
    assert index in plan[0]
    assert not any("TEMP B-TREE" in step for step in plan)


def _plan(ledger: Ledger, sql: str, args: list[object]) -> list[str]:
    return [step[3] for step in ledger._store.read(f"EXPLAIN QUERY PLAN {sql}", args)]


# Counters


@given(st.lists(st.one_of(st.integers(1, 3000), st.integers(MAX_VALUE - 2000, MAX_VALUE)), max_size=60))
def test_a_number_counts_once_and_late_ones_within_the_window_do(values: list[int]) -> None:
    highest, window, used = 0, 0, set()
    for value in values:
        fresh = value not in used and value > highest - WINDOW
        ok, highest, window = check_counter(highest, window, value)
        assert ok == fresh
        used |= {value} if ok else set()
        assert highest == max(used, default=0)
        assert window < 2**WINDOW


@pytest.mark.parametrize("value", [0, -1, MAX_VALUE + 1])
def test_numbers_out_of_range_never_count(value: int) -> None:
    assert check_counter(7, 1, value) == (False, 7, 1)


async def test_a_used_number_stays_used_after_a_restart(path: Path) -> None:
    ledger = Ledger.open(path)
    ok, highest, window = check_counter(*ledger.counter("key"), 1500)
    assert ok
    waiting = asyncio.create_task(ledger.append([], counters=[("key", highest, window)]))
    await asyncio.sleep(0)
    assert not check_counter(*ledger.counter("key"), 1500)[0]  # before the commit too
    await waiting
    ledger.close()
    again = Ledger.open(path)
    assert not check_counter(*again.counter("key"), 1500)[0]
    assert check_counter(*again.counter("key"), 1499)[0]
    again.close()


# The proof


async def filled(path: Path) -> Head:
    ledger = Ledger.open(path)
    for n in range(5):
        await put(ledger, f"t{n}", "queued", "succeeded")
    head = ledger.head
    ledger.close()
    return head


def proof(path: Path, *witnesses: Head) -> tuple[bool, set[str]]:
    ledger = Ledger.open(path, writable=False)
    found = ledger.verify(witnesses=witnesses)
    ledger.close()
    return found.ok, {problem.code for problem in found.problems}


async def test_a_whole_ledger_is_proved_beside_its_live_writer(ledger: Ledger, path: Path) -> None:
    await put(ledger, "t1", "queued", "succeeded")
    beside = Ledger.open(path, writable=False)
    await put(ledger, "t2", "queued")
    found = beside.verify(witnesses=[ledger.head])
    assert (found.ok, found.height, found.witnesses, found.note) == (True, 3, 1, "")
    assert (found.payloads, found.dropped, found.tasks) == (3, 0, 2)
    assert "no witness" in beside.verify().note
    with pytest.raises(StorageError):
        await beside.append([event()])
    beside.close()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE chain SET kind = 'failed' WHERE seq = 4", "chain_changed"),
        ("UPDATE chain SET at = at + 1 WHERE seq = 4", "chain_changed"),
        ("UPDATE chain SET hash = 'text' WHERE seq = 4", "chain_changed"),
        ("DELETE FROM chain WHERE seq = 4", "chain_missing"),
        ("UPDATE payloads SET body = x'7b7d' WHERE seq = 4", "payload_changed"),
        ("UPDATE payloads SET body = 5 WHERE seq = 4", "payload_changed"),
        ("INSERT INTO payloads VALUES (99, x'7b7d')", "payload_stray"),
        ("UPDATE tasks SET seq = 4 WHERE id = 't4'", "task_without_event"),
        ("UPDATE tasks SET id = 'forged' WHERE id = 't4'", "task_without_event"),
    ],
)
async def test_what_was_tampered_with_is_found(path: Path, statement: str, code: str) -> None:
    await filled(path)
    assert proof(path) == (True, set())
    damage(path, statement)
    ok, codes = proof(path)
    assert not ok
    assert code in codes


async def test_exchanged_events_are_found(path: Path) -> None:
    await filled(path)
    damage(
        path,
        "UPDATE chain SET seq = -1 WHERE seq = 4",
        "UPDATE chain SET seq = 4 WHERE seq = 5",
        "UPDATE chain SET seq = 5 WHERE seq = -1",
    )
    assert "chain_changed" in proof(path)[1]


async def test_a_cut_tail_needs_a_witness(path: Path) -> None:
    head = await filled(path)
    damage(
        path,
        "DELETE FROM chain WHERE seq > 8",
        "DELETE FROM payloads WHERE seq > 8",
        "DELETE FROM tasks WHERE id = 't4'",
    )
    assert proof(path) == (True, set())
    assert proof(path, head) == (False, {"chain_shortened"})


async def test_dropped_payloads_leave_the_chain_proved(path: Path) -> None:
    head = await filled(path)
    damage(path, "DELETE FROM payloads WHERE seq <= 6")
    ledger = Ledger.open(path)
    found = ledger.verify(witnesses=[head])
    assert (found.ok, found.payloads, found.dropped) == (True, 4, 6)
    assert ledger.events(limit=1)[0].payload is None
    ledger.close()


async def lived(path: Path) -> None:
    """Tasks whose events say which state they led to, as the coordinator writes them."""
    ledger = Ledger.open(path)
    for task in ("t1", "t2", "t3"):
        for state in ("queued", "leased", "running", "failed"):
            payload = f'{{"state":"{state}"}}'.encode()
            record = TaskRow(task, state, "a.b", None, 1.5, 2.5, "d", f'{{"standing":{payload.decode()}}}'.encode())
            kind = {"queued": "submitted", "running": "started", "failed": "finished"}.get(state, state)
            await ledger.append([Event(kind, task, 1, payload)], tasks=[record])
        await ledger.append([Event("ignored", task, 1, b'{"said":"started"}')], tasks=[record])
    ledger.close()


@pytest.mark.parametrize(
    ("statement", "codes"),
    [
        ("UPDATE tasks SET updated = 9", set()),
        ("UPDATE tasks SET state = 'succeeded' WHERE id = 't2'", {"task_state_changed"}),
        ("UPDATE tasks SET record = replace(record, 'failed', 'succeeded') WHERE id = 't2'", {"task_state_changed"}),
        ("UPDATE tasks SET record = x'00' WHERE id = 't2'", set()),
    ],
)
async def test_a_state_edited_by_hand_is_found(path: Path, statement: str, codes: set[str]) -> None:
    await lived(path)
    assert proof(path) == (True, set())
    damage(path, statement)
    assert proof(path) == (not codes, codes)


async def test_a_state_whose_newest_change_was_dropped_is_not_held_against_an_older_one(path: Path) -> None:
    await lived(path)
    damage(path, "DELETE FROM payloads WHERE seq IN (SELECT seq FROM chain WHERE kind = 'finished')")
    assert proof(path) == (True, set())


KILLED = """
import asyncio, os, sys
from edgepanda.coordinator.ledger import Event, Ledger, TaskRow
async def client(ledger, number):
    for n in range(10**6):
        task = f"c{number}-{n}"
        row = TaskRow(task, "queued", "a.b", None, 1.0, 1.0, "", b"{}")
        done = await ledger.append([Event("submitted", task, None, b"{}")], tasks=[row])
        os.write(1, f"{task} {done.first} {done.head.height} {done.head.hash}\\n".encode())
async def main():
    ledger = Ledger.open(sys.argv[1])
    await asyncio.gather(*[client(ledger, number) for number in range(8)])
asyncio.run(main())
"""


def test_every_answered_append_survives_a_kill(path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(300)]
    child.kill()
    lines += child.stdout.read().splitlines(keepends=True)
    child.wait()
    child.stdout.close()
    answered = [line.decode().split() for line in lines if line.endswith(b"\n")]
    ledger = Ledger.open(path)
    found = ledger.verify(witnesses=[Head(ledger.id, int(height), value) for _, _, height, value in answered])
    assert (found.ok, found.problems) == (True, [])
    for task, first, _, _ in answered:
        assert [e.seq for e in ledger.events(task=task)] == [int(first)]
        assert ledger.task(task) is not None
    asyncio.run(put(ledger, "after", "queued"))
    assert ledger.verify().ok
    ledger.close()
