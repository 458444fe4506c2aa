"""What the embedded broker keeps: nothing of connections and messages that are over, and little of a flood."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

from edgepanda.model.broker import BrokerAddress, parse_broker
from edgepanda.services.broker import EmbeddedBroker
from edgepanda.services.broker_hardened import MOST_WAITING
from edgepanda.wire.probe import Probe

CONNECTIONS, MESSAGES = 40, 400
KEPT = (
    "Session",
    "_Handler",
    "Task",
    "Event",
    "Queue",
    "PacketReader",
    "PacketWriter",
    "StreamWriter",
    "PublishPacket",
)
SLACK = 30  # containers that the interpreter itself may have more of


def alive() -> Counter[str]:
    """Objects by type, without what only waits for the collector."""
    gc.collect()
    return Counter(type(each).__name__ for each in gc.get_objects())


async def come_and_go(address: BrokerAddress, publisher: Probe, name: str) -> None:
    """Goodbye, hang-up, and take-over in turn; with a subscription, and a message that goes there."""
    for number in range(CONNECTIONS):
        guest = await Probe.open(address)
        await guest.connect(name)
        await guest.subscribe("soak/1")
        await publisher.publish("soak/1", bytes(64), retain=not number % 10)
        if number % 3 == 0:
            await guest.disconnect()
        elif number % 3 == 1:
            await guest.hang_up()
        else:
            twin = await Probe.open(address)
            await twin.connect(name)
            await guest.closed.wait()
            await twin.disconnect()
            await guest.hang_up()
    last = await Probe.open(address)  # what is over before it is over for the broker, too
    await last.connect(name)
    await last.disconnect()


async def test_nothing_is_kept_of_what_is_over() -> None:
    broker = EmbeddedBroker(port=0)
    await broker.start()
    address = parse_broker(broker.url)
    publisher = await Probe.open(address)
    await publisher.connect("publisher")
    counts = []
    for _ in range(3):
        await come_and_go(address, publisher, "guest")
        for number in range(MESSAGES):
            await publisher.publish(f"soak/{number % 50}", bytes(64), retain=not number % 10)
        async with asyncio.timeout(10):
            while len(broker._clients) > 1:  # noqa: ASYNC110 it has no event for that
                await asyncio.sleep(0)
        counts.append(alive())
    _, before, after = counts  # caches fill up in the first
    assert {kind: after[kind] for kind in KEPT} == {kind: before[kind] for kind in KEPT}
    for kind in ("dict", "list", "tuple", "set", "deque"):
        assert after[kind] - before[kind] < SLACK, kind
    await publisher.disconnect()
    await broker.stop()


async def test_who_floods_it_waits_and_nothing_is_lost() -> None:
    """Taking in is quicker than passing on: without a bound the difference would fill the memory."""
    broker = EmbeddedBroker(port=0)
    await broker.start()
    address = parse_broker(broker.url)
    subscriber, publisher = await Probe.open(address), await Probe.open(address)
    await subscriber.connect("subscriber")
    await subscriber.subscribe("flood", 0)
    await publisher.connect("publisher")
    waiting, most = broker._amqtt._broadcast_queue, 0
    for number in range(3000):
        await publisher.publish("flood", number.to_bytes(2), qos=0)
        if not number % 50:
            await asyncio.sleep(0)
            most = max(most, waiting.qsize())
    for number in range(3000):
        assert (await subscriber.next("flood")).payload == number.to_bytes(2)
        most = max(most, waiting.qsize())
    assert 0 < most < 2 * MOST_WAITING
    for each in (subscriber, publisher):
        await each.disconnect()
    await broker.stop()
