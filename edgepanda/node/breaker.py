"""A device or command that fails time after time is left alone for a while, and then tried once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.wire.clock import boottime

log = logging.getLogger("edgepanda.node")

FAILURES = 3  # in a row open it
PAUSE_FIRST, PAUSE_MOST = 10.0, 600.0  # seconds until a trial: at first, and at most; doubled by each that fails
ITS_OWN = frozenset({"io", "unavailable", "timeout"})  # failures of the device, and not of what was asked of it
SLACK = 0.05  # seconds: the loop's clock and the boot clock need not agree to the millisecond


class Breaker(msgspec.Struct):
    """Closed until it has failed `FAILURES` times in a row; then open for a pause; after that half open: the next call
    is the trial that closes it, or opens it for twice as long. Pure; moments are seconds of the boot clock.
    """

    failures: int = 0
    pause: float = 0.0
    until: float | None = None

    def state(self, now: float) -> Literal["closed", "open", "half_open"]:
        """As things stand."""
        if self.until is None:
            return "closed"
        return "open" if now < self.until else "half_open"

    def failed(self, now: float) -> bool:
        """A call failed of itself; True if that opens it."""
        self.failures += 1
        if self.failures < FAILURES or self.state(now) == "open":
            return False
        self.pause = min(self.pause * 2 or PAUSE_FIRST, PAUSE_MOST)
        self.until = now + self.pause
        return True

    def succeeded(self) -> bool:
        """A call came to an end; True if that closes it."""
        was_closed = self.until is None
        self.failures, self.pause, self.until = 0, 0.0, None
        return not was_closed


class Breakers:
    """Those of a node's devices and commands, by name. `on_change` is called when the card would show another state."""

    def __init__(self, on_change: Callable[[], None], clock: Callable[[], float] = boottime) -> None:
        self._on_change, self._clock = on_change, clock
        self._breakers: dict[str, Breaker] = {}
        self._problems: dict[str, tuple[str, str]] = {}  # worded once, so that the card does not change by itself
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def problem(self, name: str) -> tuple[str, str] | None:
        """Reason and cure while it is left alone."""
        breaker = self._breakers.get(name)
        return self._problems[name] if breaker is not None and breaker.state(self._clock()) == "open" else None

    def check(self, name: str) -> None:
        """Raises `EdgePandaError` (`unavailable`) while it is left alone."""
        problem = self.problem(name)
        if problem is not None:
            raise EdgePandaError(f"{name} is left alone: {problem[0]}", code="unavailable", where=name, cure=problem[1])

    def failed(self, name: str, error: EdgePandaError) -> None:
        """A call on it ended with this error."""
        if error.code not in ITS_OWN:
            return
        breaker = self._breakers.setdefault(name, Breaker())
        if not breaker.failed(self._clock()):
            return
        at = time.strftime("%H:%M:%S", time.localtime(time.time() + breaker.pause))
        reason = (
            f"it failed {breaker.failures} times in a row, last: {error.message} [{error.code}]; next trial at {at}"
        )
        cure = "look at its cable and its power, or at its program; `edgepanda card rescan` tries it at once"
        self._problems[name] = (reason, cure)
        log.warning("%s is left alone for %g s: %s", name, breaker.pause, reason)
        self._wake(name, breaker.pause)
        self._on_change()

    def succeeded(self, name: str) -> None:
        """A call on it came to an end of its own."""
        breaker = self._breakers.pop(name, None)
        if breaker is not None and breaker.succeeded():
            log.info("%s works again", name)
            self.forget(name)

    def forget(self, name: str) -> None:
        """It is another one from now on."""
        self._breakers.pop(name, None)
        self._problems.pop(name, None)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def try_now(self) -> None:
        """Somebody has looked: the next call on each is its trial."""
        for name, breaker in self._breakers.items():
            if breaker.state(self._clock()) == "open":
                breaker.until = self._clock()
                self._timers.pop(name).cancel()
        self._on_change()

    def close(self) -> None:
        """No timer is left."""
        for name in list(self._timers):
            self.forget(name)

    def _wake(self, name: str, seconds: float) -> None:
        before = self._timers.pop(name, None)
        if before is not None:
            before.cancel()
        self._timers[name] = asyncio.get_running_loop().call_later(seconds + SLACK, self._trial_is_due, name)

    def _trial_is_due(self, name: str) -> None:
        breaker, now = self._breakers[name], self._clock()
        if breaker.state(now) == "open" and breaker.until is not None:
            self._wake(name, breaker.until - now)
        else:
            self._on_change()
