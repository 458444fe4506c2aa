"""The node's process: wires journal, devices, attempts, bus and local socket together.

Nothing that is missing ends it: no broker, no coordinator, no driver. What cannot be had is on the card, in the status
or in the log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.config_reload import on_hangup
from edgepanda.drivers.contract import Probe
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Card
from edgepanda.model.config import Loaded
from edgepanda.model.ids import new_id
from edgepanda.node import cards
from edgepanda.node.arbiter import Arbiter
from edgepanda.node.attempts import Attempts
from edgepanda.node.configured import configured
from edgepanda.node.deadman import DeadMan
from edgepanda.node.devices import Devices
from edgepanda.node.direct import direct_task
from edgepanda.node.emergency import Emergency
from edgepanda.node.hotplug import Hotplug
from edgepanda.node.inventory import Inventory
from edgepanda.node.live_output import LiveOutput
from edgepanda.node.logs import LogRing
from edgepanda.node.memory import Memory
from edgepanda.node.methods import Method, converted
from edgepanda.node.probe import probe
from edgepanda.node.reload import Reloader
from edgepanda.node.reporter import Reporter
from edgepanda.node.requests import NodeRequests
from edgepanda.node.site import Site
from edgepanda.node.socket import LocalSocket
from edgepanda.node.state import WritableAgain, open_state, until_writable
from edgepanda.node.work_folders import keep_tidy
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from edgepanda.wire import messages, topics
from edgepanda.wire.bus import Bus, Message, Refused
from edgepanda.wire.clock import boot_id, boottime, stamp
from edgepanda.wire.requests import LogPage, Logs

log = logging.getLogger("edgepanda.node")

STOP_EVENT = "emergency_stop"  # what the driver of a stop button tells
HELLO_SPREAD = 0.2  # seconds over which nodes spread their answers to a coordinator's hello
RECOVER_WITHIN = 15.0  # seconds that open attempts of an earlier run wait for their drivers
LEASE_LOOK = 1.0  # seconds between looks at leases, while anything runs


class _RenamedError(Exception):
    """The site has another name for this node."""


class NodeDaemon:
    """One node. `await run()` serves until cancelled, or until the node has another name, or its disk back."""

    def __init__(
        self,
        loaded: Loaded,
        *,
        site_key: bytes,
        on_ready: Callable[[], None] = lambda: None,
        logs: LogRing | None = None,
    ) -> None:
        """Opens key, journal and documents; one daemon at a time has them. `logs`: what the method of this name tells.

        Raises `EdgePandaError`: `storage_locked` when another daemon has this identity, and what files can raise.
        """
        self.loaded, self._on_ready = loaded, on_ready  # as last reloaded
        self._settings = loaded.require_node()
        self.identity = Identity.load_or_create(node_key_path(loaded))
        wanted = node_name(loaded, self.identity)
        self._state = open_state(loaded.state_dir)
        self.journal, folder = self._state.journal, self._state.folder
        self._memory = Memory(folder / "positions.json")
        self._inventory = Inventory(folder / "hardware.json", on_change=self._card_changed)
        self._site = Site(
            folder / "node-peers.json",
            name=loaded.config.site.name,
            key=site_key,
            me=Peer(key=encode_key(self.identity.public), name=wanted, role="node"),
            journal=self.journal,
        )
        self.name = self._site.name_here or wanted
        self._renamed = asyncio.Event()
        self._reporter = Reporter(self.journal, self.name)
        arbiter = Arbiter(self.journal.newest)
        self._devices = Devices(
            configured(loaded),
            self._memory,
            folder / "run",
            free=lambda name: arbiter.lane(name).free(),
            on_change=self._card_changed,
            on_output=lambda *words: self._output.take(*words),  # noqa: PLW0108 made later
            on_event=self._on_event,
        )
        self.attempts = Attempts(
            devices=self._devices,
            arbiter=arbiter,
            memory=self._memory,
            journal=self.journal,
            reporter=self._reporter,
            work_dir=folder / "work",
        )
        self.attempts.no_disk = self._state.problem
        self._output = LiveOutput(
            self.attempts.running, lambda body: self._bus.send(topics.OUTPUT, body, node=self.name)
        )
        self._dead_man = DeadMan()
        self.attempts.on_begin = lambda a: self._dead_man.commanded(a.device, "site" if a.number else "local")
        self._emergency = Emergency(
            folder / "stops.json",
            site=loaded.config.site.name,
            kid=self.identity.kid,
            directory=self._site.directory,
            devices=self._devices,
            attempts=self.attempts,
            on_change=self._stops_changed,
        )
        self._reloader = Reloader(loaded, self._devices, self._inventory, on_taken=self._take, card=self._present_card)
        self._logs = logs or LogRing()
        self._logs.start = self.journal.incarnation
        methods: dict[str, Method] = {
            "status": self._status,
            "do": self._do,
            "logs": self._read_logs,
            "probe": self._probe,
            **self._emergency.methods(),
            "reload": self._reloader.reload,
            "rescan": self._reloader.rescan,
        }
        self._socket = LocalSocket(folder / "run" / "node.sock", methods)
        self._requests = NodeRequests(methods, incarnation=self.journal.incarnation, send=self._reply)
        self._bus = self._make_bus()
        self._reporter.before_end = self._output.flush
        self._card: Card | None = None
        self._draining = False
        self._cloned = False
        self._recovered = False  # until then nothing is claimed: a claim says what is held
        self._sequence = 0
        self._told = 0  # statuses of this start
        self._newest_claim = ""
        self._early: list[messages.Lease] = []  # came before the coordinator had answered our claim
        self._background: set[asyncio.Task[Any]] = set()
        self._hotplug = Hotplug(lambda: self._spawn(self._look_again()))

    # life

    async def run(self) -> None:
        """Serve until cancelled; then drain, bring the devices to their safe state, and say goodbye.

        Returns where the site has another name for this node, or where its disk can be written again: another daemon
        takes that, and everything else, over.
        """
        self._say_name()
        await self._listen()
        self._card_changed()
        self._bus.start()
        opening = asyncio.create_task(self._open_devices())
        ticking = asyncio.create_task(self._tick())
        beating = asyncio.create_task(self._beat())
        self._spawn(self._inventory.look())
        self._hotplug.start()
        renamed = asyncio.create_task(self._until_renamed())
        restored = asyncio.create_task(until_writable(self._state, lambda: not self.attempts.running))
        self._on_ready()
        try:
            await asyncio.gather(opening, ticking, beating, renamed, restored)
        except WritableAgain:
            log.info("the state folder can be written again: the node begins anew with it")
        except _RenamedError:
            log.warning("the site calls this node %s from now on", self._site.name_here)
        finally:
            await asyncio.shield(self._stop([opening, ticking, beating, renamed, restored]))

    def _say_name(self) -> None:
        wanted = self._settings.name
        if wanted not in ("", self.name):
            log.warning(
                "this node is %s at its site, whatever its configuration says: `edgepanda rename %s` changes both",
                self.name,
                wanted,
            )

    async def _until_renamed(self) -> None:
        await self._renamed.wait()
        raise _RenamedError

    async def _look_again(self) -> None:
        """Hardware has come or gone."""
        try:
            await self._reloader.rescan({})
        except EdgePandaError as error:
            log.error("%s [%s]", error, error.code)
        except Exception:
            log.exception("a look at the hardware failed")

    async def _listen(self) -> None:
        """Without its local socket the node still serves the site."""
        try:
            await self._socket.start()
        except EdgePandaError as error:
            log.error("%s [%s]", error, error.code)

    async def _open_devices(self) -> None:
        """Recovery waits for the drivers: a command that still runs is joined through its host."""
        starting = asyncio.create_task(self._devices.start())
        if self.journal.open_attempts():
            await asyncio.wait([starting], timeout=RECOVER_WITHIN)
        self._reporter.resume(self._bus)
        self.attempts.recover()
        if self._emergency.in_force:  # a command may have outlived us
            self._emergency.halt()
        self._recovered = True
        self._spawn(keep_tidy(self._state.folder / "work", self.attempts.in_use))
        self._say_claim()
        await starting

    async def _stop(self, loops: list[asyncio.Task[None]]) -> None:
        self._draining = True
        self._hotplug.close()
        self._say_claim()
        await self.attempts.drain(self._settings.drain)
        ending = [*loops, *self._background]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._socket.stop()
        self._requests.close()
        await self._devices.close()
        await self._reporter.flush()
        if self._bus.up and self._renamed.is_set():  # what we said last may have come after the coordinator's clearing
            self._bus.clear(topics.CARD, node=self.name)
            self._bus.clear(topics.STATUS, node=self.name)
        elif self._bus.up:
            self._bus.retain(topics.STATUS, self._status_body(False), node=self.name)
        await self._bus.stop()
        self._memory.close()
        self._emergency.close()
        self._inventory.close()
        self._site.close()
        self.journal.close()

    def _make_bus(self) -> Bus:
        site = self.loaded.config.site
        bus = Bus(
            self.loaded.broker_address(),
            self.identity,
            self._site.directory,
            site=site.name,
            base=site.base,
            process="n",
            will=lambda: (topics.STATUS, {"node": self.name}, self._status_body(False)),
            on_up=self._say_who,
            on_down=self._site.lost,
            on_refused=self._refused,
        )
        bus.subscribe(topics.COORDINATOR, self._on_presence)
        bus.subscribe(topics.HELLO, self._on_hello)
        self._emergency.subscribe(bus)
        bus.subscribe(topics.INBOX, self._on_inbox, node=self.name)
        bus.subscribe(topics.STATUS, self._on_own_status, node=self.name)
        bus.subscribe(topics.NODE_REQUEST, lambda m: self._requests.take(m.body, m.sender), node=self.name)
        return bus

    # what we say

    def _status_body(self, online: bool) -> messages.Status:
        self._told += 1
        return messages.Status(
            id=new_id(),
            online=online,
            boot=boot_id(),
            incarnation=self.journal.incarnation,
            peers=self._site.revision,
            stops=self._emergency.standing,
            seq=self._told,
        )

    def _card_changed(self) -> None:
        """A driver has said something of itself: a card that differs gets the next revision."""
        self._present_card()

    def _present_card(self) -> Card:
        revision = self._card.revision if self._card is not None else 0
        card = self._devices.card(
            self._settings, node=self.name, revision=revision + 1, incarnation=self.journal.incarnation
        )
        card = msgspec.structs.replace(card, hardware=self._inventory.hardware)
        if self._card is not None and cards.same(card, self._card):
            return self._card
        self._card = card
        self._say_card()
        self._say_claim()
        return card

    async def hangup(self) -> None:
        """Read the configuration again, and take up what needs no restart; what is wrong is logged."""
        await on_hangup(log, lambda: self._reloader.reload({}))

    def _take(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self._settings = loaded.require_node()
        self._card_changed()  # all of them that a claim says are on the card too

    def _stops_changed(self) -> None:
        self._say_claim()
        if self._bus.up:
            self._bus.retain(topics.STATUS, self._status_body(True), node=self.name)

    def _on_event(self, device: str, name: str, data: Any) -> None:
        if name == STOP_EVENT:
            self._emergency.stop_by_input(device, data)

    def _say_card(self) -> None:
        if self._card is not None and self._bus.up:
            try:
                self._bus.retain(topics.CARD, messages.CardBody(id=new_id(), card=self._card), node=self.name)
            except EdgePandaError as error:
                log.error("the card cannot be published: %s [%s]; configure fewer devices", error, error.code)

    def _say_claim(self) -> None:
        if self._card is None or not self._recovered or not self._bus.up or not self._site.epoch:
            return
        self._sequence += 1
        idle = self._draining or self._cloned or self._reporter.full is not None
        claim = messages.Claim(
            id=new_id(),
            capabilities=() if idle else cards.claimed(self._card, actuate=not self._emergency.in_force),
            slots=0 if idle else self._settings.slots,
            held=self.attempts.held(),
            sequence=self._sequence,
            epoch=self._site.epoch,
            stamp=stamp(self.journal.incarnation),
        )
        self._newest_claim = claim.id
        self._bus.send(topics.CLAIM, claim, node=self.name)

    def _say_beat(self) -> None:
        if self._card is None or not self._recovered or not self._bus.up:
            return
        beat = messages.Beat(
            id=new_id(),
            stamp=stamp(self.journal.incarnation),
            sequence=self._sequence,
            card_revision=self._card.revision,
            epoch=self._site.epoch,
            held=self.attempts.held(),
            load=round(os.getloadavg()[0], 2),
            temperature=cpu_temperature(),
            witness=self.journal.witness(),
        )
        self._bus.send(topics.BEAT, beat, node=self.name)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.beat)
            try:
                self._say_beat()  # also while we obey nobody: whoever is there asks us then
                if not self._site.proven:
                    self._site.unanswered()
                    self._say_claim()  # it, or the answer to it, was lost
            except Exception:
                log.exception("a beat failed")

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(LEASE_LOOK, self._settings.beat))
            try:
                self.attempts.tick()
                self._watch_links()
                if self._reporter.look():
                    self._say_claim()
            except Exception:
                log.exception("a look at the leases failed")

    def _watch_links(self) -> None:
        in_touch = self._bus.up and self._site.proven
        for name in self._dead_man.look(boottime(), in_touch=in_touch, limits=self._devices.link_losses()):
            log.warning("%s goes to its safe state: the site, which commanded it, is gone for too long", name)
            self.attempts.halt("link_loss", name)
            self._spawn(self._devices.safe(name))

    # what we hear

    def _on_presence(self, message: Message) -> None:
        presence: messages.Presence = message.body
        if presence.online:
            self._spawn(self._meet(presence.epoch, presence.head.ledger))
        elif presence.epoch == self._site.epoch:
            self._site.lost()

    def _on_hello(self, message: Message) -> None:
        if isinstance(message.body, messages.Hello):
            self._spawn(self._answer_hello(message.body))

    async def _answer_hello(self, hello: messages.Hello) -> None:
        """A broker may have forgotten what was retained; many nodes answer, so not all at once."""
        await asyncio.sleep(random.uniform(0, HELLO_SPREAD))  # noqa: S311 jitter, no secret
        self._say_who()
        await self._meet(hello.epoch, hello.head.ledger)

    def _say_who(self) -> None:
        self._bus.retain(topics.STATUS, self._status_body(True), node=self.name)
        self._say_card()

    async def _meet(self, epoch: int, ledger: str) -> None:
        if await self._site.meet(epoch, ledger):
            self._say_claim()

    def _on_inbox(self, message: Message) -> None:
        body = message.body
        match body:
            case messages.Lease():
                self._on_lease(body)
            case messages.Permit():
                if self._site.proven:
                    self.journal.see(body.head)
                self.attempts.permit(body)
            case messages.Cancel():
                self.attempts.cancel(body)
            case messages.Renewed():
                if body.stamp.incarnation == self.journal.incarnation:
                    self.attempts.renew(body)
            case messages.Ack():
                self._on_ack(body)
            case messages.Peers():
                self._site.take_peers(body.peers)
                if self._site.name_here not in ("", self.name):
                    self._renamed.set()
            case messages.Ask():
                self._on_ask(body)
            case messages.Standing():
                self._emergency.take(body)
            case messages.Release():
                self._spawn(self._release(body))

    async def _release(self, release: messages.Release) -> None:
        self._emergency.take_release(release)
        await self._emergency.kept()
        self._bus.send(topics.REPORT, messages.Ack(id=new_id(), of=(release.id,)), node=self.name)

    def _on_ack(self, ack: messages.Ack) -> None:
        self._reporter.acknowledged((*ack.of, *ack.unsupported))
        if ack.head is None:
            return
        if self._site.proven:
            self.journal.see(ack.head)
        elif self._newest_claim in ack.of and self._site.prove(ack.head):
            early, self._early = self._early, []
            for lease in early:
                self._on_lease(lease)

    def _on_ask(self, ask: messages.Ask) -> None:
        async def answer() -> None:
            if await self._site.meet(ask.epoch, ask.head.ledger):
                self._say_who()
                self._say_claim()
                self._say_beat()

        self._spawn(answer())

    def _on_lease(self, lease: messages.Lease) -> None:
        ours = lease.stamp.incarnation == self.journal.incarnation and lease.stamp.boot == boot_id()
        if lease.epoch != self._site.epoch or lease.ledger != self.journal.ledger:
            log.debug("a lease of epoch %d is ignored; we obey epoch %d", lease.epoch, self._site.epoch)
        elif not self._site.proven:
            self._early = [*self._early, lease][-self._settings.slots :]
        elif ours:  # one of an earlier start says nothing about now: our claim has ended it
            self.attempts.accept(lease, slots=self._settings.slots, draining=self._draining or self._cloned)

    def _on_own_status(self, message: Message) -> None:
        """A late will says that we are away; or another machine has our key."""
        status: messages.Status = message.body
        mine = (status.incarnation, status.boot) == (self.journal.incarnation, boot_id())
        if mine and not status.online and not self._draining:
            self._bus.retain(topics.STATUS, self._status_body(True), node=self.name)
        elif status.online and (status.incarnation, status.boot) > (self.journal.incarnation, boot_id()):
            if not self._cloned:
                log.error(
                    "another machine has this node's key, and more starts: this one stops claiming; give it a new key"
                )
            self._cloned = True
            self._say_claim()

    def _refused(self, refused: Refused) -> None:
        if refused.topic is topics.INBOX:
            ack = messages.Ack(id=new_id(), unsupported=(refused.id,))
            self._bus.send(topics.REPORT, ack, node=self.name)
        elif refused.topic is topics.NODE_REQUEST:
            self._requests.refuse(refused.id, refused.sender, refused.error)

    # requests: over the local socket and over the bus

    def _reply(self, asker: Peer, reply: messages.Reply) -> None:
        self._bus.send(topics.NODE_REPLY, reply, node=self.name, client=asker.kid)

    async def _read_logs(self, params: dict[str, Any]) -> LogPage:
        return await self._logs.answer(self.name, converted(params, Logs, "logs"))

    async def _status(self, _params: dict[str, Any]) -> dict[str, Any]:
        await self._emergency.kept()
        return {
            "name": self.name,
            "key": self.identity.kid,
            "incarnation": self.journal.incarnation,
            "stops": msgspec.to_builtins(self._emergency.standing),
            "broker": self._bus.up,
            "broker_error": self._bus.link.last_error.as_dict() if self._bus.link.last_error else None,
            "coordinator": bool(self._site.epoch),
            "accepted": self._site.proven,
            "epoch": self._site.epoch,
            "problem": self._site.problem.as_dict() if self._site.problem else None,
            "journal_problem": self._journal_problem(),
            "waiting": self.journal.waiting[0],
            "running": [{"task": a.task.id, "attempt": a.number, "device": a.device} for a in self._running()],
            "unacknowledged": len(self._reporter.unacknowledged),
            "card": msgspec.to_builtins(self._card),
            "dropped": dict(self._bus.counts),
        }

    def _journal_problem(self) -> dict[str, Any] | None:
        error = self._state.problem or self._reporter.problem or self._reporter.full
        return error.as_dict() if error else None

    def _running(self) -> list[Any]:
        return list(self.attempts.running.values())

    async def _probe(self, params: dict[str, Any]) -> Probe:
        return await probe(self._devices.things, params)

    async def _do(self, params: dict[str, Any]) -> dict[str, Any]:
        if self._draining:
            raise EdgePandaError("this node is ending", code="draining", where=self.name)
        task, action = direct_task(params, self._devices.things, self.name)
        result = await self.attempts.direct(task, action)
        return {"task": task.id, "result": msgspec.to_builtins(result)}

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def node_key_path(loaded: Loaded) -> Path:
    """Where the node's private key is."""
    return loaded.keys_dir / "node.key"


def node_name(loaded: Loaded, identity: Identity) -> str:
    """The configured name, or the host's name and four characters of the key."""
    configured = loaded.require_node().name
    host = "".join(c if c.isalnum() else "-" for c in os.uname().nodename.split(".")[0].lower())
    return configured or f"{host[:27] or 'node'}-{identity.kid[:4]}"


def cpu_temperature() -> float | None:
    """Degrees Celsius of the processor, where the machine tells it."""
    from edgepanda.node.scan.reading import temperature  # the first scan has loaded it
    from edgepanda.node.scan.root import Root

    return temperature(Root(Path("/")))
