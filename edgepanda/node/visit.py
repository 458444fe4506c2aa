"""A driver's host for a moment: to ask what the driver is, and whether a device can be used. Beside a running node."""

from __future__ import annotations

import pwd
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from edgepanda.node.hosts import Host


def program_of(entry: dict[str, Any], folder: Path) -> tuple[str, list[str] | None]:
    """What runs as the host of a device's driver, as the node takes it: a built-in name or the path of a .py file, or
    with `command` any name and the program. `folder`: that of the configuration.
    """
    driver, argv = str(entry["driver"]), entry.get("command")
    if driver.endswith(".py"):
        return str((folder / driver).resolve()), None
    if not argv:
        return driver, None
    program = str((folder / argv[0]).resolve()) if "/" in argv[0] else argv[0]
    return driver, [program, *argv[1:]]


@asynccontextmanager
async def visited(driver: str, argv: list[str] | None, *, user: str = "") -> AsyncIterator[Host]:
    """A host of this driver, gone afterwards. It has a run directory of its own, so that the lock by which a node ends
    left-over hosts of its driver is not that of a running node. `user`: whom a built-in driver runs as; for root only.

    Raises:
        DriverError: `unavailable` when the host does not start; what the driver says.
    """
    with tempfile.TemporaryDirectory(prefix="edgepanda-visit-") as run_dir:
        if user:
            shutil.chown(run_dir, user)
            argv = _as_user(user, driver, run_dir)
        host = Host(driver, argv, Path(run_dir))
        try:
            await host.start()
            yield host
        finally:
            await host.close()


def _as_user(user: str, driver: str, run_dir: str) -> list[str]:
    host = [sys.executable, "-m", "edgepanda.drivers.host", driver, "--run-dir", run_dir]
    group = pwd.getpwnam(user).pw_gid
    return ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups", *host]
