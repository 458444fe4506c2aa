"""Which process is meant: a pid alone is reused, so records also hold the start time and the boot.

Only the standard library: the supervisor of commands imports nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import NamedTuple


class PidRecord(NamedTuple):
    """A process: its pid, its start in clock ticks since boot (`/proc/PID/stat`, field 22), and the boot's id."""

    pid: int
    start: int
    boot: str


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_of(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot; None if there is none, or only its zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def record_of(pid: int) -> PidRecord:
    """The record of a process that runs now (start 0 if it is gone already)."""
    return PidRecord(pid, start_of(pid) or 0, boot_id())


def runs(record: PidRecord) -> bool:
    """Whether this very process still runs."""
    return record.pid > 1 and record.start > 0 and record.boot == boot_id() and start_of(record.pid) == record.start


def send_signal(record: PidRecord, number: signal.Signals, *, group: bool = False) -> bool:
    """Signals this very process, or with `group` the process group that it leads; False if it is gone."""
    if not runs(record):
        return False
    with contextlib.suppress(ProcessLookupError):
        if group:
            os.killpg(record.pid, number)
        else:
            os.kill(record.pid, number)
        return True
    return False


def write_json(path: Path, value: object, *, sync: bool = True) -> None:
    """Writes a small JSON file that others see whole or not at all; with `sync` also after a power cut."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(value).encode())
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    if sync:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_record(path: Path, key: str = "process") -> PidRecord | None:
    """The pid record under `key` of a JSON file; None if the file or the record is missing or malformed."""
    try:
        pid, start, boot = json.loads(path.read_text())[key]
        return PidRecord(int(pid), int(start), str(boot))
    except (OSError, ValueError, KeyError, TypeError):
        return None
