"""What `status` and `nodes` say, from the answers of coordinator and node."""

from __future__ import annotations

from typing import Any

from edgepanda.cli.nodes import families, suits, summary, troubles
from edgepanda.cli.status import local_lines, next_steps

CARD: dict[str, Any] = {
    "labels": {"room": "lab"},
    "software": "0.1.0",
    "revision": 3,
    "drivers": {"servo": {"actions": {"move": {}, "read": {}}}},
    "devices": {
        "pan": {"driver": "servo", "state": "ready", "simulated": True},
        "tilt": {"driver": "servo", "state": "unavailable", "reason": "pin 12 is busy", "cure": "free it"},
    },
    "capabilities": {"build.heavy": {"state": "ready"}},
}
NODE: dict[str, Any] = {"name": "desk", "online": True, "claiming": True, "slots": 2, "free": 1, "card": CARD}


def test_a_node_in_short() -> None:
    told = summary(NODE)
    assert told["devices"] == {"pan": "ready", "tilt": "unavailable"}
    assert told["capabilities"] == ["build.heavy", "servo.move", "servo.read"]
    assert "card" not in told


def test_what_cannot_be_used_is_told_with_its_cure() -> None:
    assert troubles(NODE) == ["desk/tilt is unavailable: pin 12 is busy; free it"]
    assert troubles({"name": "new", "card": None}) == []


def test_filters() -> None:
    assert suits(NODE, {"room": "lab"}, "online")
    assert not suits(NODE, {"room": "hall"}, None)
    assert not suits(NODE, {}, "away")


def test_capabilities_say_their_common_part_once() -> None:
    assert families(["build.heavy", "servo.move", "servo.read", "plain"]) == "build.heavy servo.{move,read} plain"


def test_the_next_steps_follow_from_what_there_is() -> None:
    empty: dict[str, Any] = {"needs_person": [], "running": [], "failures": [], "nodes": []}
    assert next_steps(empty)[1].startswith("edgepanda nodes add")
    assert next_steps({**empty, "nodes": [NODE]})[1].startswith("edgepanda card")
    asked = next_steps({**empty, "nodes": [NODE], "needs_person": [{"id": "a"}], "running": [{"id": "b"}]})
    assert [line.split("  ")[0] for line in asked[1:]] == ["edgepanda show a", "edgepanda watch b"]


def test_a_node_alone_tells_what_it_lacks() -> None:
    node = {
        "name": "desk",
        "incarnation": 4,
        "card": CARD,
        "broker": False,
        "broker_error": {"message": "refused", "cure": "start it"},
        "coordinator": False,
        "problem": None,
        "journal_problem": {"message": "the disk is full"},
        "unacknowledged": 2,
        "running": [{"task": "t1", "attempt": 1, "device": "pan"}],
    }
    assert local_lines(node) == [
        "node         desk, start 4, card 3",
        "broker       not connected: refused; start it",
        "coordinator  not heard of since this node started",
        "journal      the disk is full",
        "reports      2 that the coordinator has not acknowledged",
        "running      t1 on pan",
        "  pan  \x1b[32mready\x1b[0m, simulated",
        "  tilt  \x1b[31munavailable\x1b[0m  pin 12 is busy; free it",
        "  build.heavy  \x1b[32mready\x1b[0m",
    ]
