"""What people type, as values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.cli.arguments import ArgumentError, check_usable, find_offer, guess_args, parse_args, typed
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Action, Offer

NUMBER = {"type": "number", "unit": "degree"}
MOVE = Action(
    tier=1,
    replay="safe",
    args={
        "properties": {
            "speed": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "angle": NUMBER,
            "how": {"enum": ["slow", "fast", 3]},
            "now": {"type": "boolean"},
            "steps": {"type": "array"},
        },
        "required": ["angle"],
        "additionalProperties": False,
    },
)


def offer(node: str, device: str | None, action: str = "move", capability: str = "servo.move") -> Offer:
    return Offer(
        node=node,
        capability=capability,
        device=device,
        action_name=action,
        action=MOVE,
        state="ready",
        reason="",
        labels={},
    )


@pytest.mark.parametrize(
    ("words", "args"),
    [
        (["30"], {"angle": 30.0}),
        (["-30.5"], {"angle": -30.5}),
        (["angle=30", "speed=5"], {"angle": 30.0, "speed": 5.0}),
        (["speed=5", "30"], {"speed": 5.0, "angle": 30.0}),
        (["30", "20"], {"angle": 30.0, "speed": 20.0}),
        (["30", "speed=null"], {"angle": 30.0, "speed": None}),
        (["30", "how=fast", "now=yes"], {"angle": 30.0, "how": "fast", "now": True}),
        (["30", "how=3"], {"angle": 30.0, "how": 3}),
        (["30", "steps=[1, 2]"], {"angle": 30.0, "steps": [1, 2]}),
    ],
)
def test_values_by_the_schema(words: list[str], args: dict[str, Any]) -> None:
    assert parse_args(words, MOVE) == args


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the argument is missing (angle); it takes: [speed] angle [how] [now] [steps]"),
        (["speed=3"], "the argument is missing (angle)"),
        (["abc"], "is no number (degree)"),
        (["nan"], "is no number"),
        (["inf"], "is no number"),
        (["30", "angel=3"], "there is no argument 'angel'"),
        (["30", "angle=3"], "given twice"),
        (["30", "how=quick"], "allowed: slow, fast, 3"),
        (["30", "now=maybe"], "is no boolean"),
        (["30", "steps={}"], "is no array"),
        (["--jsno", "30"], "there is no option --jsno"),
        (["1", "2", "slow", "yes", "[]", "6"], "one argument too many"),
    ],
)
def test_what_does_not_suit_is_named(words: list[str], said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse_args(words, MOVE)
    assert said in str(caught.value)


def test_a_string_stays_a_string_whatever_it_looks_like() -> None:
    assert typed("30", {"type": "string"}, "x") == "30"
    assert typed("true", {"type": "string"}, "x") == "true"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_comes_through(value: float) -> None:
    assert parse_args([repr(value)], MOVE) == {"angle": value}


@given(st.text(), st.sampled_from(["integer", "number", "boolean", "array", "object", "string"]))
def test_any_text_is_a_value_of_its_type_or_an_error(text: str, kind: str) -> None:
    kinds = {"integer": int, "number": float, "boolean": bool, "array": list, "object": dict, "string": str}
    try:
        value = typed(text, {"type": kind}, "x")
    except ArgumentError:
        return
    assert isinstance(value, kinds[kind])


def test_without_a_schema_json_is_json_and_the_rest_is_text() -> None:
    assert guess_args(["a=1", "b=true", "c=all", 'd={"x": 2}', "e=NaN"]) == {
        "a": 1,
        "b": True,
        "c": "all",
        "d": {"x": 2},
        "e": "NaN",
    }
    with pytest.raises(ArgumentError, match="write name=value"):
        guess_args(["30"])


SITE = [
    offer("desk", "pan"),
    offer("desk", "pan", "read", "servo.read"),
    offer("shed", "tilt"),
    offer("shed", None, "run", "build.heavy"),
    offer("desk", None, "run", "build.heavy"),
]


@pytest.mark.parametrize(
    ("target", "place", "capability"),
    [
        ("pan.move", "desk/pan", "servo.move"),
        ("desk/pan.read", "desk/pan", "servo.read"),
        ("servo.read", "desk/pan", "servo.read"),
        ("shed/servo.move", "shed/tilt", "servo.move"),
        ("desk/build.heavy", "desk", "build.heavy"),
    ],
)
def test_a_target_is_a_device_and_action_or_a_capability(target: str, place: str, capability: str) -> None:
    found = find_offer(SITE, target)
    assert (found.place, found.capability) == (place, capability)


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("pna.move", "unknown_capability", "did you mean 'pan.move'?"),
        ("pan.mvoe", "unknown_capability", "did you mean 'move'?"),
        ("attic/pan.move", "unknown_node", "known are: desk, shed"),
        ("servo.move", "ambiguous", "desk/pan or shed/tilt"),
        ("pan", "unknown_capability", "pan cannot"),
        ("", "unknown_capability", "card"),
    ],
)
def test_a_target_that_is_not_there_or_not_clear(target: str, code: str, said: str) -> None:
    with pytest.raises(EdgePandaError) as caught:
        find_offer(SITE, target)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_one_device_name_on_two_nodes_lists_the_candidates() -> None:
    two = [offer("desk", "pan"), offer("shed", "pan")]
    with pytest.raises(EdgePandaError) as caught:
        find_offer(two, "pan.move")
    assert caught.value.details["candidates"] == ["desk/pan", "shed/pan"]
    assert find_offer(two, "shed/pan.move").node == "shed"


def test_what_nobody_can_do_now_is_told_at_once_with_reason_and_cure() -> None:
    broken = msgspec.structs.replace(
        offer("shed", None, "run", "build.heavy"), state="problem", reason="no such program", cure="install it"
    )
    with pytest.raises(EdgePandaError) as caught:
        check_usable([broken], broken)
    error = caught.value
    assert (error.code, error.where, error.cure) == ("unavailable", "shed", "install it")
    assert "no such program" in error.message
    check_usable([broken, offer("desk", None, "run", "build.heavy")], broken)
    pan = msgspec.structs.replace(offer("desk", "pan"), state="unavailable")
    with pytest.raises(EdgePandaError, match="unavailable"):
        check_usable([pan, offer("shed", "pan")], pan)  # another servo is not this one


def test_a_name_with_two_meanings_is_not_guessed() -> None:
    two = [offer("desk", "pan"), offer("desk", None, "run", "pan.move")]
    with pytest.raises(EdgePandaError) as caught:
        find_offer(two, "pan.move")
    assert caught.value.code == "ambiguous"
    assert "--device pan" in caught.value.cure
