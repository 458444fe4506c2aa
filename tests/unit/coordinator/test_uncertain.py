"""What is known of a task that nobody knows the end of, and a cancel for a node that is away."""

from __future__ import annotations

from pathlib import Path

from edgepanda.wire import messages
from tests.rig.desk import Desk, at_desk

KNOWN = {"code": "restarted", "reads": {"angle": 12.0}}


async def begun(desk: Desk) -> None:
    desk.joins()
    await desk.submit("task-0001", "job.unsafe")
    desk.say(messages.Starting, "task-0001")
    await desk.settle()


async def test_what_a_node_knows_is_kept_also_when_its_lease_was_over_first(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        await begun(desk)
        desk.now += 100.0
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-0001") == "uncertain"
        report = desk.say(messages.Interrupted, "task-0001", began=True, known=KNOWN)
        await desk.settle()
        height = desk.ledger.head.height
        desk.reports.take(report, "n1")
        await desk.settle()
        assert (desk.state("task-0001"), desk.kinds("task-0001")[-2:]) == ("uncertain", ["lost", "interrupted"])
        assert (desk.ledger.head.height, desk.acknowledged[-1]) == (height, report.id)
        events = (await desk.answer("task.events", id="task-0001"))["events"]
        assert events[-1]["data"] == {"node": "n1", "began": True, "known": KNOWN, "state": "uncertain"}
        await desk.answer("task.resolve", id="task-0001", outcome="failed", because="it stands still")
        assert desk.state("task-0001") == "failed"


async def test_a_cancel_for_a_node_that_is_away_outlives_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        await desk.answer("task.cancel", id="task-0001")
        assert desk.state("task-0001") == "leased"  # it may have begun: its node's word decides
        await desk.restart()
        desk.sent.clear()
        desk.joins()
        await desk.settle()
        told = [body for _, body, _ in desk.sent if isinstance(body, messages.Cancel | messages.Lease)]
        assert [type(body) for body in told] == [messages.Cancel, messages.Lease]
        assert (told[0].task, told[0].attempt) == ("task-0001", 1)
        desk.say(messages.Declined, "task-0001", code="cancelled", message="it was cancelled before its lease came")
        await desk.settle()
        assert desk.state("task-0001") == "cancelled"
