"""The arithmetic of a servo: angles and pulses, the way of a move, and criteria that a read-back answers. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from edgepanda.drivers.contract import Answer, DriverError, about

RATE = 50
"""Positions a second along a move; a servo takes a pulse every 20 ms."""

PulseWidth = Annotated[float, msgspec.Meta(ge=500, le=2500, extra_json_schema={"unit": "us"})]
Angle = Annotated[float, msgspec.Meta(ge=-3600, le=3600, extra_json_schema={"unit": "degree"})]
Speed = Annotated[float, msgspec.Meta(gt=0, le=3600, extra_json_schema={"unit": "degree/s"})]


class ChipLine(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A line of a GPIO chip, as `gpioinfo` lists them: for any board, without a Raspberry Pi's numbering."""

    chip: Annotated[str, msgspec.Meta(pattern=r"^gpiochip(0|[1-9][0-9]{0,2})$(?!\n)")]
    line: Annotated[int, msgspec.Meta(ge=0, le=1023)]

    def __str__(self) -> str:
        return f"{self.chip} line {self.line}"


Pin = Annotated[
    Annotated[int, msgspec.Meta(ge=0, le=63)] | ChipLine,
    about("The signal wire: GPIO number on a Raspberry Pi's header, or chip and line on any board.", gpio=True),
]


class ServoConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One servo. The longer pulse may be that of `min_angle`, for a servo that is mounted the other way round."""

    pin: Pin
    min_pulse_us: Annotated[PulseWidth, about("The pulse at min_angle.")] = 1000.0
    max_pulse_us: Annotated[PulseWidth, about("The pulse at max_angle.")] = 2000.0
    min_angle: Annotated[Angle, about("It never goes below.")] = -90.0
    max_angle: Annotated[Angle, about("It never goes above.")] = 90.0
    speed: Annotated[Speed, about("Where a move names none.")] = 90.0
    max_speed: Annotated[Speed | None, about("Is never passed; without it: speed.")] = None
    max_travel: Annotated[
        Annotated[float, msgspec.Meta(gt=0, extra_json_schema={"unit": "degree"})] | None,
        about("The longest way of one move."),
    ] = None
    safe: Annotated[
        Literal["detach"] | Angle, about("Where it goes on stop, on exit, on a lost link: detach, or an angle.")
    ] = "detach"
    start: Annotated[
        Angle | None,
        about(
            "Where it stands when nobody knows; without it the first move is refused, since it could jump.",
            advised=True,
        ),
    ] = None
    backend: Annotated[
        Literal["auto", "gpiozero", "lgpio"], about("What sends the pulses; auto takes lgpio where it is.")
    ] = "auto"
    simulate: Annotated[bool, about("Pins that are not there: for trying out, on any machine.")] = False

    def __post_init__(self) -> None:
        if self.min_angle >= self.max_angle:
            raise ValueError("min_angle must be below max_angle")
        if self.min_pulse_us == self.max_pulse_us:
            raise ValueError("min_pulse_us and max_pulse_us must differ")
        if self.speed > self.top_speed:
            raise ValueError("speed must not be above max_speed")
        for key in ("start", "safe"):
            angle = getattr(self, key)
            if isinstance(angle, float) and not self.contains(angle):
                raise ValueError(f"{key} must lie in {self.min_angle:g} to {self.max_angle:g} degrees")

    @property
    def place(self) -> str:
        """The pin in words: `GPIO18`, or `gpiochip1 line 7`."""
        return str(self.pin) if isinstance(self.pin, ChipLine) else f"GPIO{self.pin}"

    @property
    def top_speed(self) -> float:
        """Degrees a second that are never passed."""
        return self.speed if self.max_speed is None else self.max_speed

    def contains(self, angle: float) -> bool:
        """Whether an angle in degrees lies within the limits."""
        return self.min_angle <= angle <= self.max_angle

    def pulse_of(self, angle: float) -> float:
        """The pulse in µs for an angle in degrees, linear between the two ends."""
        share = (angle - self.min_angle) / (self.max_angle - self.min_angle)
        return self.min_pulse_us + share * (self.max_pulse_us - self.min_pulse_us)

    def angle_of(self, pulse_us: float) -> float:
        """The angle in degrees that a pulse in µs stands for."""
        share = (pulse_us - self.min_pulse_us) / (self.max_pulse_us - self.min_pulse_us)
        return self.min_angle + share * (self.max_angle - self.min_angle)


def move_seconds(
    config: ServoConfig, start: float, target: float, speed: float | None, duration: float | None
) -> float:
    """How long a move from `start` to `target` (degrees) takes, in seconds.

    Raises:
        DriverError: `limit` for an angle out of range, a way too long, a speed too high; `invalid_args` for both
            `speed` and `duration`.
    """
    travel = abs(target - start)
    if not config.contains(target):
        raise _limit("angle", target, f"{config.min_angle:g} to {config.max_angle:g} degrees")
    if config.max_travel is not None and travel > config.max_travel:
        raise _limit("angle", target, f"{config.max_travel:g} degrees away from {start:g} at most (max_travel)")
    if speed is not None and duration is not None:
        raise DriverError("speed and duration exclude each other", code="invalid_args", where="speed, duration")
    if speed is not None and speed > config.top_speed:
        raise _limit("speed", speed, f"above 0 to {config.top_speed:g} degrees a second")
    if duration is None:
        return travel / (speed or config.speed)
    if travel > duration * config.top_speed:
        raise _limit("duration", duration, f"at least {travel / config.top_speed:g} s for {travel:g} degrees")
    return duration


def way(start: float, target: float, seconds: float) -> Iterator[float]:
    """The angles of a move, one each 1/50 s after `start`; the last one is `target` exactly."""
    steps = max(1, math.ceil(seconds * RATE - 1e-9))
    for step in range(1, steps):
        yield start + (target - start) * step / steps
    yield target


def _limit(argument: str, value: float, allowed: str) -> DriverError:
    return DriverError(f"{argument} {value:g} is refused; allowed: {allowed}", code="limit", where=argument)


_NUMBER = r"(-?[0-9]+(?:\.[0-9]+)?)"
_DEGREES = r" ?(?:degrees?|deg|°)"
_POSITION = re.compile(
    rf"(?:the )?(?:position|angle) (?:is )?within {_NUMBER}{_DEGREES}(?: of (?:the target|{_NUMBER}(?:{_DEGREES})?))?"
)
_PULSE = re.compile(rf"(?:the )?pulse (?:width )?(?:is )?within {_NUMBER} ?(?:us|µs|microseconds?)(?: of {_NUMBER})?")


def judge(
    criteria: tuple[str, ...], config: ServoConfig, target: float, pulse_us: float, evidence: dict[str, object]
) -> tuple[Answer, ...]:
    """Answers the criteria that the pulse that was read back (µs) can answer; all others stay unanswered.

    Understood are, as a whole and in any case of letters, 'position within 1 degree' (also `angle`; of the move's
    target, or `of 45`) and 'pulse within 10 us' (likewise).
    """
    answers = []
    for criterion in criteria:
        text = " ".join(criterion.lower().split()).rstrip(".")
        if found := _POSITION.fullmatch(text):
            wanted, got = target, config.angle_of(pulse_us)
        elif found := _PULSE.fullmatch(text):
            wanted, got = config.pulse_of(target), pulse_us
        else:
            continue
        tolerance = float(found[1])
        wanted = float(found[2]) if found[2] else wanted
        shown = evidence | {"wanted": round(wanted, 3), "got": round(got, 3), "tolerance": tolerance}
        answers.append(Answer(criterion, abs(got - wanted) <= tolerance + 1e-6, shown))
    return tuple(answers)
