"""The servo driver on gpiozero's mock pins, by the pin's own log; and on a recording stand-in for lgpio's functions.

The stand-in shows which pulses are asked of lgpio, not that a kernel sends them.
"""

from __future__ import annotations

import itertools
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.drivers import servo, servo_pins
from edgepanda.drivers.context import Context
from edgepanda.drivers.contract import CallParams, CallResult, DriverError
from edgepanda.drivers.servo import Servo

PIN = 17


class Bench:
    """One servo, opened, and what it told."""

    def __init__(self, known: dict[str, Any] | None = None, **config: Any) -> None:
        self.told: list[tuple[str, Any]] = []
        settings = {"pin": PIN, "simulate": True, "speed": 900.0} | config
        self.servo = Servo(
            "pan", Servo.read_config(settings), Path(), lambda method, params: self.told.append((method, params))
        )
        self.servo.open(known)

    @property
    def pulses(self) -> list[float]:
        """The widths in µs that the mock pin logged, 0 for none."""
        return [round(state.state * 20000, 3) for state in self.servo._pulses.pin.states]  # type: ignore[union-attr]

    def context(self, **params: Any) -> Context:
        context = Context(1, CallParams("pan", "move", 5000, **params), 2.0, lambda _: None)
        context.begin()
        return context

    def move(self, angle: float, *criteria: str, **options: Any) -> CallResult:
        return self.servo.move(self.context(criteria=criteria), angle, **options)


@pytest.fixture(autouse=True)
def fresh_pins() -> Iterator[None]:
    servo._owners.clear()
    servo_pins._shared.clear()
    yield
    servo._owners.clear()
    servo_pins._shared.clear()


def refusal(bench: Bench, angle: float, **options: Any) -> DriverError:
    with pytest.raises(DriverError) as caught:
        bench.move(angle, **options)
    return caught.value


def test_it_starts_detached_and_nothing_moves() -> None:
    assert set(Bench(start=30.0).pulses) == {0.0}


def remembered(angle: float, **config: Any) -> dict[str, Any]:
    """What the node remembers of a servo that was last at this angle."""
    bench = Bench(start=angle, **config)
    values: dict[str, Any] = bench.told[-1][1].values
    bench.servo.close()
    return values


STANDS = {"angle": -60.0, "of": {"pin": f"GPIO{PIN}", "us": 1166.667}}


@pytest.mark.parametrize(("known", "start", "first"), [(STANDS, 45.0, -60.0), (None, 45.0, 45.0), ({}, 45.0, 45.0)])
def test_the_first_pulse_is_where_it_stands(known: dict[str, Any] | None, start: float, first: float) -> None:
    bench = Bench(known, start=start)
    bench.move(80)
    sent = [pulse for pulse in bench.pulses if pulse]
    assert sent[0] == pytest.approx(1500 + first / 90 * 500, abs=0.01)
    assert sent[-1] == pytest.approx(1500 + 80 / 90 * 500, abs=0.01)
    assert sent == sorted(sent)
    assert 1500.0 not in sent[:1]


def test_a_move_from_one_side_stays_off_the_middle_when_its_way_does() -> None:
    bench = Bench(start=60.0)
    bench.move(85)
    assert min(pulse for pulse in bench.pulses if pulse) >= 1500 + 60 / 90 * 500 - 0.01


@pytest.mark.parametrize("changed", [{"pin": PIN + 1}, {"max_pulse_us": 2400}, {"min_pulse_us": 700}])
def test_a_position_of_other_pulses_or_of_another_pin_is_not_believed(changed: dict[str, Any]) -> None:
    bench = Bench(remembered(30.0), **changed)
    assert refusal(bench, 10).code == "unavailable"
    assert set(bench.pulses) == {0.0}


def test_a_position_is_believed_with_another_speed() -> None:
    assert Bench(remembered(30.0), speed=100.0).move(31).outcome == "succeeded"


@pytest.mark.parametrize("known", [None, {}, {"angle": None}, {"angle": True}, {"angle": "0"}, {"angle": 91.0}])
def test_without_a_known_position_nothing_is_sent(known: dict[str, Any] | None) -> None:
    bench = Bench(known)
    error = refusal(bench, 10)
    assert error.code == "unavailable"
    assert "start =" in error.cure
    assert set(bench.pulses) == {0.0}


def test_a_move_goes_in_steps_of_its_speed_and_holds() -> None:
    bench = Bench(start=0.0, speed=450.0)
    bench.move(90)
    sent = [pulse for pulse in bench.pulses if pulse]
    assert len(sent) == 11  # where it stood, and 0.2 s of 50 positions a second
    steps = [b - a for a, b in itertools.pairwise(sent)]
    assert max(steps) == pytest.approx(min(steps), abs=0.01)
    assert bench.servo._pulses.read().pulse_us == pytest.approx(2000)  # type: ignore[union-attr]


def test_evidence_is_read_back_and_says_that_it_is_simulated() -> None:
    bench = Bench(start=0.0)
    result = bench.move(45, "position within 1 degree", "it looks nice", "position within 1 degree of 90")
    (evidence,) = result.evidence
    assert evidence["commanded_us"] == evidence["read_back_us"] == 1750.0
    assert evidence["simulated"] is True
    assert "Mock" in evidence["source"]
    assert [(a.criterion, a.met) for a in result.answers] == [
        ("position within 1 degree", True),
        ("position within 1 degree of 90", False),
    ]
    of = {"pin": f"GPIO{PIN}", "us": 1750.0}
    assert bench.told[-1][1].values == {"angle": 45.0, "pulse_us": 1750.0, "attached": True, "of": of}


def test_what_the_read_back_contradicts_is_not_met() -> None:
    bench = Bench(start=0.0)
    pulses = bench.servo._pulses
    assert pulses is not None
    bench.servo._pulses = types.SimpleNamespace(  # type: ignore[assignment]
        write=pulses.write, read=lambda: servo_pins.ReadBack(1500.0, "stuck"), simulated=True
    )
    result = bench.move(45, "position within 1 degree")
    assert [answer.met for answer in result.answers] == [False]


def test_no_pulse_afterwards_is_a_failure() -> None:
    bench = Bench(start=0.0)
    bench.servo._pulses.write = lambda _: None  # type: ignore[union-attr, method-assign]
    assert bench.move(45).outcome == "failed"


def test_limits_name_what_is_allowed() -> None:
    bench = Bench(start=0.0, min_angle=-40.0, max_angle=60.0, max_travel=50.0, max_speed=900.0)
    for angle, options, allowed in [
        (60.5, {}, "-40 to 60"),
        (-41, {}, "-40 to 60"),
        (55, {}, "50 degrees away"),
        (10, {"speed": 901.0}, "900"),
        (45, {"duration": 0.01}, "at least 0.05 s"),
    ]:
        error = refusal(bench, angle, **options)
        assert (error.code, allowed in error.message) == ("limit", True), error
    assert refusal(bench, 10, speed=5.0, duration=1.0).code == "invalid_args"
    assert set(bench.pulses) == {0.0}


def test_a_way_that_outlasts_the_deadline_is_not_begun() -> None:
    bench = Bench(start=0.0, speed=1.0)
    assert refusal(bench, 30).code == "limit"
    assert set(bench.pulses) == {0.0}


def test_a_cancelled_move_stops_where_it_is_and_holds() -> None:
    bench = Bench(start=0.0, speed=30.0)
    context = bench.context()
    threading.Timer(0.15, context.stop, ("cancel",)).start()
    with pytest.raises(DriverError) as caught:
        bench.servo.move(context, 90)
    reached = caught.value.details["angle"]
    assert caught.value.code == "cancelled"
    assert 1 < reached < 30
    assert bench.servo._pulses.read().pulse_us == pytest.approx(1500 + reached / 90 * 500, abs=0.01)  # type: ignore[union-attr]


def test_detach_ends_the_pulses_and_remembers_where() -> None:
    bench = Bench(start=0.0)
    bench.move(30)
    value = msgspec.to_builtins(bench.servo.detach(bench.context()).value)
    assert value == {"angle": 30.0, "pulse_us": None, "attached": False}
    bench.move(31)
    after = bench.pulses[bench.pulses.index(0.0, 2) + 1 :]
    assert after[0] == pytest.approx(1500 + 30 / 90 * 500, abs=0.01)


def test_the_safe_state_is_detached_or_an_angle() -> None:
    bench = Bench(start=30.0)
    bench.move(40)
    bench.servo.safe()
    assert bench.pulses[-1] == 0.0
    bench.servo.close()
    bench = Bench(start=30.0, safe=-30)
    bench.servo.safe()
    assert bench.pulses[-1] == pytest.approx(1500 - 30 / 90 * 500, abs=0.01)


def test_nothing_goes_to_a_safe_angle_from_nobody_knows_where() -> None:
    bench = Bench(safe=-30)
    bench.servo.safe()
    assert set(bench.pulses) == {0.0}


def test_two_devices_cannot_have_one_pin() -> None:
    Bench(start=0.0)
    other = Servo("tilt", Servo.read_config({"pin": PIN, "simulate": True}), Path(), lambda *_: None)
    with pytest.raises(DriverError) as caught:
        other.open(None)
    assert (caught.value.code, "pan" in caught.value.message) == ("busy", True)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"pin": 17, "min_angle": 10.0, "max_angle": 10.0},
        {"pin": 17, "min_pulse_us": 1500, "max_pulse_us": 1500},
        {"pin": 17, "max_pulse_us": 3000},
        {"pin": 17, "start": 91},
        {"pin": 17, "safe": -91},
        {"pin": 17, "safe": "off"},
        {"pin": 17, "speed": 0},
        {"pin": 17, "speed": 100, "max_speed": 90},
        {"pin": True},
        {"pin": 17, "colour": "red"},
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(DriverError) as caught:
        Servo.read_config(config)
    assert caught.value.code == "invalid_args"


class RecordedLgpio:
    """Has the functions of lgpio that the driver calls, and records the calls."""

    TX_PWM = 0

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.busy = False
        self.transmitting = False

    def gpiochip_open(self, chip: int) -> int:
        self.calls.append(("open", chip))
        return 5

    def gpio_get_chip_info(self, handle: int) -> list[Any]:
        return [0, 128, "gpiochip0", "pinctrl-test"]

    def gpio_claim_output(self, handle: int, pin: int, level: int) -> None:
        if self.busy:
            raise RuntimeError("GPIO busy")
        self.calls.append(("claim", handle, pin, level))

    def gpio_get_line_info(self, handle: int, pin: int) -> list[Any]:
        return [0, pin, 1, "GPIO17", "w1"]

    def tx_servo(self, handle: int, pin: int, width: int, frequency: int) -> int:
        self.calls.append(("tx_servo", handle, pin, width, frequency))
        self.transmitting = width > 0
        return 10

    def tx_busy(self, handle: int, pin: int, kind: int) -> int:
        return int(self.transmitting)

    def gpio_free(self, handle: int, pin: int) -> None:
        self.calls.append(("free", handle, pin))

    def gpiochip_close(self, handle: int) -> None:
        self.calls.append(("close", handle))


@pytest.fixture
def lgpio(monkeypatch: pytest.MonkeyPatch) -> RecordedLgpio:
    recorded = RecordedLgpio()
    monkeypatch.delenv("GPIOZERO_PIN_FACTORY", raising=False)
    monkeypatch.setattr(servo_pins, "_lgpio", lambda: (recorded, ""))
    return recorded


def test_lgpio_gets_whole_microseconds_and_starts_without_a_pulse(lgpio: RecordedLgpio) -> None:
    bench = Bench(start=30.0, simulate=False)
    assert lgpio.calls == [("open", 0), ("claim", 5, PIN, 0)]
    result = bench.move(45, "pulse within 1 us")
    sent = [call[3] for call in lgpio.calls if call[0] == "tx_servo"]
    assert sent[0] == 1667
    assert sent[-1] == 1750
    assert all(isinstance(width, int) for width in sent)
    assert result.evidence[0]["simulated"] is False
    assert "tx_busy" in result.evidence[0]["source"]
    assert result.answers[0].met
    bench.servo.close()
    assert lgpio.calls[-3:] == [("tx_servo", 5, PIN, 0, 50), ("free", 5, PIN), ("close", 5)]


def test_lgpio_that_stopped_sending_is_a_failure(lgpio: RecordedLgpio) -> None:
    bench = Bench(start=30.0, simulate=False)
    lgpio.tx_busy = lambda *_: 0  # type: ignore[method-assign]
    result = bench.move(45, "position within 1 degree")
    assert (result.outcome, result.answers) == ("failed", ())


def test_a_busy_pin_says_who_has_it(lgpio: RecordedLgpio) -> None:
    lgpio.busy = True
    with pytest.raises(DriverError) as caught:
        Bench(simulate=False)
    assert caught.value.code == "busy"
    assert "'w1'" in caught.value.message
    assert "gpioinfo" in caught.value.cure
    assert lgpio.calls[-1] == ("close", 5)
    lgpio.busy = False
    Bench(simulate=False)  # the refused open has left nothing behind


def test_an_empty_lgpio_is_not_taken_for_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lgpio", types.ModuleType("lgpio"))
    probe = Servo.probe(Servo.read_config({"pin": PIN, "backend": "lgpio"}))
    assert not probe.usable
    assert "without tx_servo" in probe.reason
    assert probe.cure


def test_probe_tells_limits_and_what_is_simulated() -> None:
    probe = Servo.probe(Servo.read_config({"pin": PIN, "simulate": True, "max_angle": 45.0}))
    assert (probe.usable, probe.simulated, probe.facts["backend"]) == (True, True, "simulated")
    assert probe.limits["move"]["angle"] == {"minimum": -90.0, "maximum": 45.0}


def test_a_pin_by_chip_and_line_is_opened_on_that_chip(lgpio: RecordedLgpio) -> None:
    bench = Bench(start=0.0, simulate=False, pin={"chip": "gpiochip3", "line": 107})
    assert lgpio.calls == [("open", 3), ("claim", 5, 107, 0)]
    bench.servo.close()


@pytest.mark.parametrize("pin", [{"chip": "gpiochip3", "line": 128}, {"chip": "gpiochip3", "line": 1023}])
def test_a_line_that_the_chip_lacks_names_its_lines(lgpio: RecordedLgpio, pin: dict[str, Any]) -> None:
    config = Servo.read_config({"pin": pin})
    probe = Servo.probe(config)
    with pytest.raises(DriverError) as caught:
        Servo("pan", config, Path(), lambda *_: None).open(None)
    assert (probe.usable, probe.reason, probe.cure) == (False, caught.value.message, caught.value.cure)
    assert probe.reason == f"gpiochip3 has 128 lines, and no line {pin['line']}"
    assert "0 to 127" in probe.cure
    assert "pip" not in probe.cure
    assert lgpio.calls == [("open", 3), ("close", 5)] * 2


def test_equal_lines_of_two_chips_are_two_pins() -> None:
    one, other, header = (
        Bench(start=0.0, pin=pin)
        for pin in ({"chip": "gpiochip0", "line": 107}, {"chip": "gpiochip1", "line": 107}, PIN + 1)
    )
    assert one.servo._pulses is not None
    one.move(30)
    assert len(one.pulses) > 1
    assert len(other.pulses) == len(header.pulses) == 1
    for bench in (one, other, header):
        bench.servo.close()


def test_one_line_belongs_to_one_device() -> None:
    first = Bench(start=0.0, pin={"chip": "gpiochip0", "line": 7})
    config = Servo.read_config({"pin": {"chip": "gpiochip0", "line": 7}, "simulate": True})
    with pytest.raises(DriverError) as caught:
        Servo("tilt", config, Path(), lambda *_: None).open(None)
    assert (caught.value.code, caught.value.where) == ("busy", "gpiochip0 line 7")
    first.servo.close()


@pytest.mark.parametrize(
    "pin",
    [
        {"chip": "gpiochip1"},
        {"chip": "1", "line": 7},
        {"chip": "gpiochip01", "line": 7},
        {"chip": "gpiochip1", "line": -1},
        {"chip": "x/../y"},
        "18",
    ],
)
def test_a_pin_that_is_none(pin: object) -> None:
    with pytest.raises(DriverError) as caught:
        Servo.read_config({"pin": pin})
    assert caught.value.code == "invalid_args"
    assert "pin" in str(caught.value)


def test_a_line_needs_lgpio_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servo_pins, "_lgpio", lambda: (None, "lgpio cannot be imported"))
    probe = Servo.probe(Servo.read_config({"pin": {"chip": "gpiochip1", "line": 7}}))
    assert (probe.usable, "needs lgpio" in probe.reason) == (False, True)
    assert probe.cure
