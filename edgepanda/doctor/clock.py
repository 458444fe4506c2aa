"""The clock: whether somebody sets it, whether it can be right, whether it was moved."""

from __future__ import annotations

import contextlib
import os
import time

import msgspec

from edgepanda.coordinator.moment import clock_synchronised
from edgepanda.doctor.finding import Finding, fault, ok, warning
from edgepanda.doctor.patient import Patient, tool

_MOVED = "c7a787079b354eaaa9e77b371893cd27"  # systemd's id of the message that the time was changed
EARLIEST = 1_764_547_200.0  # 2025-12-01: before that this program did not exist
AHEAD = 60.0  # seconds that a file may be from the future
JUMPS = 3  # since boot; one is the first synchronisation


class ClockFacts(msgspec.Struct, frozen=True):
    """`synchronised`: as the kernel knows it. `newest`: when state was last written.
    `jumps`: how often the clock was set since boot, None where no journal tells.
    """

    now: float
    synchronised: bool = False
    newest: float = 0.0
    newest_file: str = ""
    jumps: int | None = None


async def read(patient: Patient) -> ClockFacts:
    """The facts; nothing is set."""
    newest, name = _newest(patient)
    told = await tool(
        *("journalctl", "-q", "-b", "-o", "cat", "--no-pager", f"MESSAGE_ID={_MOVED}"), within=patient.within / 2
    )
    jumps = None if told is None else len(told.splitlines())
    return ClockFacts(time.time(), clock_synchronised(), newest, name, jumps)


def _newest(patient: Patient) -> tuple[float, str]:
    newest, name = 0.0, ""
    if patient.loaded is not None:
        with contextlib.suppress(OSError), os.scandir(patient.loaded.state_dir) as entries:
            for entry in entries:
                written = entry.stat(follow_symlinks=False).st_mtime
                if written > newest:
                    newest, name = written, entry.path
    return newest, name


def judge(facts: ClockFacts) -> list[Finding]:
    """Leases and time-outs do not use this clock; what people read, certificates and deadlines do."""
    found = []
    if facts.now < EARLIEST:
        found.append(
            fault(
                code="clock_wrong",
                where="clock",
                found=f"it says {_day(facts.now)}, which cannot be",
                cure="a board without a battery must be told the time: `sudo timedatectl set-ntp true`",
            )
        )
    elif facts.newest > facts.now + AHEAD:
        found.append(
            fault(
                code="clock_behind",
                where=facts.newest_file,
                found=f"it was written on {_day(facts.newest)}, and the clock says {_day(facts.now)}: it was moved",
                cure="look which of the two is right: `timedatectl`",
            )
        )
    if not facts.synchronised:
        found.append(
            warning(
                code="clock_unsynchronised",
                where="clock",
                found="nobody sets it over the network, so that times are not to be trusted",
                cure="`sudo timedatectl set-ntp true`, and `timedatectl` shows whether a server answers",
            )
        )
    if facts.jumps is not None and facts.jumps > JUMPS:
        found.append(
            warning(
                code="clock_jumps",
                where="clock",
                found=f"it was set {facts.jumps} times since boot",
                cure="`journalctl -b -t systemd` shows when; two programs that set the clock fight",
            )
        )
    return found or [ok(where="clock", found=f"{_day(facts.now)}, set over the network")]


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
