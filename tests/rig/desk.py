"""The coordinator's parts on a real ledger, with a clock that stands still and a list of what is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.coordinator.book import Book, Live
from edgepanda.coordinator.deadlines import Now
from edgepanda.coordinator.fleet import Fleet, Node
from edgepanda.coordinator.leases import Leases
from edgepanda.coordinator.ledger import Ledger
from edgepanda.coordinator.peers import PeersFile
from edgepanda.coordinator.record import Record
from edgepanda.coordinator.reports import Reports
from edgepanda.coordinator.requests import Requests
from edgepanda.coordinator.stops import SiteStops
from edgepanda.model.card import Action, Capability, Card, Device, Driver
from edgepanda.model.ids import new_id
from edgepanda.trust.identity import Identity
from edgepanda.trust.peers import Peer
from edgepanda.wire import messages
from edgepanda.wire.clock import Stamp
from edgepanda.wire.envelope import EnvelopeError
from edgepanda.wire.messages import Held

TTL = 30.0


def action(replay: str = "safe", tier: int = 1) -> Action:
    return msgspec.convert({"tier": tier, "replay": replay, "args": {"properties": {"angle": {}}}}, Action)


def card(node: str = "n1", revision: int = 1, incarnation: int = 1) -> Card:
    commands = {"job.safe": action(), "job.unsafe": action("unsafe"), "job.final": action(tier=2)}
    return Card(
        node=node,
        revision=revision,
        incarnation=incarnation,
        slots=2,
        drivers={"servo": Driver(actions={"move": action()})},
        devices={f"pan-{node}": Device(driver="servo", state="ready")},
        capabilities={name: Capability(action=spec, state="ready") for name, spec in commands.items()},
    )


class Desk:
    """All parts but the bus. `restart` makes them anew from the disk; `settle` waits for the ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1_000.0
        self.boot = "boot"
        self.synchronised = True
        self.wall_shift = 0.0  # seconds that the wall clock has jumped
        self.sent: list[tuple[str, Any, bool]] = []
        self.acknowledged: list[str] = []
        self.replies: list[messages.Reply] = []
        self.published: list[messages.Event] = []
        self.told: list[messages.Event] = []  # what the ledger does not keep
        self.cancelled: list[Record] = []
        self.me = Peer(key="ed25519:" + "A" * 43, name="me", role="operator")
        self.seqs = 1 << 20
        self.counter = 0
        self.largest_reply = 64 * 1024
        self._open()

    def _open(self) -> None:
        self.ledger = Ledger.open(self.folder / "ledger.db")
        self.fleet = Fleet(self.ledger.nodes())
        self.book = Book(
            self.ledger,
            clock=self.moment,
            publish=self.published.extend,
            on_change=self._changed,
            on_reload=lambda: self.leases.adopt_all(),  # noqa: PLW0108 made later
        )
        send = lambda node, body, repeat: self.sent.append((node, body, repeat))  # noqa: E731
        self.leases = Leases(self.book, self.fleet, ttl=TTL, clock=lambda: self.now, send=send)
        self.reports = Reports(
            self.book,
            self.leases,
            clock=self.moment,
            send=send,
            acknowledge=lambda _node, report: self.acknowledged.append(report),
            tell=self.told.append,
        )
        self.peers = PeersFile(self.folder / "peers.json", "home", Identity.load_or_create(self.folder / "site.key"))
        key = Identity.load(self.folder / "site.key")
        self.stops = SiteStops(
            self.folder / "site-stops.json",
            book=self.book,
            fleet=self.fleet,
            directory=self.peers.directory,
            site="home",
            kid=key.kid,
            send=send,
        )
        self.requests = Requests(
            self.book,
            self.fleet,
            self.peers,
            self.stops,
            clock=self.moment,
            reply=self._reply,
            next_order=self.leases.next_order,
            cancel_attempt=self.cancelled.append,
            ask_witnesses=lambda: None,
            peers_changed=lambda: None,
        )

    def moment(self) -> Now:
        return Now(
            boottime=self.now, boot=self.boot, wall=1.7e9 + self.now + self.wall_shift, synchronised=self.synchronised
        )

    def _changed(self, live: Live) -> None:
        self.leases.follow(live)
        for watcher in list(live.watchers):
            watcher(live.record)

    def _reply(self, _peer: Peer, body: messages.Body) -> None:
        if len(msgspec.json.encode(body)) > self.largest_reply:
            raise EnvelopeError("too large", code="oversized", where="here")
        assert isinstance(body, messages.Reply)
        self.replies.append(body)

    async def settle(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            await self.book.close()

    def close(self) -> None:
        self.ledger.close()
        self.peers.close()
        self.stops.close()

    async def restart(self) -> None:
        await self.settle()
        self.close()
        self._open()
        await self.settle()

    # nodes

    def joins(self, name: str = "n1", *, held: tuple[Held, ...] = (), incarnation: int = 1, slots: int = 2) -> Node:
        """A node whose card and claim have come."""
        node = self.fleet.node(name, f"kid-{name}")
        self.fleet.card(node, card(name, incarnation=incarnation))
        self.book.keep_node(node.row())
        self.claims(node, held=held, incarnation=incarnation, slots=slots)
        return node

    def claims(self, node: Node, *, held: tuple[Held, ...] = (), incarnation: int = 1, slots: int = 2) -> None:
        stamp = Stamp(incarnation=incarnation, boot="b", ms=max(int(self.now * 1000), (node.stamp or _ZERO).ms + 1))
        names = ("job.safe", "job.unsafe", "servo.move")
        body = messages.Claim(
            id=new_id(), capabilities=names, slots=slots, held=held, sequence=1, epoch=self.ledger.epoch, stamp=stamp
        )
        assert self.fleet.claim(node, body, self.now, self.ledger.epoch)
        if node.claimed != node.incarnation:
            node.claimed = node.incarnation
            self.leases.restarted(node, held)
        self.leases.renew(node, held, resend=True)
        self.book.before_flush(self.leases.match)

    def say(self, kind: type[messages.Report], task: str, attempt: int = 1, node: str = "n1", **rest: Any) -> Any:
        """A report; returns it, so that it can be said again."""
        self.seqs += 1
        report = kind(id=new_id(), task=task, attempt=attempt, seq=rest.pop("seq", self.seqs), **rest)
        self.reports.take(report, node)
        return report

    def bodies(self, kind: type[Any]) -> list[Any]:
        return [body for _, body, _ in self.sent if isinstance(body, kind)]

    # clients

    def ask(self, method: str, *, by: Peer | None = None, counter: int | None = None, **params: Any) -> str:
        changes = method in ("task.cancel", "task.resolve", "task.review", "peers.add", "peers.remove", "node.rename")
        if changes and counter is None:
            self.counter += 1
            counter = self.counter
        request = messages.Request(id=new_id(), method=method, params=params, counter=counter)
        self.requests.take(request, by or self.me)
        return request.id

    async def answer(self, method: str, **params: Any) -> Any:
        """The result, or the code of the error."""
        asked = self.ask(method, **params)
        await self.settle()
        reply = next(r for r in self.replies if r.id == asked)
        return reply.result if reply.error is None else reply.error.data["code"]

    async def submit(self, task: str, capability: str = "job.safe", **rest: Any) -> Any:
        return await self.answer("task.submit", id=task, capability=capability, **rest)

    def state(self, task: str) -> str:
        row = self.ledger.task(task)
        return row.state if row is not None else "unknown"

    def record(self, task: str) -> Record:
        live = self.book.find(task)
        assert live is not None
        return live.record

    def kinds(self, task: str | None = None) -> list[str]:
        return [event.kind for event in self.ledger.events(task=task, limit=1000)]


_ZERO = Stamp(incarnation=0, boot="", ms=0)


@contextlib.contextmanager
def at_desk(folder: Path) -> Iterator[Desk]:
    """A desk in this folder, closed at the end; within a running loop."""
    desk = Desk(folder)
    try:
        yield desk
    finally:
        desk.close()
