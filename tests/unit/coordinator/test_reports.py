"""Reports: what counts, what only repeats, what is recorded and changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.model.task import Finished, Task
from edgepanda.wire import messages
from tests.rig.desk import Desk, at_desk

DONE = Finished(outcome="succeeded", evidence=({"kind": "seen"},))


def direct(task: str = "task-0009", **fields: Any) -> Task:
    return msgspec.convert({"id": task, "capability": "job.unsafe", "replay": "unsafe", **fields}, Task)


async def running(desk: Desk, task: str = "task-0001", capability: str = "job.safe", **rest: Any) -> None:
    if not desk.fleet.nodes:
        desk.joins(slots=9)
    await desk.submit(task, capability, **rest)
    desk.say(messages.Starting if capability == "job.unsafe" else messages.Started, task)
    await desk.settle()


async def test_an_unsafe_attempt_gets_its_permit_after_the_commit_and_the_same_one_again(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", "job.unsafe")
        starting = desk.say(messages.Starting, "task-0001")
        assert desk.bodies(messages.Permit) == []
        await desk.settle()
        assert [(p.task, p.attempt, p.head) for p in desk.bodies(messages.Permit)] == [
            ("task-0001", 1, desk.ledger.head)
        ]
        height = desk.ledger.head.height
        desk.reports.take(starting, "n1")
        await desk.settle()
        assert (len(desk.bodies(messages.Permit)), desk.ledger.head.height) == (2, height)
        assert starting.id not in desk.acknowledged


async def test_a_starting_that_a_later_report_has_overtaken_still_gets_its_permit(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", "job.unsafe")
        desk.say(messages.Accepted, "task-0001", seq=9)
        desk.say(messages.Starting, "task-0001", seq=8)
        await desk.settle()
        assert len(desk.bodies(messages.Permit)) == 1


@pytest.mark.parametrize("ended", ["uncertain", "queued"])
async def test_no_permit_once_the_lease_is_lost(tmp_path: Path, ended: str) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", "job.unsafe")
        starting = msgspec.convert({"id": "s", "task": "task-0001", "attempt": 1, "seq": 5}, messages.Starting)
        if ended == "uncertain":
            desk.reports.take(starting, "n1")
        desk.now += 1_000.0
        desk.fleet.nodes["n1"].online = False
        desk.leases.tick()
        await desk.settle()
        desk.sent.clear()
        desk.reports.take(starting, "n1")
        await desk.settle()
        assert desk.state("task-0001") == ended
        assert desk.bodies(messages.Permit) == []


async def test_an_end_without_a_permit_changes_nothing(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", "job.unsafe")
        report = desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        assert (desk.state("task-0001"), desk.kinds("task-0001")[-1]) == ("leased", "ignored")
        assert report.id in desk.acknowledged


async def test_a_safe_end_shows_its_start(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        record = desk.record("task-0001")
        assert (str(record.standing.state), record.standing.runs, record.result) == ("succeeded", 1, DONE)


@pytest.mark.parametrize(
    ("result", "state", "code"),
    [
        (DONE, "waiting_review", ""),
        (Finished(outcome="succeeded"), "failed", "no_evidence"),
        (Finished(outcome="failed", code="limit"), "failed", "limit"),
        (
            msgspec.convert(
                {
                    "outcome": "succeeded",
                    "evidence": [{}],
                    "answers": [{"criterion": "so", "met": True, "evidence": "x"}],
                },
                Finished,
            ),
            "succeeded",
            "",
        ),
    ],
)
async def test_success_needs_evidence_and_answers(tmp_path: Path, result: Finished, state: str, code: str) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk, criteria=["so"])
        desk.say(messages.FinishedReport, "task-0001", result=result)
        await desk.settle()
        assert (desk.state("task-0001"), desk.record("task-0001").code) == (state, code)


async def test_a_second_started_of_one_attempt_is_no_news_and_no_reason_to_stop_it(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk)
        height = desk.ledger.head.height
        report = desk.say(messages.Started, "task-0001")
        await desk.settle()
        assert desk.bodies(messages.Cancel) == []
        assert (desk.ledger.head.height, report.id in desk.acknowledged) == (height, True)


async def test_a_retired_fence_is_recorded_once_and_changes_nothing(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk)
        desk.now += 1_000.0
        desk.fleet.nodes["n1"].online = False
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-0001") == "queued"
        report = desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        height = desk.ledger.head.height
        for _ in range(3):
            desk.reports.take(report, "n1")
            await desk.settle()
        await desk.restart()
        desk.reports.take(report, "n1")
        await desk.settle()
        assert (desk.state("task-0001"), desk.ledger.head.height) == ("queued", height)
        assert desk.kinds("task-0001")[-1] == "ignored"


async def test_nobody_reports_for_another_node_nor_hides_its_reports(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk, capability="job.unsafe")
        desk.say(messages.FinishedReport, "task-0001", node="n2", result=DONE, seq=2**40)
        await desk.settle()
        assert desk.state("task-0001") == "running"
        desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        assert desk.state("task-0001") == "succeeded"


async def test_reports_on_attempts_that_never_were_cannot_fill_the_ledger(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk)
        height = desk.ledger.head.height
        for attempt in range(2, 50):
            desk.say(messages.Accepted, "task-0001", attempt=attempt)
        await desk.settle()
        assert (desk.ledger.head.height, len(desk.record("task-0001").seqs)) == (height, 1)


@pytest.mark.parametrize(("began", "state"), [(True, "uncertain"), (False, "queued")])
async def test_interrupted_says_whether_it_began(tmp_path: Path, began: bool, state: str) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk, capability="job.unsafe")
        desk.fleet.nodes["n1"].online = False
        desk.say(messages.Interrupted, "task-0001", began=began)
        await desk.settle()
        assert desk.state("task-0001") == state


async def test_the_truth_may_come_late(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk, capability="job.unsafe")
        desk.now += 1_000.0
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-0001") == "uncertain"
        desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        assert desk.state("task-0001") == "succeeded"


async def test_a_command_that_a_newer_one_has_replaced_is_not_tried_again(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", limits={"valid_for": 1e6})
        desk.say(messages.Declined, "task-0001", code="superseded")
        await desk.settle()
        assert (desk.state("task-0001"), desk.record("task-0001").code) == ("expired", "superseded")


async def test_a_refusal_for_good_holds_until_the_card_changes_also_over_a_start(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        desk.say(messages.Declined, "task-0001", code="invalid_args")
        desk.now += 100.0
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-0001") == "queued"
        desk.joins(incarnation=2)  # the revision is the same number, the card is not
        await desk.settle()
        assert desk.state("task-0001") == "leased"


async def test_a_cancel_before_the_permit_ends_it(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", "job.unsafe")
        await desk.answer("task.cancel", id="task-0001")
        desk.say(messages.Starting, "task-0001")
        await desk.settle()
        assert desk.state("task-0001") == "cancelled"
        assert (desk.bodies(messages.Permit), desk.bodies(messages.Cancel)[-1].reason) == ([], "fence_retired")


# direct commands


async def test_a_direct_command_is_merged_once(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        report = desk.say(messages.FinishedReport, "task-0009", attempt=0, result=DONE, direct=direct())
        await desk.settle()
        record = desk.record("task-0009")
        assert (str(record.standing.state), record.node, record.result) == ("succeeded", "n1", DONE)
        height = desk.ledger.head.height
        desk.reports.take(report, "n1")
        await desk.restart()
        desk.reports.take(report, "n1")
        await desk.settle()
        assert desk.ledger.head.height == height
        assert desk.acknowledged.count(report.id) == 3


async def test_a_direct_command_of_unknown_outcome_is_uncertain_and_a_person_decides(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        desk.say(messages.Interrupted, "task-0009", attempt=0, began=True, direct=direct())
        await desk.settle()
        assert desk.state("task-0009") == "uncertain"
        await desk.answer("task.resolve", id="task-0009", outcome="failed", because="I looked")
        assert desk.state("task-0009") == "failed"


async def test_a_direct_command_succeeds_only_with_evidence(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        bare = Finished(outcome="succeeded")
        desk.say(messages.FinishedReport, "task-0009", attempt=0, result=bare, direct=direct())
        await desk.settle()
        assert (desk.state("task-0009"), desk.record("task-0009").code) == ("failed", "no_evidence")


async def test_a_direct_command_cannot_be_told_over_another_task(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk)
        height = desk.ledger.head.height
        desk.say(messages.FinishedReport, "task-0009", attempt=0, result=DONE, direct=direct("task-0001"))
        desk.say(messages.FinishedReport, "../../..", attempt=0, result=DONE, direct=direct("../../.."))
        await desk.settle()
        assert (desk.state("task-0001"), desk.ledger.head.height) == ("running", height)
        desk.say(messages.FinishedReport, "task-0001", attempt=0, result=DONE, direct=direct("task-0001"))
        await desk.settle()
        assert desk.state("task-0001") == "running"


async def test_progress_and_output_are_of_the_current_attempt_and_bounded(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await running(desk)
        desk.say(messages.Progress, "task-0001", fraction=0.5, text="half")
        desk.say(messages.Progress, "task-0001", attempt=2, text="wrong")
        lines = tuple(str(number) for number in range(500))
        for attempt in (1, 2):
            output = messages.Output(id="o", task="task-0001", attempt=attempt, stream="stdout", lines=lines)
            desk.reports.output(output)
        live = desk.book.live["task-0001"]
        assert (live.progress, live.output) == ("50% half", list(lines[-200:]))
        assert [(event.kind, event.seq, event.attempt) for event in desk.told] == [("progress", 0, 1), ("output", 0, 1)]
