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


def now() -> Now:
    """This moment."""
    return Now(boottime=boottime(), boot=boot_id(), wall=time.time(), synchronised=clock_synchronised())
