"""What the coordinator believes of nodes: only what is newer than what it knows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgepanda.coordinator.fleet import Fleet, completed
from edgepanda.coordinator.ledger import NodeRow
from edgepanda.model.card import Card, Device, offers
from edgepanda.model.head import Head
from edgepanda.model.stops import Stop
from edgepanda.wire import messages
from edgepanda.wire.clock import Stamp
from tests.rig.desk import card

EPOCH = 3


def stamp(ms: int, incarnation: int = 1) -> Stamp:
    return Stamp(incarnation=incarnation, boot="b", ms=ms)


def claim(ms: int, *, incarnation: int = 1, epoch: int = EPOCH, sequence: int = 1, slots: int = 2) -> messages.Claim:
    return messages.Claim(
        id="c",
        capabilities=("job.safe",),
        slots=slots,
        held=(),
        sequence=sequence,
        epoch=epoch,
        stamp=stamp(ms, incarnation),
    )


def beat(ms: int, *, incarnation: int = 1, epoch: int = EPOCH, **fields: Any) -> messages.Beat:
    fields = {"sequence": 1, "card_revision": 1, **fields}
    return messages.Beat(id="b", stamp=stamp(ms, incarnation), epoch=epoch, **fields)


def test_an_older_or_equal_claim_or_beat_is_a_repetition() -> None:
    fleet = Fleet([])
    node = fleet.node("n1", "kid")
    assert fleet.claim(node, claim(100, slots=4), 1.0, EPOCH)
    assert not fleet.claim(node, claim(100, slots=9), 2.0, EPOCH)
    assert not fleet.beat(node, beat(99), 2.0, EPOCH)
    assert not fleet.claim(node, claim(200, epoch=EPOCH - 1, slots=9), 2.0, EPOCH)
    assert fleet.beat(node, beat(101, load=0.5), 2.0, EPOCH)
    assert (node.slots, node.load, node.stamped_at) == (4, 0.5, 2.0)


def test_a_later_start_counts_from_its_first_word_and_the_earlier_one_no_more() -> None:
    fleet = Fleet([])
    node = fleet.node("n1", "kid")
    fleet.claim(node, claim(50_000), 1.0, EPOCH)
    assert fleet.claim(node, claim(10, incarnation=2), 2.0, EPOCH)
    assert not fleet.claim(node, claim(60_000), 3.0, EPOCH)
    assert not fleet.status(node, messages.Status(id="s", online=False, boot="b", incarnation=1))
    assert node.online
    assert fleet.status(node, messages.Status(id="s", online=False, boot="b", incarnation=2))
    assert not node.online


def test_an_old_status_said_again_does_not_hide_a_stop() -> None:
    fleet = Fleet([])
    node = fleet.node("n1", "kid")
    stop = Stop(id="s", at=1.0, door="site")
    old = messages.Status(id="1", online=True, boot="b", incarnation=2, seq=1)
    fleet.status(node, old)
    fleet.status(node, messages.Status(id="2", online=True, boot="b", incarnation=2, seq=2, stops=(stop,)))
    for again in (old, messages.Status(id="0", online=True, boot="b", incarnation=1, seq=9)):
        fleet.status(node, again)
        assert node.stops == (stop,)
    fleet.status(node, messages.Status(id="3", online=True, boot="b", incarnation=3, seq=1))
    assert node.stops == ()


def test_a_card_counts_if_it_is_newer() -> None:
    fleet = Fleet([])
    node = fleet.node("n1", "kid")
    assert fleet.card(node, card(revision=2))
    assert not fleet.card(node, card(revision=2))
    assert not fleet.card(node, card(revision=1))
    mark = node.card_mark
    assert fleet.card(node, card(revision=1, incarnation=2))
    assert node.card_mark > mark
    assert fleet.offers_of("servo.move")[0].device == "pan-n1"


def test_another_key_under_an_old_name_starts_afresh() -> None:
    fleet = Fleet([])
    fleet.card(fleet.node("n1", "kid"), card())
    assert fleet.node("n1", "other").card is None
    assert fleet.offers_of("job.safe") == []


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        (beat(1), False),
        (beat(1, epoch=EPOCH - 1), True),
        (beat(1, sequence=2), True),
        (beat(1, card_revision=2), True),
        (beat(1, incarnation=2), True),
    ],
)
def test_a_beat_shows_what_we_lack(said: messages.Beat, lacks: bool) -> None:
    fleet = Fleet([])
    node = fleet.node("n1", "kid")
    fleet.card(node, card())
    fleet.claim(node, claim(0), 1.0, EPOCH)
    assert fleet.lacks(node, said, EPOCH) is lacks


def test_who_is_silent_is_away_and_its_witness_stays() -> None:
    fleet = Fleet([])
    node = fleet.node("n1", "kid")
    fleet.claim(node, claim(0), 1.0, EPOCH)
    fleet.beat(node, beat(1, witness=Head("l", 5, "h")), 2.0, EPOCH)
    assert fleet.silent(30.0, 31.0) == []
    assert fleet.silent(34.0, 31.0) == [node]
    assert (node.online, fleet.witnesses()) == (False, {"n1": Head("l", 5, "h")})


def test_what_the_ledger_kept_is_known_after_a_start() -> None:
    kept = Fleet([NodeRow("n1", "kid", msgspec.json.encode(card(incarnation=4)), 1, 5)])
    node = kept.nodes["n1"]
    assert (node.incarnation, node.claimed, node.online) == (5, 5, False)
    assert not kept.claim(node, claim(1, incarnation=4), 1.0, EPOCH)
    assert len(kept.offers_of("job.safe")) == 1


def probing(incarnation: int, revision: int) -> Card:
    """The first card of a start: nothing has said what it is."""
    known = card(incarnation=incarnation, revision=revision)
    commands = {
        name: msgspec.structs.replace(
            own, state="probing", action=msgspec.structs.replace(own.action, tier=2, replay="unsafe")
        )
        for name, own in known.capabilities.items()
    }
    return msgspec.structs.replace(known, drivers={}, devices={"pan-n1": Device(driver="servo")}, capabilities=commands)


def test_while_drivers_start_their_capabilities_do_not_vanish_nor_change() -> None:
    fleet = Fleet([])
    node = fleet.node("n1", "kid")
    fleet.card(node, card())
    before = {(o.capability, o.action.tier, o.action.replay) for o in node.offers}
    for revision in (1, 2):
        fleet.card(node, probing(2, revision))
        assert {(o.capability, o.action.tier, o.action.replay) for o in node.offers} == before
        assert {o.state for o in node.offers} == {"probing"}
    assert node.card == probing(2, 2)


def test_nothing_is_completed_from_what_is_no_longer_configured() -> None:
    gone = msgspec.structs.replace(card(incarnation=2), devices={}, drivers={}, capabilities={})
    assert offers(completed(gone, card())) == []
