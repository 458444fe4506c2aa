"""A driver's host for a moment: to ask what the driver is, and whether a device can be used. Beside a running node."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from edgepanda.model.config import Loaded
from edgepanda.node.configured import Program
from edgepanda.node.hosts import Host


@asynccontextmanager
async def visited(program: Program, *, user: str = "") -> AsyncIterator[Host]:
    """A host of a driver, gone afterwards. It has a run directory of its own, so that the lock by which a node ends
    left-over hosts of its driver is not that of a running node. `user`: whom it runs as; for root only.

    Raises:
        DriverError: `unavailable` when the host does not start; what the driver says.
    """
    with tempfile.TemporaryDirectory(prefix="edgepanda-visit-") as run_dir:
        argv = list(program.argv) or [
            *(sys.executable, "-m", "edgepanda.drivers.host"),
            *(program.source, "--run-dir", run_dir),
        ]
        if user:
            shutil.chown(run_dir, user)
            argv = ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--init-groups", *argv]
        host = Host(program.source, argv, Path(run_dir))
        try:
            await host.start()
            yield host
        finally:
            await host.close()


def state_owner(loaded: Loaded) -> str:
    """The user whose the node's state is, and so whom it runs as; empty where that is ourselves, or is not known."""
    try:
        owner = loaded.state_dir.stat().st_uid
        return "" if owner == os.geteuid() else pwd.getpwuid(owner).pw_name
    except (OSError, KeyError):
        return ""


def visitor(loaded: Loaded) -> str:
    """Whom a driver's host runs as beside the node: root does not run a driver as root where the node does not."""
    return state_owner(loaded) if os.geteuid() == 0 else ""
