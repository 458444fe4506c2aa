"""This moment on all the clocks that the coordinator uses, and whether the wall clock can be trusted."""

from __future__ import annotations

import ctypes
import time

from edgepanda.coordinator.deadlines import Now
from edgepanda.wire.clock import boot_id, boottime


class _Timex(ctypes.Structure):
    """`struct timex` of adjtimex(2), as far as `status` on 64-bit Linux; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_byte * 256),
    )


_UNSYNCHRONISED = 0x0040  # STA_UNSYNC


def clock_synchronised() -> bool:
    """True if the kernel says that the wall clock follows a time server."""
    timex = _Timex()
    result = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    return result >= 0 and not timex.status & _UNSYNCHRONISED


class Clock:
    """Gives moments; asks the kernel about synchronisation at most once a second."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._synchronised = False

    def __call__(self) -> Now:
        """This moment."""
        moment = boottime()
        if moment - self._asked_at > 1.0:
            self._asked_at, self._synchronised = moment, clock_synchronised()
        return Now(boottime=moment, boot=boot_id(), wall=time.time(), synchronised=self._synchronised)
