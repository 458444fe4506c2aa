"""The servo's arithmetic."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.drivers.servo_motion import ServoConfig, judge, move_seconds, way

angles = st.floats(-90, 90)


@given(angles)
def test_angle_and_pulse_are_inverse(angle: float) -> None:
    for config in (ServoConfig(pin=1), ServoConfig(pin=1, min_pulse_us=2200, max_pulse_us=700, min_angle=-180)):
        assert config.angle_of(config.pulse_of(angle)) == pytest.approx(angle, abs=1e-9)
        assert 700 - 1e-6 <= config.pulse_of(angle) <= 2200 + 1e-6


@given(angles, angles, st.floats(1, 720))
def test_a_way_never_leaves_its_ends_nor_passes_its_speed(start: float, target: float, speed: float) -> None:
    config = ServoConfig(pin=1, speed=speed)
    seconds = move_seconds(config, start, target, None, None)
    points = [start, *way(start, target, seconds)]
    assert points[-1] == target
    low, high = min(start, target), max(start, target)
    assert all(low - 1e-9 <= point <= high + 1e-9 for point in points)
    assert all(abs(b - a) <= speed / 50 * (1 + 1e-6) for a, b in itertools.pairwise(points))


@pytest.mark.parametrize(
    ("criterion", "met"),
    [
        ("position within 1 degree", True),
        ("The position is within 0.5 degrees of the target.", True),
        ("angle within 2°", True),
        ("position within 1 degree of 44", False),
        ("Position within 5 deg of 44 degrees", True),
        ("pulse within 10 us", True),
        ("pulse width within 10 µs of 1000", False),
        ("position within 1 degree and the lamp is on", None),
        ("not position within 1 degree", None),
        ("position within one degree", None),
        ("the picture shows a cat", None),
        ("", None),
    ],
)
def test_only_whole_criteria_are_answered(criterion: str, met: bool | None) -> None:
    answers = judge((criterion,), ServoConfig(pin=1), 46.0, ServoConfig(pin=1).pulse_of(45.9), {"kind": "pulse"})
    assert [answer.met for answer in answers] == ([] if met is None else [met])
