"""From a submit to a task: every check before anything is kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgepanda.coordinator.submit import VALID_FOR, accept, check_args
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Action, Capability, Card, Device, Driver, Offer, offers
from edgepanda.wire.requests import LARGEST_SUBMIT, Submit

MOVE = {
    "properties": {
        "angle": {"type": "number", "minimum": -90, "maximum": 90, "unit": "degrees"},
        "speed": {"type": "number", "default": 60},
    },
    "required": ["angle"],
    "additionalProperties": False,
}


def site(**overrides: Any) -> list[Offer]:
    move = Action(args=MOVE, tier=1, replay="safe", on_busy="preempt")
    read = Action(tier=0, replay="safe")
    card = Card(
        node="desk",
        revision=1,
        incarnation=1,
        drivers={"servo": Driver(actions={"move": move, "read": read})},
        devices={"pan": Device(driver="servo", state="ready", overrides=overrides)},
        capabilities={
            "build.heavy": Capability(action=Action(tier=1, replay="unsafe"), state="ready"),
            "disk.wipe": Capability(action=Action(tier=2, replay="unsafe"), state="ready"),
        },
    )
    return offers(card)


def submit(**fields: Any) -> Submit:
    return msgspec.convert({"id": "task-0001", **fields}, Submit)


def refused(**fields: Any) -> str:
    with pytest.raises(EdgePandaError) as caught:
        accept(submit(**fields), site(), "me")
    assert caught.value.message
    return caught.value.code


def test_a_task_is_routed_and_completed() -> None:
    task = accept(submit(device="pan", action="move", args={"angle": 30}), site(), "me")
    assert (task.capability, task.device, task.node, task.args) == (
        "servo.move",
        "pan",
        "desk",
        {"angle": 30, "speed": 60},
    )
    assert (task.tier, task.replay, task.by, task.limits.valid_for) == (1, "safe", "me", VALID_FOR)


def test_only_what_acts_on_a_device_is_valid_for_a_moment() -> None:
    assert accept(submit(capability="servo.read"), site(), "me").limits.valid_for is None
    assert accept(submit(capability="build.heavy"), site(), "me").limits.valid_for is None
    own = accept(submit(capability="servo.move", args={"angle": 1}, limits={"valid_for": 5.0}), site(), "me")
    assert own.limits.valid_for == 5.0


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": "a/b", "capability": "build.heavy"}, "invalid_task_id"),
        ({"id": "short", "capability": "build.heavy"}, "invalid_task_id"),
        ({}, "invalid_args"),
        ({"capability": "servo.move", "action": "move"}, "invalid_args"),
        ({"action": "move"}, "invalid_args"),
        ({"capability": "servo.mov"}, "unknown_capability"),
        ({"device": "pen", "action": "move"}, "unknown_device"),
        ({"capability": "servo.move", "node": "shed", "args": {"angle": 1}}, "unknown_node"),
        ({"capability": "servo.move"}, "invalid_args"),
        ({"capability": "servo.move", "args": {"angle": "far"}}, "invalid_args"),
        ({"capability": "servo.move", "args": {"angle": 91}}, "limit"),
        ({"capability": "servo.move", "args": {"angle": 1, "angel": 1}}, "invalid_args"),
        ({"capability": "disk.wipe"}, "consent_required"),
        ({"capability": "build.heavy", "goal": "x" * LARGEST_SUBMIT}, "oversized"),
        ({"capability": "build.heavy", "priority": 101}, "limit"),
        ({"capability": "build.heavy", "criteria": ["c"] * 33}, "limit"),
        ({"capability": "build.heavy", "limits": {"timeout": 0}}, "limit"),
        ({"capability": "build.heavy", "limits": {"valid_for": -1.0}}, "limit"),
        ({"capability": "build.heavy", "limits": {"deadline": 1e12}}, "limit"),
        ({"capability": "build.heavy", "limits": {"max_attempts": 0}}, "limit"),
    ],
)
def test_what_is_wrong_is_refused_with_its_code(fields: dict[str, Any], code: str) -> None:
    assert refused(**fields) == code


def test_a_devices_own_limit_counts() -> None:
    with pytest.raises(EdgePandaError) as caught:
        accept(submit(capability="servo.move", args={"angle": 60}), site(move={"angle": {"maximum": 45}}), "me")
    assert (caught.value.code, caught.value.where) == ("limit", "args.angle")
    assert "degrees" in caught.value.message


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"a": {"type": "no such type"}}},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_the_cards_fault(schema: dict[str, Any]) -> None:
    error = check_args(Action(args=schema, tier=1, replay="safe"), {"a": "x"})
    assert error is not None
    assert (error.code, error.where) == ("unsupported", "card")
