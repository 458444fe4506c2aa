"""Routing by exact names, and the choice among those that could."""

from __future__ import annotations

import pytest

from edgepanda.model.card import Action, Offer
from edgepanda.model.matching import Claimant, RoutingError, choose, route
from edgepanda.model.task import Task

ACTION = Action(tier=1, replay="safe")


def offer(node, capability="servo.move", device="pan", state="ready", **labels):
    return Offer(
        node=node,
        capability=capability,
        device=device,
        action_name=capability.rpartition(".")[2] if device else "run",
        action=ACTION,
        state=state,
        reason="",
        labels=labels,
    )


def claim(name, free=1, online=True, load=0.0, capabilities=("servo.move", "build.heavy"), revision=1):
    return Claimant(
        name=name, online=online, free=free, load=load, capabilities=frozenset(capabilities), card_revision=revision
    )


OFFERS = [
    offer("attic", device="pan", room="attic"),
    offer("cellar", device="door", room="cellar"),
    offer("attic", "build.heavy", None, arch="arm"),
    offer("cellar", "build.heavy", None, arch="x86"),
]


def test_one_device_is_found_by_its_name_its_capability_and_its_label():
    for wanted in ({"device": "pan"}, {"node": "attic"}, {"labels": {"room": "attic"}}):
        assert [o.place for o in route(OFFERS, capability="servo.move", **wanted)] == ["attic/pan"]
    assert [o.place for o in route(OFFERS, capability=None, device="door", action="move")] == ["cellar/door"]


def test_a_capability_without_devices_may_go_to_all_that_have_it():
    assert [o.place for o in route(OFFERS, capability="build.heavy")] == ["attic", "cellar"]
    assert [o.place for o in route(OFFERS, capability="build.heavy", labels={"arch": "x86"})] == ["cellar"]


def test_two_devices_are_ambiguous_and_the_candidates_are_listed():
    with pytest.raises(RoutingError) as caught:
        route(OFFERS, capability="servo.move")
    assert caught.value.code == "ambiguous"
    assert caught.value.details["candidates"] == ["attic/pan", "cellar/door"]


@pytest.mark.parametrize(
    ("wanted", "code", "where", "cure"),
    [
        ({"capability": "servo.mov"}, "unknown_capability", "capability", "did you mean 'servo.move'?"),
        (
            {"capability": "toast.make"},
            "unknown_capability",
            "capability",
            "`edgepanda card --all` lists what there is",
        ),
        ({"capability": "servo.move", "device": "pam"}, "unknown_device", "device", "did you mean 'pan'?"),
        ({"capability": "servo.move", "node": "celler"}, "unknown_node", "node", "did you mean 'cellar'?"),
        (
            {"capability": "servo.move", "labels": {"room": "roof"}},
            "unknown_device",
            "labels",
            "`edgepanda card --all` lists what there is",
        ),
        ({"capability": None, "device": "pam", "action": "move"}, "unknown_device", "device", "did you mean 'pan'?"),
        (
            {"capability": None, "device": "pan", "action": "mve"},
            "unknown_capability",
            "action",
            "did you mean 'move'?",
        ),
    ],
)
def test_what_does_not_exist_is_named_with_the_nearest_that_does(wanted, code, where, cure):
    with pytest.raises(RoutingError) as caught:
        route(OFFERS, **wanted)
    assert (caught.value.code, caught.value.where, caught.value.cure) == (code, where, cure)


def test_names_are_exact():
    for near in ("Servo.move", "servo", "servo.move "):
        with pytest.raises(RoutingError):
            route(OFFERS, capability=near)


BUILD = Task(id="task-0001", capability="build.heavy")
BUILDERS = [o for o in OFFERS if o.capability == "build.heavy"]


def chosen(task=BUILD, offers=BUILDERS, excluded=None, **claims):
    found = choose(task, offers, {name: c for name, c in claims.items()}, excluded or {})
    return found.node if found else None


def test_the_freest_then_the_least_loaded_then_the_first_by_name():
    assert chosen(attic=claim("attic", free=1), cellar=claim("cellar", free=2)) == "cellar"
    assert chosen(attic=claim("attic", load=0.9), cellar=claim("cellar", load=0.1)) == "cellar"
    assert chosen(attic=claim("attic"), cellar=claim("cellar")) == "attic"


@pytest.mark.parametrize(
    "attic",
    [
        claim("attic", free=0),
        claim("attic", online=False),
        claim("attic", capabilities=("servo.move",)),
    ],
)
def test_nobody_who_cannot_take_it_now_gets_it(attic):
    assert chosen(attic=attic) is None
    assert chosen(attic=attic, cellar=claim("cellar")) == "cellar"


def test_nothing_goes_where_nothing_claims_or_nothing_is_ready():
    assert chosen() is None
    assert chosen(offers=[offer("attic", "build.heavy", None, state="probing")], attic=claim("attic")) is None


def test_a_pinned_task_waits_for_its_node():
    pinned = Task(id="task-0001", capability="build.heavy", node="cellar")
    assert chosen(pinned, attic=claim("attic")) is None
    assert chosen(pinned, attic=claim("attic"), cellar=claim("cellar", online=False)) is None
    assert chosen(pinned, attic=claim("attic"), cellar=claim("cellar")) == "cellar"


def test_who_declined_is_left_out_until_its_card_changes():
    assert chosen(excluded={"attic": 1}, attic=claim("attic", revision=1)) is None
    assert chosen(excluded={"attic": 1}, attic=claim("attic", revision=2)) == "attic"
