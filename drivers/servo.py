"""A hobby servo. It starts detached, moves along a way of its own speed, and holds where it ends.

The first pulse is at the last known position, or at the configured start, never by way of the middle.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec

from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.context import Context
from edgepanda.drivers.contract import CallResult, DriverError, Probe
from edgepanda.drivers.servo_motion import RATE, ServoConfig, judge, move_seconds, way
from edgepanda.drivers.servo_pins import Pulses, check_line, choose, connect

STATE_EVERY = 0.25
"""Seconds between two state notifications along a move."""

_owners: dict[tuple[bool, str], str] = {}


class Position(msgspec.Struct, frozen=True):
    """Angle in degrees, pulse in µs (None: detached), whether pulses are sent."""

    angle: float | None
    pulse_us: float | None
    attached: bool


class Servo(Driver):
    """A servo on a GPIO pin."""

    name = "servo"
    version = "1"
    remembers = True
    Config = ServoConfig

    _pulses: Pulses | None = None
    _angle: float | None = None

    @classmethod
    def probe(cls, config: ServoConfig) -> Probe:
        """Whether there are pins to drive here; the limits that the configuration sets."""
        angle = {"minimum": config.min_angle, "maximum": config.max_angle}
        limits = {"move": {"angle": angle, "speed": {"maximum": config.top_speed, "default": config.speed}}}
        try:
            backend = choose(config)
            if backend.name == "lgpio":
                check_line(config, backend.layer)
        except DriverError as error:
            return Probe(False, error.message, error.cure, config.simulate, limits)
        facts = {"backend": backend.name, "why": backend.why, "pin": config.place}
        simulated = backend.name == "simulated" or type(backend.layer).__name__ == "MockFactory"
        return Probe(True, simulated=simulated, limits=limits, facts=facts)

    def open(self, known: dict[str, Any] | None) -> None:
        """Claims the pin without a pulse."""
        key = (self.config.simulate, self.config.place)
        owner = _owners.setdefault(key, self.device)
        if owner != self.device:
            raise DriverError(
                f"the pin belongs to the device {owner}", code="busy", where=key[1], cure="set another pin"
            )
        try:
            self._pulses = connect(self.config)
        except DriverError:
            del _owners[key]
            raise
        self._angle = self._first_position(known)
        self._tell()

    def safe(self) -> None:
        """Detaches, or goes to the safe angle at the highest speed if the position is known."""
        if self._pulses is None:
            return
        target = self.config.safe
        if target == "detach" or self._angle is None:
            self._pulses.stop()
        else:
            self.under_way()
            self._go(target, abs(target - self._angle) / self.config.top_speed, time.sleep)
        self._tell()

    def close(self) -> None:
        """Gives the pin back; the servo is detached."""
        if self._pulses is not None:
            self._pulses.close()
            self._pulses = None
            _owners.pop((self.config.simulate, self.config.place), None)

    @action(
        tier=1,
        replay="safe",
        on_busy="preempt",
        timeout=60,
        units={"angle": "degree", "speed": "degree/s", "duration": "s"},
        returns=Position,
        spoken=("(turn|move) {device} to {angle} [degrees]",),
        home={"component": "number", "argument": "angle"},
    )
    def move(
        self,
        ctx: Context,
        angle: float,
        speed: Annotated[float, msgspec.Meta(gt=0)] | None = None,
        duration: Annotated[float, msgspec.Meta(ge=0, le=3600)] | None = None,
    ) -> CallResult:
        """Turns to an angle, at a speed or in a duration, and holds it"""
        pulses = self._open_pulses()
        start = self._angle
        if start is None:
            raise DriverError(
                "the position is not known, so a first pulse could make the servo jump",
                code="unavailable",
                where=self.device,
                cure="set start = the angle that it stands at, in the device's configuration",
            )
        seconds = move_seconds(self.config, start, angle, speed, duration)
        if seconds > ctx.remaining:
            raise DriverError(
                f"the move takes {seconds:g} s, and the deadline is in {ctx.remaining:.1f} s",
                code="limit",
                where="angle",
            )
        try:
            self._go(angle, seconds, ctx.wait, ctx)
        except DriverError as stopped:
            self._tell()
            stopped.message += f"; the servo stopped at {self._angle:g} degrees and holds"
            stopped.details |= msgspec.to_builtins(self._position(pulses))
            raise
        self._tell()
        return self._moved(ctx, pulses, angle)

    @action(tier=0, replay="safe", on_busy="queue", timeout=5, returns=Position)
    def read(self, ctx: Context) -> CallResult:
        """Tells the angle and the pulse that is being sent"""
        pulses = self._open_pulses()
        return CallResult("succeeded", value=self._position(pulses), evidence=(self._evidence(pulses),))

    @action(tier=1, replay="safe", on_busy="preempt", timeout=5, returns=Position)
    def detach(self, ctx: Context) -> CallResult:
        """Stops sending pulses, so that the servo can be turned by hand"""
        pulses = self._open_pulses()
        pulses.stop()
        self._tell()
        return CallResult("succeeded", value=self._position(pulses), evidence=(self._evidence(pulses),))

    def _first_position(self, known: dict[str, Any] | None) -> float | None:
        """What is remembered counts for this pin and these pulses only: another servo may stand anywhere."""
        start: float | None = self.config.start
        angle = (known or {}).get("angle")
        if isinstance(angle, bool) or not isinstance(angle, int | float) or not self.config.contains(angle):
            return start
        return float(angle) if (known or {}).get("of") == self._of(angle) else start

    def _of(self, angle: float | None) -> dict[str, Any]:
        """What an angle is an angle of: the pin, and the pulse in µs that means it."""
        return {"pin": self.config.place, "us": None if angle is None else round(self.config.pulse_of(angle), 3)}

    def _open_pulses(self) -> Pulses:
        if self._pulses is None:
            raise DriverError("the device is not open", code="unavailable", where=self.device)
        return self._pulses

    def _go(self, target: float, seconds: float, wait: Any, ctx: Context | None = None) -> None:
        """Sends the pulses of a move; the first is at the present position if the servo was detached."""
        pulses, start = self._open_pulses(), self._angle
        if start is None:
            return
        begin = told = time.monotonic()
        if pulses.read().pulse_us is None:
            pulses.write(self.config.pulse_of(start))
        for step, angle in enumerate(way(start, target, seconds), 1):
            wait(max(0.0, begin + step / RATE - time.monotonic()) if seconds else 0.0)
            pulses.write(self.config.pulse_of(angle))
            self._angle = angle
            if ctx is not None and time.monotonic() - told >= STATE_EVERY and angle != target:
                told = time.monotonic()
                self._tell()
                ctx.progress((angle - start) / (target - start), f"at {angle:.1f} degrees")

    def _moved(self, ctx: Context, pulses: Pulses, target: float) -> CallResult:
        evidence = self._evidence(pulses) | {"commanded_us": round(self.config.pulse_of(target), 3)}
        read_back = pulses.read().pulse_us
        if read_back is None:
            return CallResult(
                "failed", value=self._position(pulses), evidence=(evidence,), narrative="no pulse is being sent"
            )
        return CallResult(
            "succeeded",
            value=self._position(pulses),
            evidence=(evidence,),
            answers=judge(ctx.criteria, self.config, target, read_back, evidence),
            narrative=f"moved to {target:g} degrees, and holds",
        )

    def _evidence(self, pulses: Pulses) -> dict[str, Any]:
        read_back = pulses.read()
        return {
            "kind": "pulse",
            "read_back_us": None if read_back.pulse_us is None else round(read_back.pulse_us, 3),
            "source": read_back.source,
            "simulated": pulses.simulated,
        }

    def _position(self, pulses: Pulses) -> Position:
        pulse = pulses.read().pulse_us
        angle = None if self._angle is None else round(self._angle, 3)
        return Position(angle, None if pulse is None else round(pulse, 3), pulse is not None)

    def _tell(self) -> None:
        position = self._position(self._open_pulses())
        self.state(**msgspec.to_builtins(position), of=self._of(position.angle))
