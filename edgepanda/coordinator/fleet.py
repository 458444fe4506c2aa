"""The nodes as the coordinator sees them: cards, claims, signs of life. Knows no broker."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from edgepanda.coordinator.ledger import NodeRow
from edgepanda.model.card import Card, Offer, offers
from edgepanda.model.head import Head
from edgepanda.model.matching import Claimant
from edgepanda.model.stops import Stop
from edgepanda.trust.peers import PeerList
from edgepanda.wire import messages
from edgepanda.wire.clock import Stamp
from edgepanda.wire.requests import NodeView

log = logging.getLogger("edgepanda.coordinator")


class Node:
    """What is known of one node. Moments are seconds on the coordinator's boot clock."""

    def __init__(self, name: str, kid: str) -> None:
        self.name = name
        self.kid = kid
        self.card: Card | None = None
        self._complete: Card | None = None
        self.incarnation = 0  # newest start of its daemon that was seen
        self.claimed = 0  # the start that its newest claim was of
        self.offers: list[Offer] = []
        self.newest: dict[str, int] = {}  # order of the newest command that each device is known to have accepted
        self.online = False
        self.capabilities: frozenset[str] = frozenset()
        self.slots = 0
        self.sequence = 0
        self.stamp: Stamp | None = None
        self.stamped_at = 0.0
        self.load = 0.0
        self.temperature: float | None = None
        self.witness: Head | None = None
        self.asked_at = float("-inf")
        self.stops: tuple[Stop, ...] = ()  # in force there, as its newest status says
        self.told = (0, 0)  # start and number of that status
        self.open: set[str] = set()  # tasks whose newest attempt it holds

    @property
    def free(self) -> int:
        """Slots that no open attempt takes."""
        return max(0, self.slots - len(self.open))

    @property
    def card_mark(self) -> int:
        """A number of its own for each card: revisions begin anew with each start."""
        return (self.card.incarnation << 20) + self.card.revision if self.card is not None else 0

    def take_card(self, card: Card) -> None:
        """Use this card from now on. What its drivers have not told yet is offered as it was before the restart."""
        self._complete = card if self._complete is None else completed(card, self._complete)
        self.card, self.offers = card, offers(self._complete)
        self.incarnation = max(self.incarnation, card.incarnation)

    def rename(self, name: str) -> None:
        """It has another name from now on; it counts as away until it speaks under that."""
        self.name, self.online, self.stamp, self.capabilities = name, False, None, frozenset()
        if self.card is not None and self._complete is not None:
            self.card = msgspec.structs.replace(self.card, node=name)
            self._complete = msgspec.structs.replace(self._complete, node=name)
            self.offers = offers(self._complete)

    def row(self) -> NodeRow:
        """The form that the ledger keeps."""
        card = msgspec.json.encode(self.card) if self.card is not None else None
        revision = self.card.revision if self.card is not None else 0
        return NodeRow(self.name, self.kid, card, revision, self.incarnation)

    def claimant(self) -> Claimant:
        """The form that matching looks at."""
        return Claimant(
            name=self.name,
            online=self.online,
            capabilities=self.capabilities,
            free=self.free,
            load=self.load,
            card_revision=self.card_mark,
        )

    def view(self, now: float, *, whole: bool) -> NodeView:
        """The form that clients see; with the card where it is asked for."""
        return NodeView(
            name=self.name,
            online=self.online,
            claiming=self.online and bool(self.capabilities),
            slots=self.slots,
            free=self.free,
            load=self.load,
            temperature=self.temperature,
            stops=self.stops,
            seen=round(now - self.stamped_at, 1) if self.stamp is not None else None,
            card=msgspec.to_builtins(self.card) if whole and self.card is not None else None,
        )


class Fleet:
    """All nodes, and an index of what they offer."""

    def __init__(self, rows: Iterable[NodeRow]) -> None:
        self.nodes: dict[str, Node] = {}
        self.former: Mapping[str, str] = {}  # names that nodes have now, by those that they had before
        self._offers: dict[str, list[Offer]] | None = None
        for row in rows:
            node = Node(row.name, row.kid)
            node.incarnation = node.claimed = row.incarnation
            if row.card:
                card = msgspec.json.decode(row.card, type=Card)
                node.take_card(msgspec.structs.replace(card, node=row.name))
            self.nodes[row.name] = node

    def node(self, name: str, kid: str) -> Node:
        """The node of this name; another key under an old name starts afresh."""
        node = self.nodes.get(name)
        if node is None or node.kid != kid:
            node = self.nodes[name] = Node(name, kid)
            self._offers = None
        return node

    def rename(self, old: str, new: str) -> None:
        """The node has another name from now on."""
        node = self.nodes.pop(old, None)
        if node is not None:
            node.rename(new)
            self.nodes[new] = node
        self._offers = None

    def called(self, name: str) -> str:
        """The name that a node has now which was called so."""
        return name if name in self.nodes else self.former.get(name, name)

    def forget(self, name: str) -> None:
        """It is no peer any longer."""
        self.nodes.pop(name, None)
        self._offers = None

    def offers_of(self, capability: str) -> list[Offer]:
        """All offers of one capability."""
        if self._offers is None:
            self._offers = {}
            for offer in self.all_offers():
                self._offers.setdefault(offer.capability, []).append(offer)
        return self._offers.get(capability, [])

    def all_offers(self) -> list[Offer]:
        """Everything that anybody offers."""
        return [offer for node in self.nodes.values() for offer in node.offers]

    # what nodes say; each gives True if it is news

    def card(self, node: Node, card: Card) -> bool:
        """A card: taken if it is newer than the known one."""
        known = node.card
        if known is not None and (card.incarnation, card.revision) <= (known.incarnation, known.revision):
            return False
        node.take_card(card)
        self._offers = None
        return True

    def status(self, node: Node, status: messages.Status) -> bool:
        """A status of the newest start, or the will of it. Says nothing new about how long leases last."""
        if status.incarnation < node.incarnation:
            return False
        node.incarnation = max(node.incarnation, status.incarnation)
        if status.online and (status.incarnation, status.seq) >= node.told:
            node.told = (status.incarnation, status.seq)
            node.stops = status.stops
        changed = node.online and not status.online
        if not status.online:
            node.online = False
        return changed

    def claim(self, node: Node, claim: messages.Claim, now: float, epoch: int) -> bool:
        """A claim made for this epoch, newer than the last. The caller compares `claimed` before it replaces it."""
        if claim.epoch != epoch or not self._fresh(node, claim.stamp):
            return False
        self._alive(node, claim.stamp, now)
        node.capabilities = frozenset(claim.capabilities)
        node.slots = claim.slots
        node.sequence = claim.sequence
        return True

    def beat(self, node: Node, beat: messages.Beat, now: float, epoch: int) -> bool:
        """A beat made for this epoch, newer than the last."""
        if beat.epoch != epoch or not self._fresh(node, beat.stamp):
            return False
        self._alive(node, beat.stamp, now)
        node.load, node.temperature = beat.load, beat.temperature
        node.witness = beat.witness or node.witness
        return True

    def lacks(self, node: Node, beat: messages.Beat, epoch: int) -> bool:
        """True if the beat shows that we lack the node's claim or card."""
        card = node.card
        return (
            beat.epoch != epoch
            or node.sequence != beat.sequence
            or card is None
            or (card.incarnation, card.revision) != (beat.stamp.incarnation, beat.card_revision)
        )

    def _fresh(self, node: Node, stamp: Stamp) -> bool:
        if stamp.incarnation < node.incarnation:
            return False
        return node.stamp is None or stamp.incarnation > node.stamp.incarnation or stamp.ms > node.stamp.ms

    def _alive(self, node: Node, stamp: Stamp, now: float) -> None:
        if stamp.incarnation > node.incarnation or node.stamp is None:
            log.info("node %s is here (start %d)", node.name, stamp.incarnation)
        node.incarnation = stamp.incarnation
        node.stamp, node.stamped_at = stamp, now
        node.online = True

    def silent(self, now: float, longest: float) -> list[Node]:
        """Nodes that have said nothing for `longest` seconds; they count as away from now on."""
        found = [n for n in self.nodes.values() if n.online and now - n.stamped_at > longest]
        for node in found:
            node.online = False
        return found

    def witnesses(self) -> dict[str, Head]:
        """The newest head that each node has kept."""
        return {name: node.witness for name, node in self.nodes.items() if node.witness is not None}

    def views(self, now: float, *, whole: bool) -> list[dict[str, Any]]:
        """All nodes for clients."""
        return [msgspec.to_builtins(n.view(now, whole=whole)) for _, n in sorted(self.nodes.items())]


def completed(card: Card, before: Card) -> Card:
    """The card, with what an earlier one knew of devices and commands whose drivers are still starting."""
    devices = {
        name: msgspec.structs.replace(device, overrides=before.devices[name].overrides)
        for name, device in card.devices.items()
        if device.state == "probing" and name in before.devices
    }
    commands = {
        name: msgspec.structs.replace(own, action=before.capabilities[name].action)
        for name, own in card.capabilities.items()
        if own.state == "probing" and name in before.capabilities
    }
    drivers = {d.driver: before.drivers[d.driver] for d in devices.values() if d.driver in before.drivers}
    return msgspec.structs.replace(
        card,
        drivers={**drivers, **card.drivers},
        devices={**card.devices, **devices},
        capabilities={**card.capabilities, **commands},
    )


def rows_of(peers: PeerList, rows: Iterable[NodeRow]) -> list[NodeRow]:
    """What is known of those who are nodes of the site now, under the names that they have now."""
    names = {peer.kid: peer for peer in peers.peers if peer.role == "node" and not peer.revoked}
    found: dict[str, NodeRow] = {}
    for row in rows:
        peer = names.get(row.kid)
        if peer is None:
            continue
        if row.name == peer.name:
            found[row.kid] = row
        elif row.name in peer.formerly:  # the coordinator ended while it gave the new name
            found.setdefault(row.kid, msgspec.structs.replace(row, name=peer.name))
    return list(found.values())
