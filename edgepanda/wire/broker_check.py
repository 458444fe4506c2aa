"""Tries a broker as EdgePanda uses it, and tells what was seen; `model.broker_needs.judge` says what is missing.

Everything happens below two topics with random names, and nothing is left there: what is retained is cleared at the
end, and by wills should this process be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from edgepanda.model.broker import BrokerAddress
from edgepanda.model.broker_needs import LARGEST_NEEDED, Observed
from edgepanda.wire.link import LinkError
from edgepanda.wire.probe import REFUSED, Came, Hungup, Probe, Will

T = TypeVar("T")

ANSWER_WITHIN = 4.0  # seconds for what should come at once
SILENCE_WITHIN = 10.0  # seconds for a broker to notice one that has a keepalive of 1 s
EMPTY_WITHIN = 1.5  # seconds for a broker to take an empty will; amqtt does not even answer
CLEAN_WITHIN = 3.0  # seconds for leaving nothing behind
ROUNDS = 60  # round trips that are measured
_LESS = (16 * 1024, LARGEST_NEEDED)  # bytes of the payloads that are tried

_ALWAYS = frozenset({"topics", "qos", "retained", "will", "largest"})  # tried of every broker that lets us in


async def observe(
    address: BrokerAddress, *, base: str = "edgepanda", within: float = 30.0, quick: bool = False
) -> Observed:
    """All that can be seen of a broker within so many seconds. `base`: of the site's topics, which an access list may
    name. `quick`: without what takes seconds, such as a silent client. Never raises for what
    the broker does: that is in the result.
    """
    trial = _Trial(address, base)
    seen = Observed(address=str(address), host=address.host, tls=address.tls, user=address.username)
    try:
        async with asyncio.timeout(within):
            await trial.run(quick=quick)
    except LinkError as error:
        return msgspec.structs.replace(seen, failure=error.code, failure_text=error.message)
    except TimeoutError:
        if not trial.entered:
            return msgspec.structs.replace(
                seen, failure="broker_unreachable", failure_text="it does not answer in time"
            )
        trial.trying |= _ALWAYS - trial.facts.keys()  # what was not even begun
    finally:
        await trial.clean()
    return msgspec.structs.replace(seen, **trial.facts, unanswered=tuple(sorted(trial.trying)))


class _Trial:
    """The connections of one check, and what it found."""

    def __init__(self, address: BrokerAddress, base: str) -> None:
        self._address = address
        self._name = secrets.token_hex(4)
        self._below = f"{base}/v1/check/{self._name}"
        self._open: list[Probe] = []
        self._dirty = False  # something may be retained
        self._session = ""  # the client id of a session that is kept
        self.entered = False
        self.facts: dict[str, Any] = {}
        self.trying: set[str] = set()

    async def run(self, *, quick: bool = False) -> None:
        """All of it. Raises `LinkError` when there is no way in."""
        main = await self._enter("main")
        self.entered = True
        self._read_certificate(main)
        if not await self._try("topics", self._topics(main)):
            return
        if not await self._try("qos", self._qos()):
            return
        if quick:
            await self._speed()
            await asyncio.gather(self._keeping(main), self._try("largest", self._largest()))
            return
        await asyncio.gather(self._version(), self._try("anonymous", self._anonymous()))
        await self._speed()
        await self._keeping(main)
        checks: dict[str, Awaitable[Any]] = {
            "largest": self._largest(),
            "keepalive": self._keepalive(),
            "takeover": self._takeover(),
            "session": self._kept_session(main),
            "past_acl": self._past_acl(main),
        }
        if self._address.username and not self.facts.get("anonymous"):
            checks["stranger"] = self._stranger()
        await asyncio.gather(*(self._try(name, check) for name, check in checks.items()))

    async def clean(self) -> None:
        """Leave nothing behind, whatever happened; also when this task was cancelled."""
        cleaning = asyncio.ensure_future(self._clean())
        with contextlib.suppress(TimeoutError, OSError, LinkError):
            async with asyncio.timeout(CLEAN_WITHIN):
                await asyncio.shield(cleaning)
        cleaning.cancel()

    async def _clean(self) -> None:
        if self._dirty:
            broom = await self._enter("broom")
            await broom.publish(self._topic("kept"), b"", retain=True)
        if self._session:
            await self._enter(self._session, named=True)
        for probe in self._open:
            await probe.disconnect()

    # connections

    def _topic(self, name: str) -> str:
        return f"{self._below}/{name}"

    async def _enter(self, name: str, *, named: bool = False, **more: Any) -> Probe:
        """A connected client. Raises `LinkError`."""
        probe = await self._knock()
        credentials: dict[str, Any] = {"user": self._address.username, "password": self._address.password}
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                code, _ = await probe.connect(name if named else self._id(name), **credentials, **more)
        except Hungup:
            raise LinkError("it hangs up where it should let us in", code="broker_refused", where="") from None
        except TimeoutError:
            raise LinkError("what is there does not answer as a broker", where="") from None
        if code:
            why = {1: "it does not speak MQTT 3.1.1", 2: "it refuses the client id", 3: "it is not ready"}
            raise LinkError(why.get(code, "it refuses user and password"), code="broker_refused", where="")
        return probe

    async def _knock(self) -> Probe:
        probe = await Probe.open(self._address)
        self._open.append(probe)
        return probe

    def _id(self, name: str) -> str:
        return f"epc-{self._name}-{name}"[:23]  # what every server takes

    async def _try(self, name: str, check: Awaitable[Any]) -> Any:
        """What a check says, as a fact; a broker that hangs up or is silent has not done it."""
        self.trying.add(name)
        try:
            async with asyncio.timeout(SILENCE_WITHIN + ANSWER_WITHIN):
                self.facts[name] = await check
        except (Hungup, LinkError, TimeoutError):
            self.facts[name] = False
        self.trying.discard(name)
        return self.facts[name]

    # what is looked at

    def _read_certificate(self, main: Probe) -> None:
        until = main.certificate.get("notAfter")
        if isinstance(until, str):
            self.facts["certificate_until"] = float(ssl.cert_time_to_seconds(until))

    async def _version(self) -> None:
        """As most brokers tell it."""
        with contextlib.suppress(Hungup, LinkError, TimeoutError):
            asker = await self._enter("version")
            async with asyncio.timeout(1.0):
                await asker.subscribe("$SYS/broker/version", 0)
                told = await asker.next("$SYS/broker/version")
                self.facts["version"] = told.payload.decode(errors="replace")[:80]

    async def _topics(self, main: Probe) -> bool:
        topic = self._topic("a")
        return await _soon(main.subscribe(f"{self._below}/#", 0)) != REFUSED and await _echo(main, topic) is not None

    async def _anonymous(self) -> bool:
        if not self._address.username:
            return True
        probe = await self._knock()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return (await probe.connect(self._id("nobody")))[0] == 0
        except (Hungup, TimeoutError):
            return False

    async def _speed(self) -> None:
        """One connection says and hears, so that delivery and acknowledgement are two small packets to it, which it
        does not answer: without TCP_NODELAY the second waits for our kernel to acknowledge the first.
        """
        probe, topic = await self._enter("speed"), self._topic("speed")
        answers, rounds = [], []
        with contextlib.suppress(Hungup, TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN * 2):
                await probe.subscribe(topic, 0)
                for _ in range(ROUNDS // 3):
                    answers.append(await _timed(probe.ping))
                for _ in range(ROUNDS):
                    probe.acknowledge_late()
                    rounds.append(await _timed(lambda: _there_and_back(probe, topic)))
        if len(rounds) > ROUNDS // 10:
            steady = sorted(rounds)
            self.facts |= {"answer": statistics.median(answers), "round_trip": statistics.median(steady)}
            self.facts["round_trip_p95"] = steady[int(len(steady) * 0.95)]

    async def _qos(self) -> bool:
        probe, topic = await self._enter("qos"), self._topic("qos")
        if await _soon(probe.subscribe(topic, 1)) != 1:
            return False
        came = await _echo(probe, topic, qos=1)
        return came is not None and came.qos == 1

    async def _largest(self) -> int:
        through = 0
        for size in _LESS:
            probe, topic = await self._enter(f"large{size}"), self._topic("large")
            try:
                await _soon(probe.subscribe(topic, 1))
                came = await _echo(probe, topic, bytes(size), qos=1)
            except (Hungup, TimeoutError):
                came = None
            if came is None or len(came.payload) != size:
                break
            through = size
        return through

    async def _keepalive(self) -> bool:
        probe = await self._enter("silent", keepalive=1)
        return await _within(SILENCE_WITHIN, probe.closed.wait())

    async def _takeover(self) -> bool:
        old = await self._enter("twin")
        new = await self._enter("twin")
        topic = self._topic("twin")
        heard = await _soon(new.subscribe(topic)) != REFUSED and await _echo(new, topic) is not None
        return heard and await _within(ANSWER_WITHIN, old.closed.wait())

    async def _stranger(self) -> bool:
        """True is bad: somebody with a wrong password has disturbed who has the right one."""
        ours, topic = await self._enter("known"), self._topic("known")
        await _soon(ours.subscribe(topic))
        for clean in (True, False):
            with contextlib.suppress(Hungup, TimeoutError):
                stranger = await self._knock()
                wrong: dict[str, Any] = {"user": self._address.username, "password": secrets.token_urlsafe(9)}
                await _soon(stranger.connect(self._id("known"), **wrong, clean=clean))
        try:
            return await _echo(ours, topic) is None
        except Hungup:
            return True

    async def _kept_session(self, main: Probe) -> bool:
        name, topic = self._id("session"), self._topic("session")
        self._session = name
        first = await self._enter(name, named=True, clean=False)
        await _soon(first.subscribe(topic, 1))
        await first.disconnect()
        await _soon(main.publish(topic, b"1"))
        again = await self._enter(name, named=True, clean=False)
        return await _within(1.0, again.next(topic))

    async def _past_acl(self, main: Probe) -> bool:
        """Whether a wide filter gives what the exact one does not, on a topic that the access list may not allow."""
        topic = f"edgepanda-check-{self._name}/x"
        narrow = await self._enter("narrow")
        if await self._hears(narrow, main, topic, topic):
            return False  # allowed anyway
        for number, wide in enumerate((f"edgepanda-check-{self._name}/#", "+/x")):
            if await self._hears(await self._enter(f"wide{number}"), main, wide, topic):
                return True
        return False

    async def _hears(self, probe: Probe, other: Probe, topic_filter: str, topic: str) -> bool:
        """Whether a message on the topic comes by this filter, before one on a topic of ours that is sent after it."""
        marker = self._topic(f"marker/{secrets.token_hex(3)}")
        try:
            granted = await _soon(probe.subscribe(topic_filter))
            await _soon(probe.subscribe(marker))
            await _soon(other.publish(topic, b"x", qos=0))
            await _soon(other.publish(marker, b"x", qos=0))
            before = await _soon(probe.until(marker))
        except (Hungup, TimeoutError):
            return False
        return granted != REFUSED and any(came.topic == topic for came in before)

    # what is retained: a client clears it by its will, should all of this be killed

    async def _keeping(self, main: Probe) -> None:
        topic = self._topic("kept")
        self._dirty = True
        if not await self._guarded(topic):
            self.facts["retained"] = False  # nobody of EdgePanda could connect
        elif await self._try("retained", self._retained(topic)):
            await self._try("retained_leaks", self._leaks(topic))
            await self._try("retained_wildcard", self._finds(topic, self._topic("+")))
            await self._try("retained_cleared", self._cleared(topic))
        await self._try("will", self._will(main))

    async def _guarded(self, topic: str) -> bool:
        """Whether a retained will is taken, as all of EdgePanda's processes have one; an empty one guards the topic."""
        with contextlib.suppress(LinkError, TimeoutError):
            async with asyncio.timeout(EMPTY_WITHIN):
                await self._enter("guard", will=Will(topic, b"", retain=True))
                return True
        with contextlib.suppress(LinkError):  # some take no empty will
            await (await self._enter("guard", will=Will(topic, b"x", retain=True))).disconnect()
            return True
        return False

    async def _retained(self, topic: str) -> bool:
        probe = await self._enter("keeper")
        await _soon(probe.publish(topic, b"kept", retain=True))
        return await self._finds(topic, topic)

    async def _finds(self, topic: str, topic_filter: str) -> bool:
        probe = await self._enter(f"f{secrets.token_hex(2)}")
        if await _soon(probe.subscribe(topic_filter)) == REFUSED:
            return False
        came = await _soon(probe.next(topic))
        return came.retain and came.payload == b"kept"

    async def _leaks(self, topic: str) -> bool:
        """True is bad: a new client gets what somebody else has subscribed to."""
        probe, marker = await self._enter("newcomer"), self._topic("newcomer")
        await _soon(probe.subscribe(marker))
        await _soon(probe.publish(marker, b"x", qos=0))
        return any(came.topic == topic for came in await _soon(probe.until(marker)))

    async def _cleared(self, topic: str) -> bool:
        probe, marker = await self._enter("clearer"), self._topic("clearer")
        await _soon(probe.publish(topic, b"", retain=True))
        await _soon(probe.subscribe(topic))
        await _soon(probe.subscribe(marker))
        await _soon(probe.publish(marker, b"x", qos=0))
        return not any(came.topic == topic and came.payload for came in await _soon(probe.until(marker)))

    async def _will(self, main: Probe) -> bool:
        topic = self._topic("will")
        dying = await self._enter("dying", will=Will(topic, b"gone", retain=False))
        await dying.hang_up()
        return (await _soon(main.next(topic))).payload == b"gone"


async def _soon(work: Awaitable[T]) -> T:
    """What should be there at once. Raises `TimeoutError`."""
    async with asyncio.timeout(ANSWER_WITHIN):
        return await work


async def _within(seconds: float, work: Awaitable[Any]) -> bool:
    """True if it is over in time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work
            return True
    return False


async def _echo(probe: Probe, topic: str, payload: bytes = b"x", *, qos: int = 0) -> Came | None:
    """What comes back of a message to itself, or None. Raises `Hungup`."""
    with contextlib.suppress(TimeoutError):
        await _soon(probe.publish(topic, payload, qos=qos))
        return await _soon(probe.next(topic))
    return None


async def _there_and_back(probe: Probe, topic: str) -> None:
    await asyncio.gather(probe.publish(topic, b"x" * 64), probe.next(topic))


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began
