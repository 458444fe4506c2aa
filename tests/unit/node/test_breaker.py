"""What fails time after time is left alone for a while, the card says so, and one call tries it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepanda.drivers.contract import DriverError
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Action, Capability, Device
from edgepanda.model.task import Limits
from edgepanda.node import breaker as breaker_module
from edgepanda.node.breaker import FAILURES, PAUSE_FIRST, PAUSE_MOST, Breaker, Breakers
from edgepanda.node.cards import left_alone
from edgepanda.wire import messages
from tests.rig.workbench import Bench, at_bench

SILENT = DriverError("it does not answer", code="io")


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker()
    assert [breaker.failed(now) for _ in range(FAILURES)] == [False, False, True]
    return breaker


def test_three_failures_in_a_row_open_it_and_a_success_between_them_counts_anew() -> None:
    breaker = Breaker()
    breaker.failed(0.0)
    breaker.failed(0.0)
    assert not breaker.succeeded()
    assert breaker.state(0.0) == "closed"
    assert not breaker.failed(0.0)
    assert opened().state(0.0) == "open"


def test_after_a_pause_a_trial_closes_it_or_opens_it_for_twice_as_long() -> None:
    breaker = opened()
    assert (breaker.state(PAUSE_FIRST - 0.1), breaker.state(PAUSE_FIRST)) == ("open", "half_open")
    assert breaker.failed(PAUSE_FIRST)
    assert (breaker.pause, breaker.until) == (2 * PAUSE_FIRST, 3 * PAUSE_FIRST)
    assert not breaker.failed(PAUSE_FIRST)  # one that was under way already
    assert breaker.until == 3 * PAUSE_FIRST
    assert breaker.succeeded()
    assert breaker == Breaker()


def test_pauses_have_an_end() -> None:
    breaker, now = opened(), 0.0
    for _ in range(20):
        now = breaker.until or 0.0
        assert breaker.failed(now)
    assert breaker.pause == PAUSE_MOST


class Board:
    """Breakers with a clock that stands still, and how often the card was looked at."""

    def __init__(self) -> None:
        self.now, self.changes = 0.0, 0
        self.changed_again = asyncio.Event()
        self.breakers = Breakers(self.changed, clock=lambda: self.now)

    def changed(self) -> None:
        self.changes += 1
        if self.changes > 1:
            self.changed_again.set()

    def fails(self, times: int = FAILURES, error: EdgePandaError = SILENT) -> None:
        for _ in range(times):
            self.breakers.failed("pan", error)


async def test_the_card_changes_when_it_opens_and_when_its_trial_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaker_module, "SLACK", 0.0)
    monkeypatch.setattr(breaker_module, "PAUSE_FIRST", 0.001)
    board = Board()
    board.fails(2)
    assert (board.breakers.problem("pan"), board.changes) == (None, 0)
    board.fails(1)
    problem = board.breakers.problem("pan")
    assert problem is not None
    assert board.changes == 1
    assert problem[0].startswith("it failed 3 times in a row, last: it does not answer [io]; next trial at ")
    assert problem == board.breakers.problem("pan")
    with pytest.raises(EdgePandaError, match="left alone") as caught:
        board.breakers.check("pan")
    assert (caught.value.code, caught.value.where) == ("unavailable", "pan")
    board.now = 1.0
    async with asyncio.timeout(5):
        await board.changed_again.wait()
    assert board.breakers.problem("pan") is None
    board.breakers.check("pan")
    board.breakers.close()


async def test_only_failures_of_the_device_count() -> None:
    board = Board()
    for code in ("limit", "invalid_args", "busy", "cancelled"):
        board.fails(error=EdgePandaError("no", code=code, where="pan"))
    assert board.breakers.problem("pan") is None


@pytest.mark.parametrize(
    "after", [lambda b: b.succeeded("pan"), lambda b: b.forget("pan"), lambda b: b.try_now()], ids=["ok", "new", "look"]
)
async def test_what_ends_it(after: Callable[[Breakers], None]) -> None:
    board = Board()
    board.fails()
    after(board.breakers)
    assert board.breakers.problem("pan") is None
    board.fails(1)
    board.breakers.close()


def test_the_card_shows_it_as_a_problem_unless_it_has_one_already() -> None:
    ready = Device(driver="servo", state="ready", facts={"pin": 18})
    told = left_alone(ready, ("it failed", "look"))
    assert (told.state, told.reason, told.cure, told.facts) == ("problem", "it failed", "look", {"pin": 18})
    gone = Capability(action=Action(tier=0, replay="safe"), state="unavailable", reason="no program")
    assert left_alone(gone, ("it failed", "look")) == gone


async def fails(bench: Bench, number: int, how: str = "failed", **whole: Any) -> None:
    bench.accept(f"task-{number:04}", whole=whole)
    await bench.settle()
    await bench.end(how)


async def test_a_node_declines_what_is_left_alone_and_its_trial_may_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.devices.breakers = Breakers(lambda: None, clock=lambda: bench.now)
        for number in range(FAILURES):
            await fails(bench, number, "died" if number == 1 else "failed")
        bench.accept("task-0010")
        await bench.settle()
        declined = bench.said(messages.Declined)
        assert [(body.task, body.code) for body in declined] == [("task-0010", "unavailable")]
        assert len(bench.begun) == FAILURES
        bench.now += PAUSE_FIRST
        await fails(bench, 11, "done")
        await fails(bench, 12)
        assert bench.devices.breakers.problem("job.safe") is None
        bench.devices.breakers.close()


async def test_who_waits_behind_a_failed_trial_is_declined_before_it_asks_for_a_permit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.devices.breakers = Breakers(lambda: None, clock=lambda: bench.now)
        for _ in range(FAILURES):
            bench.devices.breakers.failed("job.unsafe", SILENT)
        bench.accept("task-0001", safe=False)
        await bench.settle()
        assert [type(body) for body in bench.said()] == [messages.Declined]
        assert bench.journal.open_attempts() == []
        bench.devices.breakers.close()


async def test_a_time_limit_of_the_one_who_asks_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.devices.breakers = Breakers(lambda: None, clock=lambda: bench.now)
        for number in range(FAILURES):
            bench.accept(f"task-{number:04}", whole={"limits": Limits(timeout=0.1)})
            await bench.settle()
            bench.world.calls.pop().answer.set_exception(DriverError("too long", code="timeout"))
            await bench.settle()
        assert bench.devices.breakers.problem("job.safe") is None
