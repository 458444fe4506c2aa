"""Granting, renewing and ending leases (docs/protocol.md, 'Claim and lease').

All moments are seconds on the coordinator's boot clock. The node counts on its own clock from a stamp that it made
before the coordinator saw it, and the coordinator adds `MARGIN`: a lease is over for its node before it is over here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from edgepanda.coordinator.book import Book, Live
from edgepanda.coordinator.deadlines import over_before_begin
from edgepanda.coordinator.fleet import Fleet, Node
from edgepanda.coordinator.queue import Queue, Taken
from edgepanda.coordinator.record import Record
from edgepanda.errors import EdgePandaError
from edgepanda.model import matching
from edgepanda.model.ids import new_id
from edgepanda.model.states import Happening, Kind, State
from edgepanda.wire import messages
from edgepanda.wire.messages import Held

log = logging.getLogger("edgepanda.coordinator")

MARGIN = 1.0  # seconds that a lease lasts longer here than on its node
REST, LONGEST_REST = 1.0, 30.0  # seconds before a node that declined for now is asked again, doubled each time
HOLDS = frozenset({State.LEASED, State.RUNNING, State.WAITING_ANSWER})

SendTo = Callable[[str, messages.Body, bool], None]  # node, body, repeat until it is acknowledged


class Leases:
    """Matches queued tasks with claims, and ends what nobody renews."""

    def __init__(self, book: Book, fleet: Fleet, *, ttl: float, clock: Callable[[], float], send: SendTo) -> None:
        self._book, self._fleet = book, fleet
        self.ttl, self._clock, self._send = ttl, clock, send
        self.queue = Queue()
        self.paused_at: float | None = None  # since when there is no broker: lease clocks stand still
        self._order = max((live.record.order for live in book.live.values()), default=0)
        self.adopt_all()

    def next_order(self) -> int:
        """The place of a command among all of this ledger: rises with each, whatever wall clocks do. A ledger is at
        least as high as it has commands, so that the highest is known after a restart too.
        """
        self._order = max(self._order, self._book.ledger.head.height) + 1
        return self._order

    # following the book

    def adopt_all(self) -> None:
        """After a start or a reload: whatever is open gets one full time to live."""
        for node in self._fleet.nodes.values():
            node.open.clear()
        self.queue = Queue()
        for live in self._book.live.values():
            self.follow(live)
            if live.record.standing.state in HOLDS:
                live.lease_until = self._clock() + self.ttl + MARGIN

    def follow(self, live: Live) -> None:
        """A task has changed: keep the queue and the nodes' open attempts in step."""
        record = live.record
        state = record.standing.state
        if state is State.QUEUED:
            self.queue.put(record.task)
            self._book.before_flush(self.match)
        else:
            self.queue.drop(record.id)
        node = self._fleet.nodes.get(record.node or "")
        if node is not None:
            if state in HOLDS:
                node.open.add(record.id)
            elif record.id in node.open:
                node.open.discard(record.id)
                self._book.before_flush(self.match)
            if record.standing.attempt and (state is State.RUNNING or record.result is not None):
                self._note_newest(node, record)

    def _note_newest(self, node: Node, record: Record) -> None:
        """The node has accepted it: it may forget that over a restart, so leases of older commands say so."""
        task = record.task
        for offer in self._fleet.offers_of(task.capability):
            if (offer.node, offer.device) == (node.name, task.device):
                if offer.action.tier > 0 and offer.action.on_busy == "preempt":
                    thing = task.device or task.capability
                    node.newest[thing] = max(node.newest.get(thing, 0), record.order)
                return

    # granting

    def match(self) -> None:
        """Lease what can be leased now."""
        if self.queue and self.paused_at is None:
            self.queue.serve(self._try)

    def _try(self, task_id: str) -> Taken:
        live = self._book.live.get(task_id)
        if live is None:
            return "taken"  # it ended meanwhile
        record, now = live.record, self._clock()
        if over_before_begin(record.deadlines, now, queued=True):
            return "not_now"
        if live.again_at > now:
            return "not_now"
        offers = self._fleet.offers_of(record.task.capability)
        resting = {name for name, (until, _) in live.rests.items() if until > now}
        awake = {o.node: self._fleet.nodes[o.node].claimant() for o in offers if o.node not in resting}
        task = record.task
        if task.node is not None:  # it may have been renamed since
            task = msgspec.structs.replace(task, node=self._fleet.called(task.node))
        offer = matching.choose(task, offers, awake, record.excluded)
        if offer is None:
            return "not_now" if resting or record.excluded else "full"
        node = self._fleet.nodes[offer.node]
        if node.stamp is None:
            return "full"
        self._grant(live, node, now)
        return "taken"

    def _grant(self, live: Live, node: Node, now: float) -> None:
        record = self._book.change(live, Happening(kind=Kind.LEASED), {"node": node.name}, node=node.name)
        live.lease_until = now + self.ttl + MARGIN
        attempt = record.standing.attempt
        self._book.then(lambda: self.send_lease(live, attempt))

    def send_lease(self, live: Live, attempt: int) -> None:
        """Send the lease of this attempt, if it is still the one that counts."""
        record = live.record
        node = self._fleet.nodes.get(record.node or "")
        if record.standing.fence != attempt or record.standing.state not in HOLDS or node is None or node.stamp is None:
            return
        now = self._clock()
        live.lease_until = now + self.ttl + MARGIN
        epoch, head = self._book.ledger.epoch, self._book.ledger.head

        def on_node(moment: float | None) -> int | None:
            return None if moment is None or node.stamp is None else node.stamp.ms + _ms(moment - node.stamped_at)

        lease = messages.Lease(
            id=f"{record.id}.{attempt}",
            task=record.task,
            attempt=attempt,
            epoch=epoch,
            ledger=head.ledger,
            stamp=node.stamp,
            order=record.order,
            submitted_ms=on_node(record.deadlines.asked) or 0,
            until_ms=node.stamp.ms + _ms(now - node.stamped_at + self.ttl),
            begin_by_ms=on_node(record.deadlines.begin_by),
            end_by_ms=on_node(record.deadlines.end_by),
            newest=node.newest.get(record.task.device or record.task.capability, 0),
        )
        self._send(node.name, lease, True)

    # renewing

    def restarted(self, node: Node, held: Iterable[Held]) -> None:
        """The node's daemon has started anew and holds only these. What it lacks and was not permitted is free again;
        an `unsafe` attempt that was permitted waits for the node's word.
        """
        has = {item.task for item in held}
        for task_id in node.open - has:
            live = self._book.live.get(task_id)
            if live is not None and (
                live.record.standing.state is State.LEASED or live.record.standing.replay == "safe"
            ):
                over = over_before_begin(live.record.deadlines, self._clock(), queued=False)
                self.lost(live, over, Happening(kind=Kind.LOST, still_valid=not over), {"restarted": True})
                self.rest(live, node.name)  # it may be what the node crashed of

    def renew(self, node: Node, held: Iterable[Held], *, resend: bool) -> None:
        """The node lives and holds these. `resend`: a claim, so an attempt that it lacks was not delivered."""
        now = self._clock()
        renewed: list[tuple[str, int]] = []
        has = set()
        for item in held:
            live = self._book.live.get(item.task)
            current = live is not None and live.record.standing.fence == item.attempt and live.record.node == node.name
            if live is not None and current:
                has.add(item.task)
                live.lease_until = now + self.ttl + MARGIN
                renewed.append((item.task, item.attempt))
                if live.record.standing.cancel:  # ours may have been lost, with us
                    self._send(node.name, cancelled(item.task, item.attempt), False)
            elif item.attempt > 0:
                self._send(node.name, retire(item.task, item.attempt), False)
        if node.stamp is not None and renewed:
            until = node.stamp.ms + _ms(self.ttl)
            self._send(
                node.name,
                messages.Renewed(id=new_id(), stamp=node.stamp, until_ms=until, attempts=tuple(renewed)),
                False,
            )
        if resend:
            self._resend(node, has)

    def _resend(self, node: Node, has: set[str]) -> None:
        for task_id in node.open - has:
            live = self._book.live.get(task_id)
            if live is not None and live.record.standing.state is State.LEASED:
                attempt = live.record.standing.attempt
                if live.record.standing.cancel:  # told before its lease, so that it never begins
                    self._send(node.name, cancelled(task_id, attempt), False)
                self.send_lease(live, attempt)

    # ending

    def pause(self) -> None:
        """The broker is gone."""
        if self.paused_at is None:
            self.paused_at = self._clock()

    def resume(self) -> None:
        """The broker is back: leases last as much longer as it was away."""
        if self.paused_at is None:
            return
        gap, self.paused_at = self._clock() - self.paused_at, None
        for live in self._book.live.values():
            if live.lease_until is not None:
                live.lease_until += gap
        self._book.before_flush(self.match)

    def tick(self) -> None:
        """End leases and limits that are over."""
        if self.paused_at is not None:
            return
        now = self._clock()
        for live in list(self._book.live.values()):
            try:
                self._look(live, now)
            except EdgePandaError as error:
                log.error("%s cannot be ended: %s [%s]", live.record.id, error, error.code)
        if self.queue:
            self._book.before_flush(self.match)

    def _look(self, live: Live, now: float) -> None:
        record = live.record
        state = record.standing.state
        over = over_before_begin(record.deadlines, now, queued=state is State.QUEUED)
        if over and (state is State.QUEUED or (state is State.LEASED and record.standing.replay == "unsafe")):
            self.expire(live, over)
        elif state in HOLDS and live.lease_until is not None and now >= live.lease_until:
            self.lost(live, over, Happening(kind=Kind.LOST, still_valid=not over))

    def expire(self, live: Live, limit: str, code: str = "expired") -> None:
        """It did not begin in time, or a newer command has taken its place: it never will."""
        record, attempt = live.record, live.record.standing.fence
        self._book.change(live, Happening(kind=Kind.EXPIRED), {"limit": limit}, code=code)
        if attempt is not None and record.node:
            self._book.then(lambda: self._send(str(record.node), retire(record.id, attempt), False))

    def lost(self, live: Live, over: str, event: Happening, data: dict[str, Any] | None = None) -> None:
        """The lease is over, or its node says that the attempt was cut short. `over` names a limit that is over too."""
        record, attempt = live.record, live.record.standing.fence
        live.lease_until = None
        log.warning("lease of %s (attempt %s on %s) is lost", record.id, attempt, record.node)
        self._book.change(live, event, {"node": record.node, **(data or {})}, code="lost")
        if live.record.standing.state is State.QUEUED and over:
            self.expire(live, over)

    def card_of(self, node: str) -> int:
        """Which card of the node is the newest, 0 if there is none."""
        known = self._fleet.nodes.get(node)
        return known.card_mark if known is not None else 0

    def rest(self, live: Live, node: str) -> None:
        """The node declined for now; ask it again after a moment, and later each time."""
        wait = min(live.rests.get(node, (0.0, REST / 2))[1] * 2, LONGEST_REST)
        live.rests[node] = (self._clock() + wait, wait)


def cancelled(task: str, attempt: int) -> messages.Cancel:
    """Tells a node that somebody wants this attempt to end."""
    return messages.Cancel(id=f"{task}.{attempt}.cancel", task=task, attempt=attempt)


def retire(task: str, attempt: int) -> messages.Cancel:
    """Tells a node that its attempt counts no longer."""
    return messages.Cancel(id=f"{task}.{attempt}.retired", task=task, attempt=attempt, reason="fence_retired")


def _ms(seconds: float) -> int:
    return int(seconds * 1000)
