"""What was found before and is missing becomes unavailable, and never vanishes."""

from __future__ import annotations

import msgspec

from edgepanda.model.hardware import Hardware, I2cBus, SerialPort, items, with_missing

ARDUINO = SerialPort(name="usb-Arduino", device="/dev/ttyACM0", usb="2341:0043")
OFF = I2cBus(name="i2c-1", state="unavailable", why="overlay", reason="off", cure="on")


def test_what_is_missing_becomes_unavailable_with_a_reason() -> None:
    (port,) = with_missing(Hardware(), Hardware(serial=(ARDUINO,))).serial
    assert (port.name, port.state, port.why, port.device) == ("usb-Arduino", "unavailable", "gone", "")
    assert port.usb == "2341:0043"
    assert port.reason
    assert "card rescan" in port.cure


def test_what_comes_back_is_usable_again() -> None:
    gone = with_missing(Hardware(), Hardware(serial=(ARDUINO,)))
    assert with_missing(gone, gone) == gone
    back = msgspec.structs.replace(ARDUINO, device="/dev/ttyACM1")
    assert with_missing(Hardware(serial=(back,)), gone).serial == (back,)


def test_nothing_missing_is_nothing_changed() -> None:
    now = Hardware(board="a", serial=(ARDUINO,))
    assert with_missing(now, now) is now


def test_a_switch_that_is_on_now_is_not_missed() -> None:
    bus = I2cBus(name="i2c-1", device="/dev/i2c-1")
    assert with_missing(Hardware(i2c=(bus,)), Hardware(i2c=(OFF,))).i2c == (bus,)
    assert with_missing(Hardware(), Hardware(i2c=(OFF,))).i2c == ()


def test_a_part_that_cannot_be_scanned_stays_as_it_was() -> None:
    now = Hardware(problems={"serial": "no"})
    assert with_missing(now, Hardware(serial=(ARDUINO,))).serial == (ARDUINO,)


def test_it_goes_through_a_dictionary() -> None:
    facts = Hardware(board="a", serial=(ARDUINO,), i2c=(OFF,))
    assert msgspec.convert(msgspec.to_builtins(facts), Hardware) == facts
    assert list(items(facts)) == [("i2c", OFF), ("serial", ARDUINO)]
