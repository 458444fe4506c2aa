"""A driver for benchmarks of the emergency stop: it writes down when it was told to be safe."""

from __future__ import annotations

import os
import time

import msgspec

from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.context import Context


class StoppableConfig(msgspec.Struct, forbid_unknown_fields=True):
    """`file` gets a line (seconds of the monotonic clock, which all processes share) at each `safe`."""

    file: str


class Stoppable(Driver):
    """Notes when it is safe."""

    name = "stoppable"
    Config = StoppableConfig

    def safe(self) -> None:
        now = time.monotonic()
        descriptor = os.open(self.config.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.write(descriptor, f"{now:.6f}\n".encode())
        os.close(descriptor)

    @action(tier=1, replay="safe")
    def hold(self, ctx: Context) -> None:
        """Does nothing; a stop forbids even that"""
