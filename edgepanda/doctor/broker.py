"""The broker: whether it can be reached, how long a message takes there and back, and whether it does what we need."""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from edgepanda.doctor.finding import Finding, of_error, ok, warning
from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress
from edgepanda.wire.envelope import LARGEST
from edgepanda.wire.link import Link, Will

ROUNDS = 9  # times that small messages are timed
DELAYED = 0.03  # seconds over the network's own: TCP holds small packets back (40 ms on Linux) only without TCP_NODELAY
SLOW = 0.25  # seconds there and back


class BrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried. Times in seconds, None where nothing came back; `connect`: TCP's own way there and back."""

    address: str
    embedded: bool = False  # the one of this configuration's `edgepanda up`
    error: EdgePandaError | None = None
    subscribe_error: EdgePandaError | None = None
    connect: float | None = None
    round_trip: float | None = None
    large: bool | None = None  # a message of the largest size that we send came back
    retained: bool | None = None
    will: bool | None = None


class _Client:
    """One connection that takes what is said on the topic."""

    def __init__(
        self, address: BrokerAddress, topic: str, *, qos: int = 1, will: Will | None = None, listens: bool = True
    ) -> None:
        self.heard: asyncio.Queue[tuple[str, bytes, bool]] = asyncio.Queue()
        self.link = Link(
            address,
            f"doctor-{os.urandom(6).hex()}",
            subscriptions=[(topic, qos)] if listens else [],
            will=lambda: will,
            on_message=lambda *message: self.heard.put_nowait(message),
            on_up=lambda: None,
            on_down=lambda: None,
        )

    async def wait_for(self, payload: bytes, within: float) -> bool | None:
        """Whether this message came: True, with the retain flag set None."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    _, heard, retained = await self.heard.get()
                    if heard == payload:
                        return None if retained else True
        return False


@contextlib.asynccontextmanager
async def _connected(client: _Client, *, goodbye: bool = True) -> AsyncIterator[_Client]:
    """The client with its connection up. Raises `EdgePandaError`: what the link found at its first attempt."""
    task = asyncio.create_task(client.link.run())
    try:
        await client.link.tried.wait()
        if client.link.last_error is not None:
            raise client.link.last_error
        yield client
        if goodbye:
            client.link.close()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def read(address: BrokerAddress, *, base: str, embedded: bool, within: float) -> BrokerFacts:
    """Connects, and sends small messages below `BASE/v1/doctor` that nobody else listens to; leaves nothing behind.

    Never raises; takes at most about `within` seconds.
    """
    facts = BrokerFacts(address=str(address), embedded=embedded)
    trial = _Trial(address, f"{base}/v1/doctor/{os.urandom(8).hex()}", within / 6)
    facts = msgspec.structs.replace(facts, connect=await _connect_time(address, trial.within))
    try:
        async with _connected(_Client(address, trial.topic, listens=False)):
            pass
    except EdgePandaError as error:
        return msgspec.structs.replace(facts, error=error)
    try:
        facts = msgspec.structs.replace(facts, round_trip=await trial.round_trip())
    except EdgePandaError as error:
        return msgspec.structs.replace(facts, subscribe_error=error)
    if facts.round_trip is None:
        return facts
    large, retained = await asyncio.gather(_passes(trial.large), _passes(trial.retained))
    will = await _passes(trial.will) if retained else None  # ours are retained
    return msgspec.structs.replace(facts, large=large, retained=retained, will=will)


async def _passes(attempt: Callable[[], Awaitable[bool]]) -> bool:
    """A broker may also hang up on what it does not like."""
    try:
        return await attempt()
    except EdgePandaError:
        return False


class _Trial:
    """What is tried out at a broker, each on connections of its own."""

    def __init__(self, address: BrokerAddress, topic: str, within: float) -> None:
        self.topic, self.within = topic, within
        self._address = address

    async def round_trip(self) -> float | None:
        """The median of several; None where a message did not come back, as an access list has it.

        Of several small packets TCP holds all but the first back until that is acknowledged, which our kernel does late
        while we have nothing to send: so a broker without TCP_NODELAY shows (44 ms on Linux). Hence two messages at
        once, acknowledged by the broker (QoS 1) and not by us (QoS 0).
        """
        times = []
        loop = asyncio.get_running_loop()
        async with _connected(_Client(self._address, self.topic, qos=0)) as client:
            for number in range(ROUNDS):
                first, second = (number.to_bytes(1, "big") + os.urandom(15) for _ in range(2))
                began = loop.time()
                for payload in (first, second):
                    client.link.publish(self.topic, payload, qos=1, retain=False)
                if await client.wait_for(second, self.within) is False:
                    return None
                times.append(loop.time() - began)
        return statistics.median(times)

    async def large(self) -> bool:
        """Whether a message of the largest size that we send comes back."""
        topic, payload = f"{self.topic}/large", os.urandom(LARGEST)
        async with _connected(_Client(self._address, topic)) as client:
            client.link.publish(topic, payload, qos=1, retain=False)
            return await client.wait_for(payload, self.within) is not False

    async def retained(self) -> bool:
        """Whether who comes later gets a retained message; it is taken away again."""
        topic, payload = f"{self.topic}/retained", os.urandom(16)
        async with _connected(_Client(self._address, topic)) as client:
            client.link.publish(topic, payload, qos=1, retain=True)
            if await client.wait_for(payload, self.within) is False:
                return False
            try:
                async with _connected(_Client(self._address, topic)) as later:
                    return await later.wait_for(payload, self.within) is None
            finally:
                await self._forget(client, topic)

    async def will(self) -> bool:
        """Whether the broker speaks for a client that is gone without goodbye."""
        topic, payload = f"{self.topic}/will", os.urandom(16)
        async with _connected(_Client(self._address, topic)) as client:
            will = Will(topic, payload)
            async with _connected(_Client(self._address, topic, will=will, listens=False), goodbye=False):
                pass
            heard = await client.wait_for(payload, self.within) is not False
            await self._forget(client, topic)
            return heard

    async def _forget(self, client: _Client, topic: str) -> None:
        client.link.publish(topic, b"", qos=1, retain=True)
        await client.link.flush(self.within)


async def _connect_time(address: BrokerAddress, within: float) -> float | None:
    """The quickest of three TCP connections: one way there and back, without the broker's own work."""
    times = []
    loop = asyncio.get_running_loop()
    for _ in range(3):
        began = loop.time()
        try:
            async with asyncio.timeout(within):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, TimeoutError):
            return None
        times.append(loop.time() - began)
        writer.close()
    return min(times)


def judge(facts: BrokerFacts) -> list[Finding]:
    """No connection is a fault; what is slow or missing is told with what it does to us."""
    where = facts.address
    if facts.error is not None:
        return [of_error(facts.error, cure=_cure(facts))]
    if facts.subscribe_error is not None or facts.round_trip is None:
        return [
            warning(
                code="broker_untried",
                where=where,
                found="it takes us, but its access list does not let us try it out, so that its speed is not known",
                cure="let this user read and write BASE/v1/doctor/# (BASE is [site] base)",
            )
        ]
    found = [*_speed(facts), *_lacks(facts)]
    quick = f"{facts.round_trip * 1000:.1f} ms there and back"
    return found or [ok(where=where, found=f"{quick}; retained messages, wills and {LARGEST // 1024} KiB pass")]


def _cure(facts: BrokerFacts) -> str:
    if facts.embedded and facts.error is not None and facts.error.code == "broker_unreachable":
        return "`edgepanda up` starts it, with all that this configuration enables"
    return ""


def _speed(facts: BrokerFacts) -> list[Finding]:
    round_trip, connect = facts.round_trip or 0.0, facts.connect or 0.0
    told = f"a small message takes {round_trip * 1000:.0f} ms there and back, TCP itself {connect * 1000:.1f} ms"
    if round_trip - 2 * connect > DELAYED:
        cure = "Mosquitto: `set_tcp_nodelay true` in its configuration; other brokers have a like setting"
        return [warning(code="broker_delays", where=facts.address, found=f"{told}: no TCP_NODELAY there", cure=cure)]
    if round_trip > SLOW:
        cure = "look at the network's way there: Wi-Fi power saving, a weak signal, a busy broker"
        return [warning(code="broker_slow", where=facts.address, found=told, cure=cure)]
    return []


def _lacks(facts: BrokerFacts) -> list[Finding]:
    what = {
        f"it does not pass on messages of {LARGEST} bytes": facts.large is False,
        "it does not keep retained messages, by which nodes and coordinator find each other": facts.retained is False,
        "it does not send the will of a client that is gone": facts.will is False,
    }
    cure = "allow it in the broker's configuration; Mosquitto: max_packet_size, retain_available, the access list"
    return [
        Finding(level="fault", code="broker_lacks", where=facts.address, found=text, cure=cure)
        for text, lacks in what.items()
        if lacks
    ]
