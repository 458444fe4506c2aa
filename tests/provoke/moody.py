"""A driver for tests, found by its path: each of its calls fails, in the way that it is told to."""

from __future__ import annotations

from typing import cast

from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.context import Context
from edgepanda.drivers.contract import CallResult, Code, DriverError


class Moody(Driver):
    """Fails."""

    name = "moody"

    @action(tier=0, replay="safe")
    def fail(self, ctx: Context, code: str) -> None:
        """Fails with this code"""
        raise DriverError("it does not want to", code=cast(Code, code))

    @action(tier=0, replay="safe")
    def give_up(self, ctx: Context) -> CallResult:
        """Fails without a reason"""
        return CallResult("failed", narrative="it gave up")

    @action(tier=0, replay="safe")
    def crash(self, ctx: Context) -> None:
        """Fails as a driver does that has a fault"""
        raise ZeroDivisionError("a fault of the driver")
