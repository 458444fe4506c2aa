"""Options made from a driver's schema: what is understood, and how what is not is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgepanda.cli.device import listed, where_of
from edgepanda.cli.driver_help import advice, help_text, option_rows, worth_trying
from edgepanda.cli.driver_options import OptionError, options_of, read_words, require
from edgepanda.cli.table import DEVICE_DRIVERS
from edgepanda.drivers.command import Command
from edgepanda.drivers.servo import Servo
from edgepanda.model.config import Config, Loaded
from edgepanda.model.config_types import DRIVERS

SERVO = Servo.describe()
OPEN = {"properties": {"file": {"type": "string"}}}


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("--pin 12", {"pin": 12}),
        ("--pin=12 --speed=30", {"pin": 12, "speed": 30}),
        ("pin=12 min_angle=-45.5", {"pin": 12, "min_angle": -45.5}),
        ("--min-angle -45 --min_pulse_us 600", {"min_angle": -45, "min_pulse_us": 600}),
        ("--pin GPIO12", {"pin": 12}),
        ("--pin gpiochip1:7", {"pin": {"chip": "gpiochip1", "line": 7}}),
        ('--pin {chip="gpiochip1",line=7}', {"pin": {"chip": "gpiochip1", "line": 7}}),
        ('--pin {"chip":"gpiochip1","line":7}', {"pin": {"chip": "gpiochip1", "line": 7}}),
        ("--safe detach", {"safe": "detach"}),
        ("--safe 45", {"safe": 45}),
        ("--simulate --pin 3", {"simulate": True, "pin": 3}),
        ("--simulate false --pin 3", {"simulate": False, "pin": 3}),
        ("--no-simulate", {"simulate": False}),
        ("--start 0 --max-speed 1e2", {"start": 0, "max_speed": 100}),
        ("--speed 90deg/s --start 5°", {"speed": 90, "start": 5}),
        ("--min-pulse-us 1ms --max-pulse-us 1500µs", {"min_pulse_us": 1000, "max_pulse_us": 1500}),
    ],
)
def test_what_is_understood(line: str, values: dict[str, Any]) -> None:
    assert read_words(line.split(), SERVO.device) == values
    assert Servo.read_config({"pin": 1, **values})


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("--sped 4", "--sped", "did you mean --speed?"),
        ("--colour red", "--colour", "it has --pin, --min-pulse-us"),
        ("sped=4", "sped", "did you mean speed?"),
        ("12", "[--KEY VALUE]", "'12' is one word too many"),
        ("--pin", "--pin", "its value is missing"),
        ("--pin x", "--pin", "found 'x', allowed is a whole number 0 to 63, or { chip = ..., line = ... }"),
        ("--pin x", "--pin", "for example --pin 12, or gpiochip0:12"),
        ("--pin 64", "--pin", "a whole number 0 to 63"),
        ("--pin 1.5", "--pin", "a whole number 0 to 63"),
        ("--pin true", "--pin", "found 'true'"),
        ("--pin --speed 3", "--pin", "found '--speed'"),
        ("--speed fast", "--speed", "found 'fast', allowed is a number above 0 to 3600 (degree/s)"),
        ("--speed 0", "--speed", "a number above 0 to 3600"),
        ("--speed nan", "--speed", "found 'nan'"),
        ("--speed 5kg", "--speed", "the unit is degree/s, and 'kg' is another"),
        ("--start 5s", "--start", "the unit is degree, and 's' is another"),
        ("--pin 5ms", "--pin", "the unit: it has none"),
        ("--safe off", "--safe", "allowed is detach, or a number -3600 to 3600 (degree)"),
        ("--backend pigpio", "--backend", "auto or gpiozero or lgpio"),
        ("simulate=maybe", "simulate", "for example simulate=false"),
        ("--pin 1 --pin 2", "--pin", "it is given twice"),
    ],
)
def test_what_is_refused_names_the_option_and_what_is_allowed(line: str, where: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_words(line.split(), SERVO.device)
    assert (caught.value.where, caught.value.code in ("invalid_args", "usage")) == (where, True)
    assert said in str(caught.value)
    assert caught.value.cure


def test_what_is_needed_is_asked_for() -> None:
    with pytest.raises(OptionError) as caught:
        require({"speed": 4}, SERVO.device)
    assert caught.value.where == "--pin"
    assert "GPIO number on a Raspberry Pi's header" in caught.value.message
    require({"pin": 4}, SERVO.device)


def test_lists_tables_and_free_schemas() -> None:
    schema = Command.describe().device
    values = read_words(
        ["--tier", "0", "--env", "TZ", "--env", "LANGUAGE", "--timeout", "2min", "--output-limit", "64KiB"], schema
    )
    assert values == {"tier": 0, "env": ["TZ", "LANGUAGE"], "timeout": 120, "output_limit": 65536}
    assert read_words(['--args={ word = { type = "string" } }'], schema) == {"args": {"word": {"type": "string"}}}
    assert read_words(["--env", '["A", "B"]'], schema) == {"env": ["A", "B"]}
    assert read_words(["--file", "/x", "--level", "3", "--name", "a b"], OPEN) == {
        "file": "/x",
        "level": 3,
        "name": "a b",
    }


def test_options_tell_text_unit_and_default_the_needed_first() -> None:
    first, second, *_ = options_of(SERVO.device)
    assert (first.flag, first.required) == ("--pin", True)
    assert (second.flag, second.unit, second.default, second.text) == (
        "--min-pulse-us", "us", 1000.0, "The pulse at min_angle.",
    )  # fmt: skip
    told = " ".join(help_text("servo", SERVO, "edgepanda device add").split())
    assert "Usage: edgepanda device add servo NAME --pin ... [--KEY VALUE]..." in told
    assert "--speed Where a move names none. [a number above 0 to 3600 (degree/s); default 90]" in told
    assert "NAME.move Turns to an angle" in told


def test_a_key_that_is_an_option_of_the_command_is_shown_as_it_must_be_written() -> None:
    rows = dict(option_rows({"properties": {"config": {"type": "string"}, "file": {"type": "string"}}}))
    assert (rows["config"][0], rows["file"][0]) == ("config=...", "--file")
    assert read_words(["config=x"], {"properties": {"config": {"type": "string"}}}) == {"config": "x"}


def test_every_key_of_a_built_in_driver_has_a_text() -> None:
    for driver in (SERVO, Command.describe()):
        assert [option.name for option in options_of(driver.device) if not option.text] == []


def test_the_command_to_try_keeps_the_limits() -> None:
    assert worth_trying("pan", SERVO, {}, "") == ["edgepanda do pan.move 30"]
    assert worth_trying("pan", SERVO, {"move": {"angle": {"maximum": 10.0}}}, " --config x") == [
        "edgepanda do pan.move 10 --config x"
    ]
    assert worth_trying("pan", SERVO, {"move": {"angle": {"maximum": -5.0}}}, "") == ["edgepanda do pan.move angle=-5"]


def test_what_is_advised_is_said_until_it_is_there() -> None:
    assert advice("pan", SERVO.device, {"pin": 1}, "")[0].startswith("edgepanda device set pan start=...")
    assert advice("pan", SERVO.device, {"pin": 1, "start": 0}, "") == []


def test_the_list_tells_what_the_file_and_the_node_say(tmp_path: Path) -> None:
    devices = {"pan": {"driver": "servo", "pin": 12}, "led": {"driver": "servo", "pin": 13, "simulate": True}}
    loaded = Loaded(Config(devices=devices), tmp_path / "edgepanda.toml", tmp_path)
    assert [row["state"] for row in listed(loaded, None)] == ["node not running"] * 2
    card = {"pan": {"driver": "servo", "state": "problem", "reason": "why"}, "old": {"driver": "servo"}}
    rows = {row["name"]: row for row in listed(loaded, {"devices": card})}
    assert {name: row["state"] for name, row in rows.items()} == {
        "pan": "problem", "led": "not loaded", "old": "not in the file",
    }  # fmt: skip
    assert (rows["pan"]["reason"], rows["pan"]["where"], rows["led"]["simulated"]) == ("why", "GPIO12", True)


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ({"pin": {"chip": "gpiochip1", "line": 7}}, "gpiochip1 line 7"),
        ({"port": "/dev/ttyUSB0"}, "/dev/ttyUSB0"),
        ({"file": "/sys/x"}, "/sys/x"),
        ({}, ""),
    ],
)
def test_where_a_device_is(entry: dict[str, Any], where: str) -> None:
    assert where_of(entry) == where


def test_completion_knows_the_drivers_of_devices() -> None:
    assert set(DEVICE_DRIVERS) == set(DRIVERS) - {"command"}
