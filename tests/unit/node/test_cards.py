"""From what drivers say of themselves to the card."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgepanda.drivers.contract import ActionSpec, Description, Probe
from edgepanda.model.card import Card, offers
from edgepanda.node import cards
from edgepanda.node.cards import Seen

MOVE = {
    "description": "turns",
    "args": {"properties": {"angle": {"type": "number", "maximum": 90}}},
    "tier": 1,
    "replay": "safe",
    "on_busy": "preempt",
    "timeout": 5.0,
}


def spec(**fields: Any) -> ActionSpec:
    return msgspec.convert({**MOVE, **fields}, ActionSpec)


def description() -> Description:
    raw = {"contract": 1, "driver": "servo", "version": "2", "device": {}, "actions": {"move": MOVE}}
    return msgspec.convert(raw, Description)


def probe(**fields: Any) -> Probe:
    return msgspec.convert({"usable": True, **fields}, Probe)


def card(*seen: tuple[str, Seen], commands: dict[str, Seen] | None = None) -> Card:
    own = {name: cards.own_action(s) for name, s in (commands or {}).items()}
    return Card(
        node="n1",
        revision=1,
        incarnation=1,
        drivers={"servo": cards.as_driver(description())},
        devices={name: cards.as_device("servo", s, {}) for name, s in seen},
        capabilities={
            name: cards.as_capability(action, (commands or {})[name], {})
            for name, action in own.items()
            if action is not None
        },
    )


def test_an_action_loses_nothing_on_its_way_to_the_card() -> None:
    action = cards.as_action(spec())
    assert (action.description, action.args, action.tier, action.replay, action.on_busy, action.timeout) == (
        "turns",
        MOVE["args"],
        1,
        "safe",
        "preempt",
        5.0,
    )


@pytest.mark.parametrize(
    ("seen", "state", "reason"),
    [
        (Seen(), "probing", ""),
        (Seen(None, "no host", "start it"), "problem", "no host"),
        (Seen(probe(usable=False, reason="no pin", cure="plug it in")), "unavailable", "no pin"),
        (Seen(probe()), "ready", ""),
    ],
)
def test_a_device_is_what_its_driver_said_last(seen: Seen, state: str, reason: str) -> None:
    device = cards.as_device("servo", seen, {"room": "hall"})
    assert (device.state, device.reason, device.labels) == (state, reason, {"room": "hall"})


def test_only_what_is_ready_is_claimed() -> None:
    command = Seen(probe(actions={"run": MOVE}))
    broken = Seen(probe(usable=False, actions={"run": MOVE}))
    whole = card(("pan", Seen(probe())), ("tilt", Seen()), commands={"build.heavy": command, "build.light": broken})
    assert cards.claimed(whole) == ("build.heavy", "servo.move")
    assert cards.claimed(card(("tilt", Seen()))) == ()


def test_a_devices_limits_are_its_offers_limits() -> None:
    whole = card(("pan", Seen(probe(limits={"move": {"angle": {"maximum": 45}}}))), ("tilt", Seen(probe())))
    most = {o.device: o.action.args["properties"]["angle"]["maximum"] for o in offers(whole)}
    assert most == {"pan": 45, "tilt": 90}


def test_cards_that_differ_in_their_revision_only_are_the_same() -> None:
    one = card(("pan", Seen(probe())))
    assert cards.same(one, msgspec.structs.replace(one, revision=9))
    assert not cards.same(one, card(("pan", Seen())))
    assert not cards.same(one, msgspec.structs.replace(one, incarnation=2))


def test_a_drivers_digest_changes_with_what_it_says() -> None:
    one = description()
    other = msgspec.structs.replace(one, version="3")
    assert cards.as_driver(one).digest == cards.as_driver(description()).digest
    assert cards.as_driver(one).digest != cards.as_driver(other).digest


def test_a_command_has_no_action_before_its_driver_made_it() -> None:
    assert cards.own_action(Seen()) is None
    assert cards.own_action(Seen(probe())) is None
    action = cards.own_action(Seen(probe(actions={"run": MOVE})))
    assert action is not None
    assert action.replay == "safe"
