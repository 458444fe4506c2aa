"""The coordinator's process: wires bus, book, fleet, leases, reports and requests together."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from edgepanda import __version__
from edgepanda.config_reload import log_changes, on_hangup, read_again
from edgepanda.coordinator.book import Book, Live
from edgepanda.coordinator.fleet import Fleet, Node, rows_of
from edgepanda.coordinator.leases import HOLDS, MARGIN, Leases, cancelled
from edgepanda.coordinator.ledger import Ledger
from edgepanda.coordinator.moment import Clock, clock_synchronised
from edgepanda.coordinator.peers import PeersFile
from edgepanda.coordinator.record import Record
from edgepanda.coordinator.reports import Reports
from edgepanda.coordinator.requests import Requests
from edgepanda.coordinator.stops import SiteStops
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Coordinator as Settings
from edgepanda.model.config import Loaded
from edgepanda.model.ids import new_id
from edgepanda.trust.identity import Identity
from edgepanda.wire import messages, topics
from edgepanda.wire.bus import Bus, Message, Refused
from edgepanda.wire.clock import boottime
from edgepanda.wire.topics import Topic

log = logging.getLogger("edgepanda.coordinator")

TABLES = ("site", "broker", "coordinator")  # what a coordinator reads
TICK = 1.0  # seconds between looks at leases and limits, while anything lives
LEISURE = 0.02  # seconds that acknowledgements and events wait for company: nobody's work waits for them
MOST_IDS = 1_000  # of one acknowledgement
ASK_AGAIN = 5.0  # seconds before a node is asked again for what we lack
YIELD = 2.0  # seconds that a coordinator which claims to live gets to show that it does


class SecondCoordinatorError(EdgePandaError):
    """Another coordinator serves this site."""

    code = "second_coordinator"


class Coordinator:
    """One site's coordinator. `await run()` serves until cancelled."""

    def __init__(self, loaded: Loaded, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Opens keys, peers and ledger. Raises `EdgePandaError` with the codes of those."""
        config = loaded.config
        self._settings = config.coordinator or Settings()
        self._on_ready = on_ready
        self.identity = Identity.load(site_key_path(loaded))
        self.peers = PeersFile(loaded.state_dir / "peers.json", config.site.name, self.identity)
        self.ledger = Ledger.open(loaded.state_dir / "ledger.db")
        self._loaded = loaded
        self._tick: asyncio.TimerHandle | None = None
        self._acks: dict[str, list[str]] = {}
        self._events: list[messages.Event] = []
        self._serving = False
        self._rival: messages.Presence | None = None
        self._challenge = ""  # the one that we have sent
        self._saying_again: asyncio.TimerHandle | None = None
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve. Raises `SecondCoordinatorError`."""
        await self.ledger.begin_epoch(trusted=clock_synchronised())
        self._assemble()
        self.bus.start()
        self._start_ticking()  # limits are kept while the broker is away too
        try:
            await self._failed
        finally:
            await self._stop()

    async def hangup(self) -> None:
        """Read the configuration again, and take up what needs no restart; what is wrong is logged."""
        await on_hangup(log, self._reload)

    async def _reload(self) -> None:
        edited = await asyncio.to_thread(read_again, self._loaded, TABLES)
        self._loaded = edited.in_effect
        self._settings = self._loaded.config.coordinator or Settings()
        self.leases.ttl = self._settings.lease_ttl
        log_changes(log, edited)

    async def _stop(self) -> None:
        for timer in (self._tick, self._saying_again):
            if timer is not None:
                timer.cancel()
        await self.book.close()
        self._send_acks()
        self._send_events()
        if self._serving and self.bus.up:
            self.bus.retain(topics.COORDINATOR, self._presence(False))
        await self.bus.stop()
        self.ledger.close()
        self.peers.close()
        self.stops.close()

    def _assemble(self) -> None:
        site = self._loaded.config.site
        self.fleet = Fleet(rows_of(self.peers.list, self.ledger.nodes()))
        self.fleet.former = self.peers.former
        self.bus = Bus(
            self._loaded.broker_address(),
            self.identity,
            self.peers.directory,
            site=site.name,
            base=site.base,
            process="c" + secrets.token_hex(2)[:3],  # two coordinators must be able to see each other
            will=lambda: (topics.COORDINATOR, {}, self._presence(False)),
            on_up=self._went_up,
            on_down=self._went_down,
            on_refused=self._refused,
        )
        now = Clock()
        self.book = Book(
            self.ledger, clock=now, publish=self._publish, on_change=self._changed, on_reload=self._reloaded
        )
        self.leases = Leases(self.book, self.fleet, ttl=self._settings.lease_ttl, clock=boottime, send=self._to_node)
        self.leases.pause()  # until the broker is there
        self.reports = Reports(
            self.book,
            self.leases,
            clock=now,
            send=self._to_node,
            acknowledge=self._acknowledge,
            tell=lambda event: self._publish([event]),
        )
        self.stops = SiteStops(
            self._loaded.state_dir / "site-stops.json",
            book=self.book,
            fleet=self.fleet,
            directory=self.peers.directory,
            site=site.name,
            kid=self.identity.kid,
            send=self._to_node,
        )
        self.requests = Requests(
            self.book,
            self.fleet,
            self.peers,
            self.stops,
            clock=now,
            reply=lambda peer, body: self.bus.send(topics.REPLY, body, client=peer.kid),
            next_order=self.leases.next_order,
            cancel_attempt=self._cancel_attempt,
            ask_witnesses=self._ask_witnesses,
            peers_changed=lambda: self.book.then(self._send_peers),
        )
        self._subscribe()

    def _subscribe(self) -> None:
        self.bus.subscribe(topics.COORDINATOR, self._on_presence)
        self.bus.subscribe(topics.HELLO, self._on_hello)
        self.stops.subscribe(self.bus)
        self.bus.subscribe(topics.CARD, self._on_card)
        self.bus.subscribe(topics.STATUS, self._on_status)
        takers: tuple[tuple[Topic, Callable[[Message], None]], ...] = (
            (topics.REQUEST, self._on_request),
            (topics.CLAIM, self._on_claim),
            (topics.BEAT, self._on_beat),
            (topics.REPORT, self._on_report),
            (topics.OUTPUT, self._on_output),
        )
        for topic, taker in takers:
            self.bus.subscribe(topic, self._once_serving(taker))

    def _once_serving(self, taker: Callable[[Message], None]) -> Callable[[Message], None]:
        """Until it is clear that nobody else serves, nothing is heard, or else nodes would follow us away from there.
        Whoever said it says it again.
        """

        def take(message: Message) -> None:
            if self._serving:
                taker(message)

        return take

    # the link

    def _went_up(self) -> None:
        self.leases.resume()
        # Retained messages first, which may come before or after this: another coordinator may be here.
        asyncio.get_running_loop().call_later(0.05, self._serve)

    def _serve(self) -> None:
        if not self.bus.up:
            return
        if self._rival is not None and not self._serving:
            log.warning("another coordinator was here last; asking whether it lives")
            self._send_challenge()
            asyncio.get_running_loop().call_later(YIELD, self._serve_alone)
        else:
            self._serve_alone()

    def _serve_alone(self) -> None:
        if not self.bus.up or self._failed.done():
            return
        first, self._serving = not self._serving, True
        self.bus.retain(topics.COORDINATOR, self._presence(True))
        self.bus.send(topics.HELLO, self._hello())
        self.stops.say()
        self._send_peers()
        self._start_ticking()
        if first:
            log.info("serving the site %s, epoch %d", self.bus.site, self.ledger.epoch)
            self._on_ready()

    def _went_down(self) -> None:
        self._rival = None
        self.leases.pause()

    def _on_presence(self, message: Message) -> None:
        """Our own, whose late will must not stand; an old one of an earlier run; or that of another coordinator."""
        presence: messages.Presence = message.body
        if presence.epoch == self.ledger.epoch and presence.head.ledger == self.ledger.id:
            if not presence.online:
                self._say_again()
            return
        if presence.online and presence.answers and presence.answers == self._challenge:
            ours = (self.ledger.epoch, self.ledger.id)
            if not self._serving or (presence.epoch, presence.head.ledger) > ours:
                self._give_way(presence)
        elif message.retained:
            self._rival = presence if presence.online else self._rival
        elif self._serving:
            self._say_again()
            if presence.online:
                self._send_challenge()

    def _on_hello(self, message: Message) -> None:
        if isinstance(message.body, messages.Challenge) and message.body.id != self._challenge and self._serving:
            self.bus.retain(topics.COORDINATOR, self._presence(True, answers=message.body.id))

    def _send_challenge(self) -> None:
        """What others said may be a repetition of long ago; only an answer to this proves that they live."""
        if not self._challenge:
            self._challenge = new_id()
            self.bus.send(topics.HELLO, messages.Challenge(id=self._challenge))
            asyncio.get_running_loop().call_later(YIELD, self._end_challenge)

    def _end_challenge(self) -> None:
        self._challenge = ""

    def _say_again(self) -> None:
        """Something else stands in our place on the broker; once for many such messages."""
        if self._serving and self._saying_again is None:
            self._saying_again = asyncio.get_running_loop().call_later(0.1, self._say_presence)

    def _say_presence(self) -> None:
        self._saying_again = None
        if self.bus.up:
            self.bus.retain(topics.COORDINATOR, self._presence(True))

    def _give_way(self, rival: messages.Presence) -> None:
        if not self._failed.done():
            self._failed.set_exception(
                SecondCoordinatorError(
                    f"another coordinator serves this site (ledger {rival.head.ledger[:8]}, epoch {rival.epoch})",
                    where="site/coordinator",
                    cure="stop one of the two; only one may have the site's key",
                )
            )

    def _refused(self, refused: Refused) -> None:
        if refused.topic is topics.REQUEST:
            self.requests.refuse_body(refused.id, refused.sender, refused.error)
        elif refused.topic is topics.REPORT:  # what cannot be read now will not be readable when it is repeated
            self._to_node(refused.sender.name, messages.Ack(id=new_id(), unsupported=(refused.id,)), False)

    # what comes in

    def _on_request(self, message: Message) -> None:
        self.requests.take(message.body, message.sender)

    def _node(self, message: Message) -> Node:
        return self.fleet.node(message.name, message.sender.kid)

    def _on_card(self, message: Message) -> None:
        node, card = self._node(message), message.body.card
        if card.node == node.name and self.fleet.card(node, card):
            self.book.keep_node(node.row())
            self.book.before_flush(self.leases.match)

    def _on_status(self, message: Message) -> None:
        status: messages.Status = message.body
        if status.online and not message.retained and status.peers < self.peers.list.revision:
            self._send_peers_to(message.name)
        if message.name in self.peers.former:  # it does not know its new name yet, or that was its will
            self._clear(message.name)
            return
        node = self._node(message)
        if self.fleet.status(node, status):
            log.info("node %s is away", message.name)
        elif status.online and not node.online and not message.retained:
            self._ask(node)  # it may not have heard of us: nothing depends on what a broker retains

    def _on_claim(self, message: Message) -> None:
        node, claim = self._node(message), message.body
        if not self.fleet.claim(node, claim, boottime(), self.ledger.epoch):
            return
        if node.incarnation != node.claimed:
            node.claimed = node.incarnation
            self.book.keep_node(node.row())
            self.leases.restarted(node, claim.held)
        self.stops.greet(node)
        self._acknowledge(node.name, claim.id)  # with our head, which the node holds against what it has seen
        self.leases.renew(node, claim.held, resend=True)
        self.book.before_flush(self.leases.match)

    def _on_beat(self, message: Message) -> None:
        node, beat = self._node(message), message.body
        lacks = self.fleet.lacks(node, beat, self.ledger.epoch)
        if self.fleet.beat(node, beat, boottime(), self.ledger.epoch):
            self.leases.renew(node, beat.held, resend=False)
        if lacks:
            self._ask(node)

    def _on_report(self, message: Message) -> None:
        if isinstance(message.body, messages.Report):
            self.reports.take(message.body, message.name)
        self.bus.settle(_settles(message.body))

    def _on_output(self, message: Message) -> None:
        self.reports.output(message.body)

    # what goes out

    def _to_node(self, node: str, body: messages.Body, repeat: bool) -> None:
        if repeat:
            self.bus.deliver(topics.INBOX, body, node=node)
        else:
            self.bus.send(topics.INBOX, body, node=node)

    def _acknowledge(self, node: str, report_id: str) -> None:
        if not self._acks:
            asyncio.get_running_loop().call_later(LEISURE, self._send_acks)
        self._acks.setdefault(node, []).append(report_id)

    def _send_acks(self) -> None:
        acks, self._acks = self._acks, {}
        for node, ids in acks.items():
            for start in range(0, len(ids), MOST_IDS):
                of = tuple(ids[start : start + MOST_IDS])
                self._to_node(node, messages.Ack(id=new_id(), of=of, head=self.ledger.head), False)

    def _ask(self, node: Node) -> None:
        moment = boottime()
        if moment - node.asked_at >= ASK_AGAIN:
            node.asked_at = moment
            body = messages.Ask(id=new_id(), epoch=self.ledger.epoch, head=self.ledger.head)
            self._to_node(node.name, body, False)

    def _ask_witnesses(self) -> None:
        for node in self.fleet.nodes.values():
            node.asked_at = float("-inf")
            self._ask(node)

    def _cancel_attempt(self, record: Record) -> None:
        if record.node and record.standing.fence is not None:
            self._to_node(record.node, cancelled(record.id, record.standing.fence), True)

    def _send_peers(self) -> None:
        for peer in self.peers.list.peers:
            if peer.role == "node" and not peer.revoked:
                self._send_peers_to(peer.name)
        for former in self.peers.former:  # one may not know yet that it has another name
            self._send_peers_to(former)
            self._clear(former)

    def _clear(self, former: str) -> None:
        """Nothing stays retained under a name that a node had."""
        if self.bus.up and former in self.peers.former:
            for topic in topics.TABLE:
                if topic.retain and "{node}" in topic.pattern:
                    self.bus.clear(topic, node=former)

    def _send_peers_to(self, name: str) -> None:
        try:
            self._to_node(name, messages.Peers(id=new_id(), peers=self.peers.list), False)
        except EdgePandaError as error:  # the nodes go on with the list that they have
            log.error("the list of peers cannot be sent: %s [%s]", error, error.code)

    def _publish(self, events: list[messages.Event]) -> None:
        if not self._events:
            asyncio.get_running_loop().call_later(LEISURE, self._send_events)
        self._events += events

    def _send_events(self) -> None:
        events, self._events = self._events, []
        for event in events:
            try:
                self.bus.send(topics.EVENTS, event)
            except EdgePandaError:  # too large for one message: whoever wants its data asks for it
                self.bus.send(topics.EVENTS, msgspec.structs.replace(event, data={"cut": True}))

    def _presence(self, online: bool, answers: str = "") -> messages.Presence:
        return messages.Presence(
            id=new_id(),
            answers=answers,
            online=online,
            epoch=self.ledger.epoch,
            head=self.ledger.head,
            software=__version__,
            peers_revision=self.peers.list.revision,
        )

    def _hello(self) -> messages.Hello:
        return messages.Hello(id=new_id(), epoch=self.ledger.epoch, head=self.ledger.head)

    # following the book

    def _changed(self, live: Live) -> None:
        self.leases.follow(live)
        record = live.record
        if record.standing.state not in HOLDS:
            self.bus.settle((f"{record.id}.{record.standing.attempt}", f"{record.id}.{record.standing.attempt}.cancel"))
        for watcher in list(live.watchers):
            watcher(record)
        self._start_ticking()

    def _reloaded(self) -> None:
        self.leases.adopt_all()

    def _start_ticking(self) -> None:
        if self._tick is None and self.book.live:
            self._tick = asyncio.get_running_loop().call_later(TICK, self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        try:
            self.fleet.silent(boottime(), self._settings.lease_ttl + MARGIN)
            self.leases.tick()
            self.book.keep_limits()
        except Exception:
            log.exception("a look at the leases failed")
        self._start_ticking()


def _settles(report: messages.Report | messages.Ack) -> tuple[str, ...]:
    """The bodies of ours that a report acknowledges: the lease that it answers, or those that it names."""
    if isinstance(report, messages.Ack):
        return (*report.of, *report.unsupported)
    return (f"{report.task}.{report.attempt}",)


def site_key_path(loaded: Loaded) -> Path:
    """Where the site's private key is."""
    return loaded.keys_dir / "site.key"
