"""What failed for now is tried again after a pause, and what crashes its node is not tried for ever."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edgepanda.model.task import LONGEST_BACKOFF, Finished, backoff
from edgepanda.wire import messages
from tests.rig.desk import Desk, at_desk, card

SILENT = Finished(outcome="failed", code="io", message="it does not answer")


async def fails(desk: Desk, attempt: int, result: Finished = SILENT) -> None:
    desk.say(messages.FinishedReport, "task-0001", attempt=attempt, result=result)
    await desk.settle()


async def passes(desk: Desk, seconds: float) -> None:
    desk.now += seconds
    desk.leases.tick()
    await desk.settle()


async def test_a_safe_task_that_fails_for_now_is_tried_again_after_pauses_that_double(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        for attempt, pause in ((1, 1.0), (2, 2.0)):
            await fails(desk, attempt)
            record = desk.record("task-0001")
            assert (record.standing.state, record.code, record.result) == ("queued", "io", None)
            assert (
                record.reason
                == f"attempt {attempt} failed: it does not answer [io]; it is tried again after {pause:g} s"
            )
            await passes(desk, pause - 0.1)
            assert desk.state("task-0001") == "queued"
            await passes(desk, 0.2)
            assert (desk.state("task-0001"), desk.record("task-0001").standing.attempt) == ("leased", attempt + 1)
        await fails(desk, 3)
        assert (desk.state("task-0001"), desk.record("task-0001").code) == ("failed", "io")
        assert desk.record("task-0001").result == SILENT


@pytest.mark.parametrize(
    ("capability", "limits", "result"),
    [
        ("job.safe", {"max_attempts": 1}, SILENT),
        ("job.safe", {"valid_for": 0.5}, SILENT),
        ("job.safe", {"deadline": 0.5}, SILENT),
        ("job.safe", {"retry_backoff": 60, "valid_for": 30}, SILENT),
        ("job.safe", {}, Finished(outcome="failed", code="limit")),
        ("job.safe", {}, Finished(outcome="failed", code="failed")),
        ("job.unsafe", {"max_attempts": 9}, SILENT),
    ],
)
async def test_what_may_not_or_need_not_be_tried_again_fails_at_once(
    tmp_path: Path, capability: str, limits: dict[str, float], result: Finished
) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", capability, limits=limits)
        if capability == "job.unsafe":
            desk.say(messages.Starting, "task-0001")
        await fails(desk, 1, result)
        assert (desk.state("task-0001"), desk.record("task-0001").code) == ("failed", result.code)


async def test_the_card_of_a_capability_says_how_often_and_a_submit_may_say_otherwise(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        node, told = desk.joins(), card()
        spec = msgspec.structs.replace(told.capabilities["job.safe"].action, max_attempts=5, retry_backoff=4.0)
        own = msgspec.structs.replace(told.capabilities["job.safe"], action=spec)
        desk.fleet.card(node, msgspec.structs.replace(told, revision=2, capabilities={"job.safe": own}))
        await desk.submit("task-0001")
        await desk.submit("task-0002", limits={"max_attempts": 2, "retry_backoff": 0.5})
        first, second = desk.record("task-0001"), desk.record("task-0002")
        assert (first.standing.max_attempts, first.task.limits.retry_backoff) == (5, 4.0)
        assert (second.standing.max_attempts, second.task.limits.retry_backoff) == (2, 0.5)
        await fails(desk, 1)
        assert "after 4 s" in desk.record("task-0001").reason


async def test_a_task_that_waits_for_its_next_attempt_can_be_cancelled(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        await fails(desk, 1)
        await desk.answer("task.cancel", id="task-0001")
        assert desk.state("task-0001") == "cancelled"


@pytest.mark.parametrize("capability", ["job.safe", "job.unsafe"])
async def test_a_task_that_crashes_its_node_before_it_begins_ends_as_lost(tmp_path: Path, capability: str) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", capability)
        for crash in range(1, 4):
            assert (desk.state("task-0001"), desk.record("task-0001").standing.attempt) == ("leased", crash)
            desk.joins(incarnation=crash + 1)
            await desk.settle()
            await passes(desk, 10.0)
        assert (desk.state("task-0001"), desk.record("task-0001").code) == ("failed", "lost")
        assert desk.record("task-0001").reason == "lost too often before it began"


def test_pauses_double_and_have_an_end() -> None:
    assert [backoff(1.0, runs) for runs in (0, 1, 2, 3, 4)] == [1.0, 1.0, 2.0, 4.0, 8.0]
    assert backoff(1.0, 1000) == LONGEST_BACKOFF
