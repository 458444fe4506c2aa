"""The way of all reports: said until acknowledged, on disk where they must outlive a restart, none lost, none kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.model.task import Finished, Task
from edgepanda.node import journal_rows
from edgepanda.node import reporter as reporter_module
from edgepanda.node.attempt import new_row
from edgepanda.node.journal import Journal, OutboxItem
from edgepanda.node.reporter import Reporter
from edgepanda.storage import StorageError
from edgepanda.wire import messages
from tests.rig.workbench import Bus

DONE = Finished(outcome="succeeded", evidence=({"kind": "seen"},))


class Desk:
    """A reporter on a real journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open()

    def open(self) -> None:
        self.journal, self.bus = Journal.open(self.folder / "journal.db"), Bus()
        self.reporter = Reporter(self.journal, "n1")
        self.reporter.resume(self.bus)  # type: ignore[arg-type]

    def restart(self) -> None:
        self.journal.close()
        self.open()

    def end(self, task: str, *, journaled: bool = False) -> messages.FinishedReport:
        report = messages.FinishedReport(id=new_id(), task=task, attempt=1, seq=1, result=DONE)
        row = new_row(Task(id=task, capability="a.b"), 1, None, "run", "began")
        self.reporter.end(report, row, journaled=journaled)
        return report

    async def settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            await asyncio.gather(*self.reporter._writes, return_exceptions=True)

    async def begin(self, task: str) -> None:
        await self.journal.record(new_row(Task(id=task, capability="a.b"), 1, None, "run", "began"))


async def test_an_end_that_is_acknowledged_at_once_is_never_written(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    report = desk.end("task-0001")
    desk.reporter.acknowledged((report.id,))
    await desk.reporter.flush()
    assert (desk.journal.outbox(), desk.journal.open_attempts(), desk.reporter.unacknowledged) == ([], [], set())
    desk.journal.close()


async def test_an_end_that_waits_is_written_with_its_result_and_closed_by_its_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter_module, "PATIENCE", 0.01)
    desk = Desk(tmp_path)
    report = desk.end("task-0001")
    assert desk.reporter.unwritten("task-0001", 1) == msgspec.json.encode(DONE)
    await asyncio.sleep(0.03)
    await desk.settle()
    row = desk.journal.attempt("task-0001", 1)
    assert row is not None
    assert (row.state, row.result, desk.reporter.unwritten("task-0001", 1)) == (
        "finished",
        msgspec.json.encode(DONE),
        None,
    )
    assert [item.id for item in desk.journal.outbox()] == [report.id]
    desk.reporter.acknowledged((report.id,))
    await desk.settle()
    assert (desk.journal.outbox(), desk.journal.open_attempts()) == ([], [])
    desk.journal.close()


async def test_an_end_that_nobody_can_hear_is_written_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.bus.up = False
    report = desk.end("task-0001")
    await desk.settle()
    assert [item.id for item in desk.journal.outbox()] == [report.id]
    desk.journal.close()


async def test_an_acknowledgement_that_meets_the_write_leaves_nothing_behind(tmp_path: Path) -> None:
    for turns in range(6):
        desk = Desk(tmp_path / str(turns))
        report = desk.end("task-0001")
        desk.reporter._write_late(everything=True)
        for _ in range(turns):
            await asyncio.sleep(0)
        desk.reporter.acknowledged((report.id,))
        await desk.settle()
        assert (desk.journal.outbox(), desk.journal.open_attempts()) == ([], [])
        desk.journal.close()


async def test_a_journaled_end_is_said_again_after_a_restart_until_it_is_acknowledged(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.begin("task-0001")
    report = desk.end("task-0001", journaled=True)
    await desk.settle()
    for _ in range(2):
        desk.restart()
        assert desk.bus.said == [report]
        assert desk.reporter.unacknowledged == {("task-0001", 1)}
    desk.reporter.acknowledged((report.id,))
    await desk.settle()
    desk.restart()
    assert (desk.bus.said, desk.reporter.unacknowledged) == ([], set())
    desk.journal.close()


async def test_more_than_a_window_of_reports_all_reach_the_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter_module, "WINDOW", 10)
    desk = Desk(tmp_path)
    for number in range(57):
        await desk.begin(f"task-{number:04}")
        desk.end(f"task-{number:04}", journaled=True)
    await desk.settle()
    desk.restart()
    assert len(desk.bus.pending) <= 20
    heard: list[str] = []
    while desk.bus.pending:
        some = list(desk.bus.pending)[:7]
        heard += [desk.bus.pending[body_id].task for body_id in some]  # type: ignore[attr-defined]
        desk.reporter.acknowledged(tuple(some))
        await desk.settle()
    assert heard == [f"task-{number:04}" for number in range(57)]
    assert desk.journal.outbox() == []
    desk.journal.close()


async def test_what_the_bus_cannot_take_now_is_said_when_it_can(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.begin("task-0001")
    first = desk.end("task-0000")
    desk.bus.refuses = EdgePandaError("too much waits", code="queue_full", where="here")
    second = desk.end("task-0001", journaled=True)
    await desk.settle()
    assert desk.reporter.unacknowledged == {("task-0000", 1), ("task-0001", 1)}
    desk.bus.refuses = None
    desk.reporter.acknowledged((first.id,))
    assert desk.bus.said == [first, second]
    desk.journal.close()


async def test_an_entry_of_the_outbox_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.journal.record(outbox=[OutboxItem("bad-1", "t", b"{"), OutboxItem("bad-2", "t", b'{"type":"nothing"}')])
    await desk.begin("task-0001")
    report = desk.end("task-0001", journaled=True)
    await desk.settle()
    desk.restart()
    assert desk.bus.said == [report]
    await desk.settle()
    assert [item.id for item in desk.journal.outbox()] == [report.id]
    desk.journal.close()


async def test_a_full_disk_is_shown_and_the_report_goes_out_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)

    async def full(*_: object, **__: object) -> None:
        raise StorageError("full", code="storage_full", where="here")

    monkeypatch.setattr(desk.journal, "record_finished", full)
    report = desk.end("task-0001", journaled=True)
    await desk.settle()
    assert desk.reporter.problem is not None
    assert (desk.reporter.problem.code, desk.bus.said) == ("storage_full", [report])
    monkeypatch.undo()
    await desk.begin("task-0002")
    desk.end("task-0002", journaled=True)
    await desk.settle()
    assert desk.reporter.problem is None
    desk.journal.close()


async def test_a_full_outbox_lets_nothing_new_begin_and_loses_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_rows, "MAX_OUTBOX", 10)
    desk = Desk(tmp_path)
    reports = []
    for number in range(10):
        await desk.begin(f"task-{number:04}")
        reports.append(desk.end(f"task-{number:04}", journaled=True))
        await desk.settle()
        assert desk.reporter.look() == (number == 8)
    with pytest.raises(EdgePandaError) as caught:
        desk.reporter.check_room()
    assert (caught.value.code, caught.value.where) == ("outbox_full", "outbox")
    assert [record.levelname for record in caplog.records if "no new work" in record.message] == ["ERROR"]
    desk.restart()
    assert (desk.reporter.look(), len(desk.bus.said)) == (True, 10)
    desk.reporter.acknowledged(tuple(report.id for report in reports[:3]))
    await desk.settle()
    assert (desk.reporter.look(), desk.reporter.full, desk.journal.waiting[0]) == (True, None, 7)
    desk.journal.close()
