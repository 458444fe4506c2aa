"""Leases: granted, renewed, ended; limits, pauses, restarts of either side."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgepanda.coordinator.leases import LONGEST_REST, MARGIN
from edgepanda.model.task import Finished
from edgepanda.wire import messages
from edgepanda.wire.messages import Held
from tests.rig.desk import TTL, at_desk, card


async def test_a_lease_follows_its_commit_and_ends_on_the_node_before_it_ends_here(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        node = desk.joins()
        desk.now += 5.0
        desk.ask("task.submit", id="task-0001", capability="job.safe", limits={"valid_for": 20.0, "deadline": 90.0})
        assert desk.sent == []
        await desk.settle()
        lease = desk.bodies(messages.Lease)[0]
        live = desk.book.live["task-0001"]
        assert node.stamp is not None
        assert (lease.id, lease.attempt, lease.epoch, lease.ledger) == ("task-0001.1", 1, 0, desk.ledger.id)
        assert lease.until_ms == node.stamp.ms + 5_000 + TTL * 1_000
        assert (lease.begin_by_ms, lease.end_by_ms) == (node.stamp.ms + 25_000, node.stamp.ms + 95_000)
        assert live.lease_until == desk.now + TTL + MARGIN
        assert desk.kinds("task-0001") == ["submitted", "leased"]


async def test_no_slot_no_lease_and_a_free_one_is_used_at_once(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=1)
        await desk.submit("task-0001")
        await desk.submit("task-0002")
        assert (desk.state("task-0001"), desk.state("task-0002")) == ("leased", "queued")
        desk.say(messages.Declined, "task-0001", code="invalid_args")
        await desk.settle()
        assert desk.state("task-0002") == "leased"


async def test_a_lost_lease_is_queued_again_or_uncertain(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=3)
        for task, capability in (("task-safe", "job.safe"), ("task-held", "job.unsafe"), ("task-done", "job.unsafe")):
            await desk.submit(task, capability)
        desk.say(messages.Started, "task-safe")
        desk.say(messages.Starting, "task-done")
        desk.fleet.nodes["n1"].online = False
        desk.now += TTL + MARGIN - 0.1
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-safe") == "running"
        desk.now += 0.2
        desk.leases.tick()
        await desk.settle()
        states = [desk.state(task) for task in ("task-safe", "task-held", "task-done")]
        assert states == ["queued", "queued", "uncertain"]


async def test_beats_renew_and_a_retired_attempt_is_told_so(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        node = desk.joins()
        await desk.submit("task-0001")
        desk.now += TTL
        desk.claims(node, held=(Held("task-0001", 1, True), Held("task-gone", 4, True), Held("task-0001", 7, True)))
        await desk.settle()
        assert desk.book.live["task-0001"].lease_until == desk.now + TTL + MARGIN
        renewed = desk.bodies(messages.Renewed)[-1]
        assert node.stamp is not None
        assert (renewed.attempts, renewed.until_ms) == ((("task-0001", 1),), node.stamp.ms + TTL * 1_000)
        assert {(c.task, c.attempt, c.reason) for c in desk.bodies(messages.Cancel)} == {
            ("task-gone", 4, "fence_retired"),
            ("task-0001", 7, "fence_retired"),
        }


async def test_a_cancel_that_was_lost_with_the_coordinator_is_sent_when_the_node_says_that_it_holds(
    tmp_path: Path,
) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        await desk.answer("task.cancel", id="task-0001")
        await desk.restart()
        desk.sent.clear()
        desk.joins(held=(Held("task-0001", 1, True),))
        assert [(c.task, c.attempt, c.reason) for c in desk.bodies(messages.Cancel)] == [("task-0001", 1, "cancelled")]


async def test_while_the_broker_is_away_leases_stand_still(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        desk.leases.pause()
        desk.now += 10 * TTL
        desk.leases.tick()
        desk.leases.resume()
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-0001") == "leased"
        desk.now += TTL + MARGIN
        desk.leases.tick()
        await desk.settle()
        assert desk.kinds("task-0001")[2] == "lost"


async def test_after_a_start_every_open_attempt_has_a_full_time_from_when_the_broker_is_there(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        await desk.restart()
        desk.leases.pause()
        desk.now += 1_000.0
        desk.leases.resume()
        desk.leases.tick()
        assert desk.book.live["task-0001"].lease_until == desk.now + TTL + MARGIN


async def test_a_node_that_started_anew_gives_back_what_it_lacks_but_not_what_was_permitted(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        node = desk.joins(slots=4)
        for task, capability in (("task-safe", "job.safe"), ("task-wait", "job.unsafe"), ("task-went", "job.unsafe")):
            await desk.submit(task, capability)
        desk.say(messages.Started, "task-safe")
        desk.say(messages.Starting, "task-went")
        await desk.settle()
        node.incarnation = 2  # its status and its card come before its claim
        desk.claims(node, incarnation=2, slots=0)
        await desk.settle()
        states = [desk.state(task) for task in ("task-safe", "task-wait", "task-went")]
        assert states == ["queued", "queued", "running"]
        assert desk.record("task-safe").standing.fence is None


async def test_a_claim_without_the_attempt_gets_its_lease_again_with_the_new_stamp(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        node = desk.joins()
        await desk.submit("task-0001")
        desk.now += 7.0
        desk.claims(node)
        first, second = desk.bodies(messages.Lease)
        assert (first.id, second.id) == ("task-0001.1", "task-0001.1")
        assert second.stamp.ms > first.stamp.ms
        assert desk.kinds("task-0001") == ["submitted", "leased"]


async def test_limits_end_what_has_not_begun(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-held", "job.unsafe", limits={"valid_for": 10.0})
        desk.fleet.nodes["n1"].capabilities = frozenset()
        await desk.submit("task-late", limits={"deliver_within": 5.0})
        await desk.submit("task-kept")
        desk.now += 10.0
        desk.leases.tick()
        await desk.settle()
        assert [desk.state(t) for t in ("task-held", "task-late", "task-kept")] == ["expired", "expired", "queued"]
        assert [c.reason for c in desk.bodies(messages.Cancel)] == ["fence_retired"]


async def test_a_reboot_ends_a_short_command_that_was_waiting(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        desk.fleet.nodes["n1"].online = False
        await desk.submit("task-0001", limits={"valid_for": 30.0})
        desk.boot, desk.now = "another", 5.0  # wall time goes on with `now`: backwards here, so downtime is not known
        await desk.restart()
        assert desk.record("task-0001").deadlines.begin_by == 35.0
        desk.now = 36.0
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-0001") == "expired"


async def test_who_declines_for_now_is_asked_again_later_each_time(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        for _ in range(200):
            standing = desk.record("task-0001").standing
            if standing.fence is not None:
                desk.say(messages.Declined, "task-0001", attempt=standing.fence, code="busy")
            desk.now += 1.0
            desk.leases.tick()
            await desk.settle()
        assert desk.kinds("task-0001").count("leased") <= 5 + 200 / LONGEST_REST + 1
        assert desk.record("task-0001").standing.runs == 0


async def test_declines_of_many_days_do_not_grow_the_record(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        sizes = []
        for _ in range(100):
            standing = desk.record("task-0001").standing
            assert standing.fence is not None
            desk.say(messages.Declined, "task-0001", attempt=standing.fence, code="busy")
            desk.now += LONGEST_REST
            desk.leases.tick()
            await desk.settle()
            sizes.append(len(msgspec.json.encode(desk.record("task-0001"))))
        assert sizes[99] <= sizes[40] + 10


async def test_orders_rise_over_restarts_and_clocks_that_are_set_back(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=99)
        orders = []
        for number in range(6):
            await desk.submit(f"task-{number:04}")
            orders.append(desk.record(f"task-{number:04}").order)
            desk.now -= 10.0
            if number % 2:
                await desk.restart()
        assert orders == sorted(set(orders))


async def test_one_task_that_cannot_be_ended_does_not_keep_back_the_others(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        desk.fleet.nodes["n1"].online = False
        await desk.submit("task-0001", limits={"valid_for": 1.0})
        await desk.submit("task-0002", limits={"valid_for": 1.0})
        live = desk.book.live["task-0001"]
        wrong = msgspec.structs.replace(live.record.standing, state="waiting_answer")
        live.record = msgspec.structs.replace(live.record, standing=wrong)
        live.lease_until = 0.0
        desk.now += 2.0
        desk.leases.tick()
        await desk.settle()
        assert desk.state("task-0002") == "expired"


async def test_a_lease_says_which_newer_command_its_device_has_accepted(tmp_path: Path) -> None:
    """The node may have forgotten it over a restart."""
    with at_desk(tmp_path) as desk:
        node = desk.joins(slots=9)
        moves = msgspec.structs.replace(card().drivers["servo"].actions["move"], on_busy="preempt")
        reads = msgspec.structs.replace(moves, tier=0)
        servo = msgspec.structs.replace(card().drivers["servo"], actions={"move": moves, "read": reads})
        desk.fleet.card(node, msgspec.structs.replace(card(revision=2), drivers={"servo": servo}))
        node.capabilities |= {"servo.read"}
        for task, capability in (("task-0001", "move"), ("task-0002", "move"), ("task-0003", "read")):
            await desk.submit(task, f"servo.{capability}", device="pan-n1", args={})
        desk.say(messages.FinishedReport, "task-0003", result=Finished(outcome="succeeded", evidence=({"kind": "k"},)))
        await desk.settle()
        assert node.newest == {}
        desk.say(messages.Started, "task-0002")
        desk.say(messages.Declined, "task-0001", code="busy")
        await desk.settle()
        desk.now += 2.0
        desk.leases.tick()
        await desk.settle()
        last = desk.bodies(messages.Lease)[-1]
        assert (last.id, last.newest) == ("task-0001.2", desk.record("task-0002").order)
        assert last.newest > last.order
