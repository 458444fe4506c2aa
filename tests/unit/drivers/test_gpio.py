"""Lines by their two names, and who owns them."""

from __future__ import annotations

from typing import Any

import pytest

from edgepanda.drivers.gpio import Line, Owner, declared_lines, find_clash
from edgepanda.drivers.servo import Servo

SCHEMA = Servo.describe().device
CHIP = {"chip": "gpiochip4", "line": 18}


def owner(name: str, pin: object, **more: object) -> Owner:
    return Owner(name, {"pin": pin, **more}, SCHEMA)


def test_the_servo_marks_its_pin() -> None:
    assert declared_lines(owner("pan", 18)) == {"pin": Line(None, 18)}
    assert declared_lines(owner("pan", CHIP, simulate=True)) == {"pin": Line("gpiochip4", 18, True)}


@pytest.mark.parametrize("pin", ["18", True, None, {"chip": "gpiochip4"}, {"chip": 4, "line": 1}, 1.5])
def test_what_is_no_line_is_left_to_the_driver(pin: object) -> None:
    assert declared_lines(owner("pan", pin)) == {}


def test_a_list_of_lines_names_each() -> None:
    schema = {"properties": {"pins": {"gpio": True}, "speed": {}}}
    found = declared_lines(Owner("motor", {"pins": [5, 6], "speed": 5}, schema))
    assert found == {"pins[0]": Line(None, 5), "pins[1]": Line(None, 6)}


def test_an_unknown_schema_has_no_lines() -> None:
    assert declared_lines(Owner("pan", {"pin": 18}, None)) == {}


@pytest.mark.parametrize(
    ("mine", "theirs", "header", "said"),
    [
        (18, 18, None, "GPIO18 belongs to the device 'pan' already"),
        (CHIP, CHIP, None, "gpiochip4 line 18 belongs to the device 'pan' already"),
        (CHIP, 18, "gpiochip4", "gpiochip4 line 18 is GPIO18, which belongs to the device 'pan' already"),
        (18, CHIP, "gpiochip4", "GPIO18 is gpiochip4 line 18, which belongs to the device 'pan' already"),
        (CHIP, 18, "gpiochip0", ""),
        (CHIP, 18, None, ""),
        (17, 18, "gpiochip4", ""),
    ],
)
def test_two_devices_on_one_line(mine: Any, theirs: Any, header: str | None, said: str) -> None:
    clash = find_clash(owner("tilt", mine), [owner("led", 3), owner("pan", theirs)], header)
    assert ("" if clash is None else str(clash)) == said
    assert clash is None or (clash.device, clash.key, clash.other, clash.other_key) == ("tilt", "pin", "pan", "pin")


def test_a_simulated_line_is_no_real_one() -> None:
    assert find_clash(owner("tilt", 18, simulate=True), [owner("pan", 18)], "gpiochip0") is None
    assert find_clash(owner("tilt", 18, simulate=True), [owner("pan", 18, simulate=True)], None) is not None
