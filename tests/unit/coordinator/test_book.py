"""The book: one commit for a turn, answers after it, and what a disk that refuses leads to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edgepanda.coordinator import book as book_module
from edgepanda.errors import EdgePandaError
from edgepanda.storage import StorageError
from edgepanda.wire import messages
from tests.rig.desk import Desk, at_desk


class Disk:
    """Counts appends, and refuses them on demand."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.appends, self.error = 0, None
        real = desk.ledger.append

        async def append(*args: Any, **kwargs: Any) -> Any:
            self.appends += 1
            if self.error is not None:
                raise self.error
            return await real(*args, **kwargs)

        self.error: Exception | None = None
        monkeypatch.setattr(desk.ledger, "append", append)


async def test_the_changes_of_one_turn_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=9)
        await desk.settle()
        disk = Disk(desk, monkeypatch)
        asked = [desk.ask("task.submit", id=f"task-{n:04}", capability="job.safe") for n in range(5)]
        await desk.settle()
        assert disk.appends == 1
        assert sorted(r.id for r in desk.replies) == sorted(asked)
        assert [event.kind for event in desk.published] == ["submitted"] * 5 + ["leased"] * 5
        assert [event.seq for event in desk.published] == list(range(1, 11))


@pytest.mark.parametrize(
    "error", [StorageError("full", code="storage_full", where="here"), OverflowError("too large for SQLite")]
)
async def test_a_refused_commit_answers_and_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(book_module, "PAUSE", 0.01)
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        disk = Disk(desk, monkeypatch)
        disk.error = error
        desk.say(messages.Started, "task-0001")
        code = await desk.submit("task-0002")
        assert code == getattr(error, "code", "internal")
        assert (desk.record("task-0001").standing.state, desk.book.find("task-0002")) == ("leased", None)
        assert desk.acknowledged == []
        disk.error = None
        await desk.submit("task-0002")
        assert (desk.state("task-0002"), desk.book.problem) == ("leased", None)
        assert desk.ledger.verify().ok


async def test_what_came_during_the_refused_commit_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "PAUSE", 0.01)
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.settle()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def append(*_: Any, **__: Any) -> Any:
            await gate
            raise StorageError("full", code="storage_full", where="here")

        monkeypatch.setattr(desk.ledger, "append", append)
        first = desk.ask("task.submit", id="task-0001", capability="job.safe")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = desk.ask("task.submit", id="task-0001", capability="job.safe")  # again, while it is under way
        gate.set_result(None)
        monkeypatch.undo()
        await desk.settle()
        assert {r.id for r in desk.replies if r.error is not None} == {first, second}


async def test_a_full_disk_is_tried_again_after_a_pause_and_not_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "PAUSE", 0.05)
    with at_desk(tmp_path) as desk:
        desk.joins(slots=0)
        await desk.submit("task-0001")
        disk = Disk(desk, monkeypatch)
        disk.error = StorageError("full", code="storage_full", where="here")
        desk.fleet.nodes["n1"].slots = 2
        desk.book.before_flush(desk.leases.match)
        for _ in range(200):
            await asyncio.sleep(0)
        assert disk.appends == 1
        disk.error = None
        await asyncio.sleep(0.1)
        await desk.settle()
        assert desk.state("task-0001") == "leased"


async def test_one_answer_that_cannot_be_given_keeps_back_no_other(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        told: list[str] = []

        def fails() -> None:
            raise RuntimeError

        desk.book.before_flush(fails)
        desk.book.then(fails)
        desk.book.then(lambda: told.append("told"))
        await desk.settle()
        assert told == ["told"]


async def test_who_waits_is_answered_with_what_the_ledger_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that began before a failed commit must not tell of what never was."""
    monkeypatch.setattr(book_module, "PAUSE", 0.01)
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        waiting = desk.ask("task.wait", id="task-0001", timeout=0.2)
        disk = Disk(desk, monkeypatch)
        disk.error = StorageError("full", code="storage_full", where="here")
        desk.say(messages.Started, "task-0001")
        await desk.settle()
        disk.error = None
        assert not [r for r in desk.replies if r.id == waiting]
        await asyncio.sleep(0.25)
        await desk.settle()
        assert next(r.result["state"] for r in desk.replies if r.id == waiting) == "leased"


async def test_a_change_that_the_table_does_not_know_leaves_no_trace(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        before = desk.record("task-0001"), desk.ledger.head
        assert await desk.answer("task.review", id="task-0001", verdict="accept") == "invalid_state"
        assert (desk.record("task-0001"), desk.ledger.head) == before


async def test_a_counter_that_was_taken_in_a_lost_turn_counts_as_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book_module, "PAUSE", 0.01)
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        disk = Disk(desk, monkeypatch)
        disk.error = EdgePandaError("full", code="storage_full", where="here")
        assert await desk.answer("task.cancel", id="task-0001", counter=7) == "storage_full"
        disk.error = None
        assert (await desk.answer("task.cancel", id="task-0001", counter=7))["state"] == "leased"
        assert await desk.answer("task.cancel", id="task-0001", counter=7) == "counter_used"


async def test_what_remains_of_a_limit_is_kept_once_an_hour_and_with_what_is_written_anyway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=0)
        await desk.submit("task-0001", limits={"deadline": 86_400.0})
        await desk.submit("task-0002")
        disk = Disk(desk, monkeypatch)
        for _ in range(100):
            desk.now += 59.0
            desk.book.keep_limits()
            desk.book.then(lambda: None)  # an answer alone writes nothing
            await desk.settle()
        assert disk.appends == 1
        desk.now += book_module.IN_COMPANY
        await desk.submit("task-0003")
        assert disk.appends == 2
        kept = desk.now
        monkeypatch.undo()
        desk.boot, desk.now = "another", 50.0
        await desk.restart()
        assert desk.record("task-0001").deadlines.end_by == 50.0 + 86_400.0 + 1_000.0 - kept


async def test_a_jump_of_the_wall_clock_changes_no_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=0)
        await desk.submit("task-0001", limits={"deadline": 86_400.0, "valid_for": 7_200.0})
        before = desk.record("task-0001").deadlines
        for year in (1.0, -1.0, 0.0):
            monkeypatch.setattr(desk, "wall_shift", year * 31_536_000.0)
            desk.now += 900.0
            desk.leases.tick()
            desk.book.keep_limits()
            await desk.restart()
            after = desk.record("task-0001").deadlines
            assert (after.begin_by, after.end_by) == (before.begin_by, before.end_by)
            assert desk.state("task-0001") == "queued"
