"""Promises 1 to 4 and 'nothing is lost, nothing is stuck' (docs/architecture.md), for every order in which things can
happen: real coordinator, real nodes, a network and a clock that hypothesis moves.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from edgepanda.model.states import ENDED
from tests.rig.quiet_site import Packet, QuietSite, Time, quiet

TASKS = 6
ENDINGS = st.sampled_from(["done", "done", "bare", "failed", "died"])
PLACES = st.integers(0, 50)
SOME = st.lists(PLACES, min_size=1, max_size=4)
VALID = st.sampled_from([None, None, 20.0])


class AnythingHappens(RuleBasedStateMachine):
    """Every rule is one thing that may happen at a site; `teardown` lets it come to rest and looks at what became."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable(logging.CRITICAL)
        self.folder = Path(tempfile.mkdtemp())
        self._quiet = quiet()
        self.time = self._quiet.__enter__()
        self.tasks: dict[str, str] = {}  # id: capability

    def does(self, work: Coroutine[Any, Any, Any]) -> None:
        self.time.run_until_complete(work)

    @initialize()
    def open(self) -> None:
        async def work() -> None:
            self.site = QuietSite(self.folder, self.time)
            await self.site.calm(3)

        self.does(work())

    # what people do

    @precondition(lambda self: len(self.tasks) < TASKS)
    @rule(safe=st.booleans(), criteria=st.booleans(), attempts=st.integers(1, 3), valid=VALID, arrives=st.booleans())
    def submit(self, safe: bool, criteria: bool, attempts: int, valid: float | None, arrives: bool) -> None:
        task, capability = f"task-{len(self.tasks):04}", "job.safe" if safe else "job.unsafe"
        limits: dict[str, Any] = {"max_attempts": attempts, **({"valid_for": valid} if valid else {})}
        self.site.ask(
            "task.submit", id=task, capability=capability, limits=limits, criteria=["it is so"] if criteria else []
        )
        self.tasks[task] = capability
        if arrives:
            self.everything_arrives()

    @precondition(lambda self: self.tasks)
    @rule(place=PLACES, really=st.integers(0, 2))
    def cancel(self, place: int, really: int) -> None:
        if not really:
            self.site.ask("task.cancel", id=self._task(place))

    @precondition(lambda self: any(self.site.state(task) in ("uncertain", "waiting_review") for task in self.tasks))
    @rule(place=PLACES, word=st.sampled_from(["yes", "no", "again"]))
    def a_person_decides(self, place: int, word: str) -> None:
        tasks = [task for task in self.tasks if self.site.state(task) in ("uncertain", "waiting_review")]
        self._decide(tasks[place % len(tasks)], word)

    def _decide(self, task: str, word: str) -> None:
        if self.site.state(task) == "uncertain":
            outcome = {"yes": "succeeded", "no": "failed", "again": "retry"}[word]
            self.site.ask("task.resolve", id=task, outcome=outcome, because="I looked")
        else:
            verdict = {"yes": "accept", "no": "reject", "again": "again"}[word]
            self.site.ask("task.review", id=task, verdict=verdict, because="I looked")

    # what the network does

    @rule()
    def everything_arrives(self) -> None:
        self.does(self.site.deliver_all())

    @rule(seconds=st.sampled_from([0.1, 1.0, 3.0]))
    def work_goes_on(self, seconds: float) -> None:
        async def work() -> None:
            await self.site.deliver_all()
            await self.site.pass_time(seconds)
            self.site.resend()
            await self.site.deliver_all()

        self.does(work())

    @rule(how=st.sampled_from(["one arrives", "some are lost", "one comes again", "all repeat"]), places=SOME)
    def the_network_is_poor(self, how: str, places: list[int]) -> None:
        async def work() -> None:
            net = self.site.net
            for place in places:
                if how == "one arrives" and net.flying:
                    net.deliver(place % len(net.flying))
                elif how == "some are lost" and net.flying:
                    net.flying.pop(place % len(net.flying))
                elif how == "one comes again" and net.recorded:
                    net.hand_over(net.recorded[-1 - place % len(net.recorded)])
            if how == "all repeat":
                self.site.resend()
            await self.site.settle()

        self.does(work())

    # what machines do

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 12.0, 45.0]), broker=st.booleans())
    def time_passes(self, seconds: float, broker: bool) -> None:
        async def work() -> None:
            if not broker:
                self.site.net.cut()
            await self.site.pass_time(seconds)
            if not broker:
                self.site.net.mend()
            await self.site.settle()

        self.does(work())

    @precondition(lambda self: self.site.world.calls)
    @rule(place=PLACES, how=ENDINGS)
    def an_action_ends(self, place: int, how: str) -> None:
        async def work() -> None:
            calls = self.site.world.calls
            self.site.world.end(calls[place % len(calls)], how)
            await self.site.settle()

        self.does(work())

    @rule(obeys=st.booleans())
    def actions_obey_or_do_not(self, obeys: bool) -> None:
        self.site.world.obeys = obeys

    @rule(who=st.sampled_from(["n1", "n2", "coordinator"]), unsettled=st.integers(0, 3))
    def somebody_is_killed(self, who: str, unsettled: int) -> None:
        async def work() -> None:
            self._hand_over_at_once(unsettled)
            if who == "coordinator":
                await self.site.restart_coordinator()
            else:
                await self.site.restart_node(who)
            await self.site.settle()

        self.does(work())

    def _hand_over_at_once(self, count: int) -> None:
        """Taken, and nothing of it on disk when the kill comes."""
        for _ in range(min(count, len(self.site.net.flying))):
            self.site.net.hand_over(self.site.net.flying.pop(0))

    def _task(self, place: int) -> str:
        return list(self.tasks)[place % len(self.tasks)]

    # how it ends

    def teardown(self) -> None:
        try:
            if hasattr(self, "site"):
                self.does(self._rest())
                self._look()
                self.does(self._replay())
                self.does(self.site.close())
        finally:
            self._quiet.__exit__(None, None, None)
            shutil.rmtree(self.folder, ignore_errors=True)
            logging.disable(logging.NOTSET)

    async def _rest(self) -> None:
        """Nodes are healthy, people answer: after a while everything has ended."""
        self.site.world.obeys = True
        await self.site.calm(35)
        for _ in range(6):
            for call in list(self.site.world.calls):
                self.site.world.end(call, "done")
            await self.site.calm(35)
            for task in self.tasks:
                if self.site.state(task) in ("uncertain", "waiting_review"):
                    self._decide(task, "no")
            if all(self.site.state(task) in ENDED for task in self.tasks):
                break

    def _look(self) -> None:
        site = self.site
        states = {task: site.state(task) for task in self.tasks}
        assert set(states.values()) <= set(map(str, ENDED)), f"stuck or lost: {states}"
        for task, capability in self.tasks.items():
            events = site.coordinator.ledger.events(task=task, limit=10_000)
            kinds = [event.kind for event in events]
            begun = [attempt for begun, attempt, _ in site.world.begun if begun == task]
            again = kinds.count("review_again") + sum(
                event.kind == "resolved" and b'"state":"queued"' in (event.payload or b"") for event in events
            )
            if capability == "job.unsafe":
                assert len(begun) == len(set(begun)), f"{task}: an attempt began twice: {begun}"
                assert len(begun) <= 1 + again, f"{task} began {begun}; people asked {again} times for more: {kinds}"
            if states[task] == "succeeded":
                assert {(task, attempt) for attempt in begun} & site.world.done or {"resolved", "review_accepted"} & {
                    *kinds
                }, f"{task} succeeded, and nobody did it"
        assert site.coordinator.ledger.verify(witnesses=[site.coordinator.ledger.head]).ok
        assert not site.world.calls
        for node in site.nodes.values():
            assert not node.attempts.running
            assert not node.attempts._reporter.unacknowledged
            assert node.journal.open_attempts() == []
            assert node.journal.outbox() == []
            assert not node._bus.pending
        assert not site.coordinator.bus.pending
        assert all(not node.open for node in site.coordinator.fleet.nodes.values())

    async def _replay(self) -> None:
        """All that was ever said, said again: now, an hour later, and after everything was started anew."""
        day = list(self.site.net.recorded)
        await self._again(day)
        await self.site.pass_time(3_600.0)
        for name in self.site.nodes:
            await self.site.restart_node(name)
        await self.site.restart_coordinator()
        await self.site.calm(3)
        await self._again(day)

    async def _again(self, day: list[Packet]) -> None:
        site = self.site
        await site.calm(2)
        before = site.coordinator.ledger.head.height, list(site.world.begun)
        for packet in day:
            site.net.hand_over(packet)
        await site.calm(12)
        after = site.coordinator.ledger.head.height, list(site.world.begun)
        new = [(e.kind, e.task, e.payload) for e in site.coordinator.ledger.events(after=before[0])]
        assert after == before, f"a replay changed something: {new}, {after[1][len(before[1]) :]}"
        assert {n for n, node in site.coordinator.fleet.nodes.items() if node.online and node.capabilities} == {
            *site.nodes
        }, "a replay has put a node out of work"


AnythingHappens.TestCase.settings = settings(
    max_examples=10, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnythingHappens = AnythingHappens.TestCase


# some of it in slow motion


def scene(play: Callable[[QuietSite], Coroutine[Any, Any, None]], folder: Path) -> None:
    """A site at rest, and what happens to it."""

    async def work(time: Time) -> None:
        site = QuietSite(folder, time)
        await site.calm(3)
        await play(site)
        assert site.coordinator.ledger.verify().ok
        await site.close()

    with quiet() as time:
        time.run_until_complete(work(time))


@pytest.mark.parametrize(("capability", "state"), [("job.safe", "running"), ("job.unsafe", "uncertain")])
def test_a_killed_node_is_noticed_at_its_next_start(tmp_path: Path, capability: str, state: str) -> None:
    async def play(site: QuietSite) -> None:
        site.ask("task.submit", id="task-0001", capability=capability)
        await site.calm(2)
        (_, _, node) = site.world.begun[0]
        await site.restart_node(node)
        await site.calm(4)
        assert site.state("task-0001") == state
        assert len(site.world.begun) == (2 if capability == "job.safe" else 1)

    scene(play, tmp_path)


def test_what_the_coordinator_had_not_written_when_it_was_killed_is_asked_and_said_again(tmp_path: Path) -> None:
    async def play(site: QuietSite) -> None:
        asked = site.ask("task.submit", id="task-0001", capability="job.unsafe")
        site.net.deliver()
        await site.restart_coordinator()
        assert site.state("task-0001") == "unknown"
        assert asked not in site.replies
        await site.calm(5)
        assert (site.state("task-0001"), site.replies[asked].error) == ("running", None)
        site.world.end(site.world.calls[0], "done")
        await site.settle()
        while site.net.flying:  # its end is heard, and forgotten
            site.net.deliver()
        await site.restart_coordinator()
        await site.calm(5)
        assert site.state("task-0001") == "succeeded"
        assert len(site.world.begun) == 1

    scene(play, tmp_path)


def test_a_cancel_reaches_the_node_over_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    async def play(site: QuietSite) -> None:
        site.ask("task.submit", id="task-0001", capability="job.safe")
        await site.calm(2)
        site.ask("task.cancel", id="task-0001")
        site.net.deliver()
        await site.settle()
        site.net.flying.clear()
        await site.restart_coordinator()
        await site.calm(5)
        assert site.state("task-0001") == "cancelled"

    scene(play, tmp_path)


def test_a_broker_that_is_away_for_long_makes_nothing_uncertain(tmp_path: Path) -> None:
    async def play(site: QuietSite) -> None:
        site.ask("task.submit", id="task-0001", capability="job.unsafe")
        await site.calm(2)
        site.net.cut()
        await site.pass_time(600.0)
        site.net.mend()
        await site.calm(5)
        assert site.state("task-0001") == "running"
        site.world.end(site.world.calls[0], "done")
        await site.calm(2)
        assert site.state("task-0001") == "succeeded"

    scene(play, tmp_path)


def test_a_broker_that_forgets_what_was_retained_keeps_no_node_from_work(tmp_path: Path) -> None:
    async def play(site: QuietSite) -> None:
        await site.restart_node("n1")
        site.net.kept.clear()
        site.net.flying.clear()
        await site.calm(15)
        node = site.coordinator.fleet.nodes["n1"]
        assert node.online
        assert node.capabilities

    scene(play, tmp_path)
