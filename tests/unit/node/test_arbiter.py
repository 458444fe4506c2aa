"""One lane to each device: who has it, who waits, who must give way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.node import arbiter as arbiter_module
from edgepanda.node.arbiter import Arbiter, Lane, LaneError


def never() -> None:
    raise AssertionError("nobody wanted the device")


async def test_calls_have_the_device_one_after_the_other_in_order() -> None:
    lane, had = Lane("pan"), []

    async def use(name: str) -> None:
        turn = await lane.take("queue", never)
        had.append(name)
        await asyncio.sleep(0)
        lane.give_back(turn)

    await asyncio.gather(*(use(name) for name in "abcd"))
    assert (had, lane.idle) == (list("abcd"), True)


async def test_who_refuses_to_wait_is_told_that_it_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arbiter_module, "MOST_QUEUED", 1)
    lane = Lane("pan")
    await lane.take("queue", never)
    waiting = asyncio.ensure_future(lane.take("queue", never))
    await asyncio.sleep(0)
    for on_busy in ("refuse", "queue"):
        with pytest.raises(LaneError) as caught:
            await lane.take(on_busy, never)  # type: ignore[arg-type]
        assert caught.value.code == "busy"
    waiting.cancel()


async def test_a_newer_set_point_stops_the_holder_and_those_who_wait() -> None:
    lane, stopped = Lane("pan"), []
    holder = await lane.take("preempt", lambda: stopped.append("holder"))
    waiting = asyncio.ensure_future(lane.take("queue", never))
    await asyncio.sleep(0)
    newest = asyncio.ensure_future(lane.take("preempt", never))
    await asyncio.sleep(0)
    with pytest.raises(LaneError) as caught:
        await waiting
    assert (caught.value.code, stopped, newest.done()) == ("superseded", ["holder"], False)
    lane.give_back(holder)
    lane.give_back(await newest)
    assert lane.idle


@pytest.mark.parametrize("granted", [False, True])
async def test_who_is_cancelled_while_it_waits_does_not_keep_the_device(granted: bool) -> None:
    lane = Lane("pan")
    first = await lane.take("queue", never)
    second = asyncio.ensure_future(lane.take("queue", never))
    third = asyncio.ensure_future(lane.take("queue", never))
    await asyncio.sleep(0)
    if granted:
        lane.give_back(first)  # its turn has come, and it has not noticed yet
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    if not granted:
        lane.give_back(first)
    lane.give_back(await third)
    assert lane.idle


def test_a_turn_is_given_back_once() -> None:
    async def work() -> None:
        lane = Lane("pan")
        first = await lane.take("queue", never)
        lane.give_back(first)
        second = await lane.take("queue", never)
        lane.give_back(first)
        assert not lane.idle
        lane.give_back(second)

    asyncio.run(work())


def test_older_commands_are_known_by_the_sites_order_or_by_our_clock() -> None:
    lane = Arbiter().lane("pan")
    assert not lane.is_old(1, 0)
    lane.note_leased(5)
    assert [lane.is_old(order, 0) for order in (4, 5, 6)] == [True, False, False]
    lane.note_leased(3)
    lane.note_direct(1_000)
    assert [lane.is_old(6, ms) for ms in (999, 1_000)] == [True, False]


def test_each_device_has_one_lane() -> None:
    arbiter = Arbiter()
    assert arbiter.lane("pan") is arbiter.lane("pan")
    assert arbiter.lane("pan") is not arbiter.lane("tilt")


@given(st.lists(st.tuples(st.sampled_from(["queue", "preempt", "refuse", "cancel", "end"]), st.integers(0, 9))))
def test_never_two_at_once_and_never_left_behind(steps: list[tuple[Any, int]]) -> None:
    async def work() -> None:
        lane, having, tasks = Lane("pan"), set(), []

        async def use(on_busy: Any, name: int) -> None:
            done = asyncio.get_running_loop().create_future()
            turn = await lane.take(on_busy, lambda: None if done.done() else done.set_result(None))
            try:
                assert not having
                having.add(name)
                ends.append(done)
                await done
            finally:
                having.discard(name)
                lane.give_back(turn)

        ends: list[asyncio.Future[None]] = []
        for number, (what, place) in enumerate(steps):
            if what == "cancel" and tasks:
                tasks[place % len(tasks)].cancel()
            elif what == "end" and ends and not ends[-1].done():
                ends[-1].set_result(None)
            elif what in ("queue", "preempt", "refuse"):
                tasks.append(asyncio.ensure_future(use(what, number)))
            await asyncio.sleep(0)
        while not all(task.done() for task in tasks):
            for end in ends:
                if not end.done():
                    end.set_result(None)
            await asyncio.sleep(0)
        wrong = [t.exception() for t in tasks if not t.cancelled() and t.exception() is not None]
        assert all(isinstance(error, LaneError) for error in wrong), wrong
        assert lane.idle
        assert not lane._waiting

    asyncio.run(work())
