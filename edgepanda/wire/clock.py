"""The clock of leases and time-outs: CLOCK_BOOTTIME, which no wall-clock jump moves and which counts suspend."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import msgspec


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """A moment on one machine: which start of the daemon, which boot, how long since that boot."""

    incarnation: int
    boot: str
    ms: int


def boottime() -> float:
    """Seconds since this machine booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.cache
def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stamp(incarnation: int) -> Stamp:
    """Now; each stamp of this process is later than the last, so that of two in one millisecond none looks replayed."""
    global _last_ms  # noqa: PLW0603 one clock, one last moment
    _last_ms = max(_last_ms + 1, int(boottime() * 1000))
    return Stamp(incarnation=incarnation, boot=boot_id(), ms=_last_ms)


_last_ms = 0
