"""A whole site in one process, without broker, drivers and waiting: the real coordinator and the real nodes, a network
in memory that loses, doubles and reorders what it is told to, a clock that the test moves, and a world that notes what
really began.

Everything else is real: ledger, journals, documents, identities, the JSON of every body.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec

from edgepanda.coordinator import daemon as coordinator_daemon
from edgepanda.coordinator import deadlines, moment
from edgepanda.coordinator.daemon import Coordinator, site_key_path
from edgepanda.drivers.contract import CallResult, DriverError
from edgepanda.errors import EdgePandaError
from edgepanda.model import config
from edgepanda.model.card import Action, Capability, Card, Replay
from edgepanda.model.ids import new_id
from edgepanda.node import attempts as node_attempts
from edgepanda.node import daemon as node_daemon
from edgepanda.node.breaker import Breakers
from edgepanda.node.daemon import NodeDaemon
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from edgepanda.wire import clock, messages, topics
from edgepanda.wire.bus import Message
from edgepanda.wire.topics import Topic

TTL, BEAT = 30.0, 10.0


class Time(asyncio.SelectorEventLoop):
    """A loop whose clock, and everybody's, stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__()

    def time(self) -> float:
        return self.now

    def moment(self) -> deadlines.Now:
        return deadlines.Now(boottime=self.now, boot="boot", wall=1.7e9 + self.now, synchronised=True)


class Packet(msgspec.Struct, frozen=True):
    """One body under way, as bytes."""

    topic: Topic
    name: str
    kid: str
    body: bytes
    retain: bool

    @property
    def where(self) -> str:
        return self.topic.pattern.replace("{node}", self.name).replace("{client}", self.name)


class Net:
    """Who is connected, and what flies."""

    def __init__(self) -> None:
        self.buses: list[QuietBus] = []
        self.flying: list[Packet] = []
        self.said = 0
        self.recorded: list[Packet] = []  # what has reached somebody
        self.kept: dict[str, Packet] = {}  # retained
        self.link = True
        self.heard: Callable[[], bool] = lambda: True

    def put(self, packet: Packet) -> None:
        self.said += 1
        self.flying.append(packet)
        if packet.retain:
            self.kept[packet.where] = packet

    def deliver(self, place: int = 0) -> None:
        packet = self.flying.pop(place)
        if self.hand_over(packet) and self.heard():
            self.recorded.append(packet)

    def hand_over(self, packet: Packet) -> bool:
        return any([bus.take(packet, retained=False) for bus in list(self.buses)])

    def cut(self) -> None:
        """The broker is gone, and all that it had."""
        self.link = False
        self.flying.clear()
        self.kept.clear()
        for bus in self.buses:
            bus.down()

    def mend(self) -> None:
        self.link = True
        for bus in list(self.buses):
            bus.came_up()


class QuietBus:
    """What the daemons see of the wire; the interface of `edgepanda.wire.bus.Bus`."""

    def __init__(self, net: Net, identity: Identity, directory: Any, site: str, on_up: Any, on_down: Any) -> None:
        self.net, self.identity, self.directory, self.site = net, identity, directory, site
        self.counts: Counter[str] = Counter()
        self.pending: dict[str, tuple[Topic, str, bytes]] = {}
        self.link = SimpleNamespace(last_error=None)
        self.up = False
        self._on_up, self._on_down = on_up, on_down
        self._handlers: dict[str, tuple[Callable[[Message], None], str]] = {}

    def subscribe(self, topic: Topic, handler: Callable[[Message], None], **names: str) -> None:
        self._handlers[topic.pattern] = (handler, next(iter(names.values()), ""))

    def start(self) -> None:
        self.net.buses.append(self)
        if self.net.link:
            asyncio.get_running_loop().call_soon(self.came_up)

    def came_up(self) -> None:
        if self in self.net.buses and not self.up:
            self.up = True
            for packet in list(self.net.kept.values()):
                self.take(packet, retained=True)
            self._on_up()
            self.resend()

    def down(self) -> None:
        if self.up:
            self.up = False
            self._on_down()

    async def stop(self) -> None:
        self.up = False
        if self in self.net.buses:
            self.net.buses.remove(self)

    def kill(self) -> None:
        self.up = False
        self.net.buses.remove(self)

    def send(self, topic: Topic, body: messages.Body, **names: str) -> None:
        self._put(topic, next(iter(names.values()), ""), msgspec.json.encode(body), retain=False)

    def retain(self, topic: Topic, body: messages.Body, **names: str) -> None:
        self._put(topic, next(iter(names.values()), ""), msgspec.json.encode(body), retain=True)

    def clear(self, _topic: Topic, **_names: str) -> None:
        """Nothing is kept here that could be cleared."""

    def deliver(self, topic: Topic, body: messages.Body, **names: str) -> None:
        encoded, name = msgspec.json.encode(body), next(iter(names.values()), "")
        self.pending[body.id] = (topic, name, encoded)
        self._put(topic, name, encoded, retain=False)

    def settle(self, ids: Any) -> None:
        for body_id in ids:
            self.pending.pop(body_id, None)

    def waits_for(self, body_id: str) -> bool:
        return body_id in self.pending

    def resend(self) -> None:
        for topic, name, body in self.pending.values():
            self._put(topic, name, body, retain=False)

    def _put(self, topic: Topic, name: str, body: bytes, *, retain: bool) -> None:
        if self.up:
            self.net.put(Packet(topic, name, self.identity.kid, body, retain))

    def take(self, packet: Packet, *, retained: bool) -> bool:
        handler, name = self._handlers.get(packet.topic.pattern, (None, ""))
        sender = self.directory.get(packet.kid)
        if not self.up or handler is None or sender is None or name not in ("", packet.name):
            return False
        kind = messages.ALL[msgspec.json.decode(packet.body)["type"]]
        body = msgspec.json.decode(packet.body, type=kind)
        try:
            handler(Message(body, sender, packet.topic, packet.name, retained))
        except Exception as error:  # what the real bus counts and logs is a fault here
            raise AssertionError(f"a {kind.__name__} could not be handled: {error}") from error
        return True


class Call:
    """A driver's call that has begun and not ended."""

    def __init__(self, task: str, attempt: int, node: str) -> None:
        self.task, self.attempt, self.node = task, attempt, node
        self.answer: asyncio.Future[CallResult] = asyncio.get_running_loop().create_future()


class World:
    """What drivers really did."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, str]] = []
        self.done: set[tuple[str, int]] = set()  # with success
        self.calls: list[Call] = []
        self.obeys = True  # a cancelled call ends

    def end(self, call: Call, how: str) -> None:
        """`done`, `bare` (done, and a criterion is not answered), `failed`, `died` (nobody knows)."""
        self.calls.remove(call)
        if call.answer.done():
            return
        if how in ("done", "bare"):
            self.done.add((call.task, call.attempt))
            answers = ({"criterion": "it is so", "met": True, "evidence": "seen"},) if how == "done" else ()
            raw = {"outcome": "succeeded", "evidence": ({"kind": "seen"},), "answers": answers}
            call.answer.set_result(msgspec.convert(raw, CallResult))
        elif how == "failed":
            call.answer.set_exception(DriverError("it did not work", code="io"))
        else:
            call.answer.set_exception(DriverError("the host died", code="io", details={"unknown": True}))


class NeverOpen(Breakers):
    """Devices that are never left alone, however often they fail."""

    def failed(self, _name: str, _error: EdgePandaError) -> None:
        pass


class QuietDevices:
    """The interface of `edgepanda.node.devices.Devices`: two commands, `job.safe` and `job.unsafe`."""

    def __init__(self, world: World, node: str) -> None:
        self.world, self.node = world, node
        self.things: dict[str, Any] = {}
        self.breakers: Breakers = NeverOpen(lambda: None)

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        for call in [c for c in self.world.calls if c.node == self.node]:
            self.world.end(call, "died")

    async def safe(self, _name: str | None = None) -> None:
        for call in [c for c in self.world.calls if c.node == self.node]:
            if not call.answer.done():
                self.world.calls.remove(call)
                call.answer.set_exception(DriverError("brought to the safe state", code="cancelled"))

    def link_losses(self) -> dict[str, float]:
        return {}

    def remembers(self, _name: str) -> bool:
        return False

    def attaches(self, _name: str) -> bool:
        return False

    def reading_action(self, _name: str) -> str | None:
        return None

    def action(self, name: str, _action: str) -> Action:
        if name not in ("job.safe", "job.unsafe"):
            raise EdgePandaError(f"no {name}", code="unknown_device", where="here")
        return _action_of(name)

    async def call(self, _name: str, _action: str, _args: Any, *, task: str, attempt: int, **_rest: Any) -> CallResult:
        self.world.begun.append((task, attempt, self.node))
        call = Call(task, attempt, self.node)
        self.world.calls.append(call)
        return await call.answer

    async def cancel(self, _name: str, task: str, attempt: int) -> bool:
        found = [c for c in self.world.calls if (c.task, c.attempt, c.node) == (task, attempt, self.node)]
        if found and self.world.obeys:
            self.world.calls.remove(found[0])
            if not found[0].answer.done():
                found[0].answer.set_exception(DriverError("stopped", code="cancelled"))
        return bool(found)

    def card(self, _settings: Any, *, node: str, revision: int, incarnation: int) -> Card:
        names = ("job.safe", "job.unsafe")
        own = {name: Capability(action=_action_of(name), state="ready") for name in names}
        return Card(node=node, revision=revision, incarnation=incarnation, slots=2, capabilities=own)


def _action_of(name: str) -> Action:
    replay: Replay = "safe" if name == "job.safe" else "unsafe"
    return Action(tier=1, replay=replay, on_busy="queue", timeout=300.0)


class QuietSite:
    """The site. Make it within `quiet()`; everything runs in `settle`."""

    def __init__(self, folder: Path, time: Time, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
        self.folder, self.time, self.net, self.world = folder, time, Net(), World()
        self.operator = Identity.load_or_create(folder / "operator.key")
        self.replies: dict[str, messages.Reply] = {}
        self._counter = 0
        self._runs: dict[Any, asyncio.Task[None]] = {}
        Identity.load_or_create(site_key_path(self._loaded("site")))
        self.coordinator = self._start_coordinator()
        self._let_in(Peer(key=encode_key(self.operator.public), name="me", role="operator"))
        self._client = QuietBus(self.net, self.operator, self.coordinator.peers.directory, "home", _nothing, _nothing)
        self._client.subscribe(topics.REPLY, self._on_reply, client=self.operator.kid)
        self._client.start()
        self.net.heard = lambda: self.coordinator._serving  # before that it listens to nobody
        self.nodes = {name: self._start_node(name) for name in nodes}
        for node in self.nodes.values():
            self._let_in(Peer(key=encode_key(node.identity.public), name=node.name, role="node"))

    # starting and killing

    def _loaded(self, name: str) -> config.Loaded:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        made = config.Config(
            site=config.Site(name="home"),
            coordinator=config.Coordinator(lease_ttl=TTL),
            node=config.Node(name=name, slots=2, beat=BEAT, drain=0.0),
        )
        return config.Loaded(made, folder / "edgepanda.toml", folder)

    def _let_in(self, peer: Peer) -> None:
        if peer.name not in {p.name for p in self.coordinator.peers.list.peers}:
            self.coordinator.peers.add(peer)

    def _start_coordinator(self) -> Coordinator:
        coordinator = Coordinator(self._loaded("site"))
        self._run(coordinator)
        return coordinator

    def _start_node(self, name: str) -> NodeDaemon:
        node = NodeDaemon(self._loaded(name), site_key=self._site_key())
        self._run(node)
        return node

    def _site_key(self) -> bytes:
        return Identity.load(site_key_path(self._loaded("site"))).public

    def _run(self, daemon: Any) -> None:
        task = asyncio.get_running_loop().create_task(daemon.run())
        self._runs[daemon] = task

    async def _end(self, daemon: Any) -> None:
        task = self._runs.pop(daemon)
        task.cancel()
        while not task.done():
            self.time.now += 0.01  # it may wait for somebody, for so long
            await asyncio.sleep(0)

    async def restart_coordinator(self) -> None:
        """kill -9 and a new start: what is not with the disk is gone."""
        old = self.coordinator
        if hasattr(old, "bus") and old.bus in self.net.buses:
            old.bus.kill()
        old.ledger.close()
        await self._end(old)
        self.coordinator = self._start_coordinator()
        self._client.directory = self.coordinator.peers.directory

    async def restart_node(self, name: str) -> None:
        """kill -9 and a new start; its drivers' hosts die with it."""
        old = self.nodes[name]
        if old._bus in self.net.buses:
            old._bus.kill()
        old.journal.close()
        for attempt in list(old.attempts.running.values()):
            if attempt.runner is not None:
                attempt.runner.cancel()
        await self._end(old)
        self.world.calls = [c for c in self.world.calls if c.node != name]
        self.nodes[name] = self._start_node(name)

    async def close(self) -> None:
        for daemon in list(self._runs):
            await self._end(daemon)

    # letting things happen

    async def settle(self) -> None:
        """Until nobody has anything left to do at this moment, disks included."""
        quiet = 0
        while quiet < 3:
            before = self.net.said, len(self.world.begun), self.coordinator.ledger.head
            for _ in range(6):
                await asyncio.sleep(0)
            stores = [self.coordinator.ledger._store, *(n.journal._store for n in self.nodes.values())]
            await asyncio.gather(*(store.write(_no_write) for store in stores if not store._closed))
            after = self.net.said, len(self.world.begun), self.coordinator.ledger.head
            quiet = quiet + 1 if before == after else 0

    async def deliver_all(self) -> None:
        """Until nothing flies."""
        await self.settle()
        while self.net.flying:
            while self.net.flying:
                self.net.deliver()
            await self.settle()

    async def pass_time(self, seconds: float) -> None:
        """In steps, as timers run in order."""
        end = self.time.now + seconds
        while self.time.now < end:
            self.time.now = min(end, self.time.now + max(0.5, seconds / 8))
            await self.settle()

    def resend(self) -> None:
        for bus in list(self.net.buses):
            if bus.up:
                bus.resend()

    async def calm(self, seconds: float = 20.0) -> None:
        """A while in which nothing is lost."""
        for _ in range(int(seconds)):
            self.resend()
            await self.deliver_all()
            await self.pass_time(1.0)
        await self.deliver_all()

    # asking

    def ask(self, method: str, **params: Any) -> str:
        """Send a request; gives its id. Its answer is in `replies` when it has been delivered."""
        changes = method in ("task.cancel", "task.resolve", "task.review")
        self._counter += 1
        counter = self._counter if changes else None
        request = messages.Request(id=new_id(), method=method, params=params, counter=counter)
        self._client.deliver(topics.REQUEST, request)
        return request.id

    def _on_reply(self, message: Message) -> None:
        self.replies[message.body.id] = message.body
        self._client.settle((message.body.id,))

    def state(self, task: str) -> str:
        row = self.coordinator.ledger.task(task)
        return row.state if row is not None else "unknown"


def _no_write(_connection: Any) -> None:
    pass


def _nothing() -> None:
    pass


@contextlib.contextmanager
def quiet() -> Iterator[Time]:
    """A loop with its own time, and all clocks and edges of the daemons in its hands."""
    time = Time()
    nets: dict[str, Any] = {}

    def bus(_address: Any, identity: Identity, directory: Any, **rest: Any) -> QuietBus:
        return QuietBus(nets["site"].net, identity, directory, rest["site"], rest["on_up"], rest["on_down"])

    def devices(_things: Any, _memory: Any, run_dir: Path, **_: Any) -> QuietDevices:
        return QuietDevices(nets["site"].world, run_dir.parent.name)

    async def no_socket(_self: Any) -> None:
        pass

    def remember(site: QuietSite, *args: Any, **kwargs: Any) -> None:
        nets["site"] = site
        made(site, *args, **kwargs)

    made = QuietSite.__init__

    def boottime() -> float:
        return time.now

    with contextlib.ExitStack() as stack:
        for owner, name, value in (
            (coordinator_daemon, "Bus", bus),
            (coordinator_daemon, "boottime", boottime),
            (coordinator_daemon, "Clock", lambda: time.moment),
            (moment, "boottime", boottime),
            (node_daemon, "Bus", bus),
            (node_daemon, "Devices", devices),
            (node_daemon.LocalSocket, "start", no_socket),
            (node_daemon.Inventory, "look", no_socket),
            (node_daemon.Hotplug, "start", lambda _self: None),
            (node_attempts, "boottime", boottime),
            (clock, "boottime", boottime),
            (clock, "_last_ms", 0),
            (QuietSite, "__init__", remember),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        try:
            yield time
        finally:
            _close(time)


def _close(loop: Time) -> None:
    """Whatever is left, of a test that failed for example, ends; also what waits for a time."""

    async def end() -> None:
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        while not all(task.done() for task in left):
            loop.now += 0.01
            await asyncio.sleep(0)
        await asyncio.gather(*left, return_exceptions=True)

    loop.run_until_complete(end())
    loop.close()
