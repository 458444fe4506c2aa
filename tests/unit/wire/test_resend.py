"""Sending again until settled, on a loop whose clock jumps to whatever is due next."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import parse_broker
from edgepanda.trust.identity import Identity
from edgepanda.trust.peers import Directory
from edgepanda.wire import bus as bus_module
from edgepanda.wire import envelope, messages, topics
from edgepanda.wire.bus import Bus

ME = Identity.create()
TICK = 0.5  # seconds by which a repetition may be late


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Instead of waiting, it sets the clock forward."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0
        return super().select(0)


def in_jumping_time(main: Coroutine[Any, Any, None]) -> None:
    selector = _Jumping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


class Wire:
    """A bus whose link only writes down when it was asked to publish what."""

    def __init__(self) -> None:
        self.bus = Bus(parse_broker("mqtt://nowhere"), ME, Directory(ME.public), site="home", process="t")
        self.said: list[tuple[float, list[str]]] = []
        self.bus.link.publish = self._publish  # type: ignore[method-assign]

    def _publish(self, topic: str, payload: bytes, *, qos: int, retain: bool) -> bool:
        below = topic.removeprefix("edgepanda/")
        opened = envelope.unseal(payload, site="home", topic=below, key_of={ME.kid: ME.public}.get)
        ids = [bus_module._head(raw).id for raw in opened.bodies]
        self.said.append((asyncio.get_running_loop().time(), ids))
        return True

    def go(self, *, up: bool) -> None:
        self.bus.link.up = up
        (self.bus._went_up if up else self.bus._went_down)()

    def times(self, body_id: str) -> list[float]:
        return [at for at, ids in self.said if body_id in ids]


def event(body_id: str, padding: int = 0) -> messages.Event:
    return messages.Event(id=body_id, seq=1, at=0.0, kind="x" * padding)


def test_it_is_said_again_after_1_2_4_and_so_on_up_to_30_seconds():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        wire.bus.deliver(topics.EVENTS, event("a"))
        await asyncio.sleep(155)
        exact = [0, 1, 3, 7, 15, 31, 61, 91, 121, 151]
        assert len(wire.times("a")) == len(exact)
        for at, ideal in zip(wire.times("a"), exact, strict=True):
            assert ideal <= at <= ideal + 10 * TICK
        waits = [b - a for a, b in zip(wire.times("a"), wire.times("a")[1:], strict=False)]
        for wait, ideal in zip(waits, [1, 2, 4, 8, 16, 30, 30, 30, 30], strict=True):
            assert ideal <= wait <= ideal + TICK
        await wire.bus.stop()

    in_jumping_time(main())


def test_what_is_settled_is_not_said_again():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        wire.bus.deliver(topics.EVENTS, event("a"))
        wire.bus.deliver(topics.EVENTS, event("b"))
        await asyncio.sleep(1.6)
        assert (len(wire.times("a")), len(wire.times("b"))) == (2, 2)
        wire.bus.settle(["a", "never heard of"])
        assert not wire.bus.waits_for("a")
        assert wire.bus.waits_for("b")
        await asyncio.sleep(10)
        assert len(wire.times("a")) == 2
        assert len(wire.times("b")) == 4
        wire.bus.settle(["b"])
        await asyncio.sleep(100)
        assert len(wire.times("b")) == 4
        await wire.bus.stop()

    in_jumping_time(main())


def test_nothing_ticks_when_nothing_waits():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        wire.bus.deliver(topics.EVENTS, event("a"))
        wire.bus.settle(["a"])
        await asyncio.sleep(2)
        assert wire.bus._resending is None
        await wire.bus.stop()

    in_jumping_time(main())


def test_what_was_delivered_into_the_void_is_said_at_once_when_the_link_is_up():
    async def main() -> None:
        wire = Wire()
        wire.bus.deliver(topics.EVENTS, event("a"))
        wire.bus.send(topics.EVENTS, event("lost"))
        await asyncio.sleep(300)
        assert wire.said == []
        wire.go(up=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert wire.said == [(300.0, ["a"])]
        wire.go(up=False)
        await asyncio.sleep(60)
        wire.go(up=True)
        await asyncio.sleep(0.1)
        assert wire.times("a") == [300.0, pytest.approx(360.0)]
        await wire.bus.stop()

    in_jumping_time(main())


def test_bodies_of_one_turn_for_one_topic_share_an_envelope_in_order():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        for number in range(5):
            wire.bus.send(topics.EVENTS, event(f"b{number}"))
        wire.bus.deliver(topics.EVENTS, event("b5"))
        wire.bus.send(topics.COORDINATOR, event("e"))
        await asyncio.sleep(0.01)
        assert [ids for _, ids in wire.said] == [[f"b{n}" for n in range(6)], ["e"]]
        await wire.bus.stop()

    in_jumping_time(main())


def test_after_a_broken_link_nothing_waits_for_the_rest_of_its_half_minute():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        wire.bus.deliver(topics.EVENTS, event("a"))
        await asyncio.sleep(62)
        said = len(wire.times("a"))
        wire.go(up=False)
        wire.go(up=True)
        await asyncio.sleep(0.1)
        assert len(wire.times("a")) == said + 1
        await wire.bus.stop()

    in_jumping_time(main())


def test_urgent_topics_go_first_of_what_is_said_in_one_turn():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        wire.bus.send(topics.EVENTS, event("later"))
        wire.bus.send(topics.INBOX, messages.Cancel(id="first", task="task-0001", attempt=1), node="pi")
        await asyncio.sleep(0.01)
        assert [ids for _, ids in wire.said] == [["first"], ["later"]]
        await wire.bus.stop()

    in_jumping_time(main())


def test_bodies_that_do_not_fit_into_one_envelope_take_more_in_order():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        for number in range(5):
            wire.bus.send(topics.EVENTS, event(f"b{number}", 30_000))
        await asyncio.sleep(0.01)
        assert [ids for _, ids in wire.said] == [["b0", "b1"], ["b2", "b3"], ["b4"]]
        await wire.bus.stop()

    in_jumping_time(main())


def test_a_body_that_fits_into_no_envelope_is_refused_where_it_is_said():
    async def main() -> None:
        wire = Wire()
        wire.go(up=True)
        for say in (wire.bus.send, wire.bus.deliver, wire.bus.retain):
            with pytest.raises(EdgePandaError) as caught:
                say(topics.EVENTS, event("big", envelope.LARGEST))
            assert caught.value.code == "oversized"
        assert not wire.bus.waits_for("big")
        await wire.bus.stop()

    in_jumping_time(main())


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(bus_module, "MOST_PENDING", 3)

    async def main() -> None:
        wire = Wire()
        for number in range(3):
            wire.bus.deliver(topics.EVENTS, event(str(number)))
        with pytest.raises(EdgePandaError) as caught:
            wire.bus.deliver(topics.EVENTS, event("one too many"))
        assert caught.value.code == "queue_full"
        await wire.bus.stop()

    in_jumping_time(main())


def test_the_largest_envelope_that_the_bus_makes_is_one_that_a_bus_takes():
    biggest = event("b")
    padding = bus_module.ROOM - len(bus_module._encode(biggest))
    body = bus_module._encode(event("b", padding))
    payload = envelope.seal(ME, site="x" * 64, topic="v1/" + "n" * 100, envelope_id="i" * 64, bodies=[body])
    assert len(body) == bus_module.ROOM
    assert len(payload) <= envelope.LARGEST


def test_a_failing_owner_does_not_end_the_link(caplog):
    async def main() -> None:
        bus = Bus(
            parse_broker("mqtt://nowhere"),
            ME,
            Directory(ME.public),
            site="home",
            process="t",
            on_up=lambda: 1 / 0,  # type: ignore[arg-type,return-value]
            on_down=lambda: 1 / 0,  # type: ignore[arg-type,return-value]
        )
        bus.link._went_up()
        bus.link._drop()
        assert not bus.up

    in_jumping_time(main())
    assert caplog.text.count("ZeroDivisionError") == 2
