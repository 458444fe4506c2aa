"""One host per driver: a lock that the host inherits, and the end of hosts that an earlier node left behind.

The node locks a file and hands the descriptor to the host, which so holds the lock for as long as it lives, in
whatever language it is written. The pid record in the file says whom to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import signal
import time
from pathlib import Path

from edgepanda.drivers.contract import EXIT_WITHIN, DriverError
from edgepanda.drivers.process import read_record, record_of, send_signal

POLL = 0.02


def lock_path(run_dir: Path, driver: str) -> Path:
    """The lock file of a driver; one that is a path gets a digest, so that equal file names do not collide."""
    if re.fullmatch(r"[a-z][a-z0-9_]*", driver):
        return run_dir / f"{driver}.host"
    stem = re.sub(r"[^a-z0-9]", "_", Path(driver).stem.lower())
    return run_dir / f"{stem}-{hashlib.sha256(driver.encode()).hexdigest()[:12]}.host"


class HostLock:
    """The lock of one driver; `descriptor` is handed to the host, then given up here with `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def record(self, pid: int) -> None:
        """Writes down which process holds the lock now."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, json.dumps({"process": record_of(pid)}).encode(), 0)

    def release(self) -> None:
        """Closes this copy of the descriptor; the lock stays with the host if there is one."""
        os.close(self.descriptor)


async def take_lock(path: Path) -> HostLock:
    """Locks the file; a left-over host that holds it is asked to go to its safe state and exit, then killed.

    Raises:
        DriverError: `busy` when the holder is no host of ours or does not go; `io` when the file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DriverError(f"the lock file cannot be made: {error.strerror}", where=str(path)) from error
    try:
        if not _try(descriptor):
            await _end_holder(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return HostLock(path, descriptor)


def _try(descriptor: int) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


async def _end_holder(path: Path, descriptor: int) -> None:
    record = read_record(path)
    if record is not None:
        for number, group, seconds in ((signal.SIGTERM, False, EXIT_WITHIN), (signal.SIGKILL, True, 1.0)):
            if not send_signal(record, number, group=group):
                break
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if _try(descriptor):
                    return
                await asyncio.sleep(POLL)
    if _try(descriptor):
        return
    raise DriverError(
        "another process holds the lock of this driver",
        code="busy",
        where=str(path),
        cure=f"`fuser {path}` shows it; end it, or give the other node a run directory of its own",
        details={"pid": record.pid if record else None},
    )
