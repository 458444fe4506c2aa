"""A driver's host for a moment: to ask what the driver is, and whether a device can be used. Beside a running node."""

from __future__ import annotations

import pwd
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from edgepanda.node.configured import Program
from edgepanda.node.hosts import Host


@asynccontextmanager
async def visited(program: Program, *, user: str = "") -> AsyncIterator[Host]:
    """A host of a driver, gone afterwards. It has a run directory of its own, so that the lock by which a node ends
    left-over hosts of its driver is not that of a running node. `user`: whom a built-in driver runs as; for root only.

    Raises:
        DriverError: `unavailable` when the host does not start; what the driver says.
    """
    with tempfile.TemporaryDirectory(prefix="edgepanda-visit-") as run_dir:
        argv = list(program.argv) or None
        if user:
            shutil.chown(run_dir, user)
            argv = _as_user(user, program.source, run_dir)
        host = Host(program.source, argv, Path(run_dir))
        try:
            await host.start()
            yield host
        finally:
            await host.close()


def _as_user(user: str, driver: str, run_dir: str) -> list[str]:
    host = [sys.executable, "-m", "edgepanda.drivers.host", driver, "--run-dir", run_dir]
    group = pwd.getpwnam(user).pw_gid
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", *host]
