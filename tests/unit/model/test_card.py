"""What a card offers."""

from __future__ import annotations

from edgepanda.model.card import Action, Capability, Card, Device, Driver, narrowed, offers

MOVE = Action(
    tier=1,
    replay="safe",
    args={"type": "object", "properties": {"angle": {"type": "number", "maximum": 180}, "speed": {"type": "number"}}},
)
READ = Action(tier=0, replay="safe")
CARD = Card(
    node="pi",
    revision=3,
    incarnation=1,
    labels={"room": "lab", "floor": "1"},
    drivers={"servo": Driver(actions={"move": MOVE, "read": READ})},
    devices={
        "pan": Device(
            driver="servo", state="ready", labels={"room": "roof"}, overrides={"move": {"angle": {"maximum": 90}}}
        ),
        "tilt": Device(driver="servo", state="unavailable", reason="no pin"),
        "lost": Device(driver="absent", state="problem"),
    },
    capabilities={"build.heavy": Capability(action=Action(tier=1, replay="unsafe"), state="ready")},
)


def test_each_device_offers_its_drivers_actions_and_each_capability_itself():
    assert [(o.place, o.capability, o.action_name) for o in offers(CARD)] == [
        ("pi/pan", "servo.move", "move"),
        ("pi/pan", "servo.read", "read"),
        ("pi/tilt", "servo.move", "move"),
        ("pi/tilt", "servo.read", "read"),
        ("pi", "build.heavy", "run"),
    ]


def test_an_offer_says_why_it_is_not_to_be_had():
    tilt = next(o for o in offers(CARD) if o.device == "tilt")
    assert (tilt.state, tilt.reason) == ("unavailable", "no pin")


def test_the_devices_labels_go_over_the_nodes():
    pan, *_ = offers(CARD)
    assert pan.labels == {"room": "roof", "floor": "1"}


def test_a_devices_limits_narrow_its_drivers_schema_and_leave_the_driver_alone():
    pan, *_ = offers(CARD)
    assert pan.action.args["properties"]["angle"] == {"type": "number", "maximum": 90}
    assert pan.action.args["properties"]["speed"] == {"type": "number"}
    assert MOVE.args["properties"]["angle"]["maximum"] == 180
    assert narrowed(MOVE, {}) is MOVE


def test_a_limit_for_an_argument_that_does_not_exist_adds_none():
    assert narrowed(MOVE, {"colour": {"maximum": 1}}).args["properties"].keys() == {"angle", "speed"}
