"""Who listens on a TCP port of this machine, as far as /proc tells this user."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_LISTEN = "0A"  # the state in /proc/net/tcp
_PROC = Path("/proc")


def port_owner(port: int, *, proc: Path = _PROC) -> str:
    """Program and process that listen on this port, as in `mosquitto (process 512)`; empty where nothing tells."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return ""
    for process in proc.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            if any(os.readlink(link) in sockets for link in (process / "fd").iterdir()):
                return f"{_program(process)} (process {process.name})"
    return ""


def _listening(port: int, proc: Path) -> list[str]:
    inodes = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == _LISTEN and int(local.rpartition(":")[2], 16) == port:
                    inodes.append(rest[5])
    return inodes


def _program(process: Path) -> str:
    words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    names = [word.rpartition("/")[2] for word in words]
    if "edgepanda" in names[:-1]:
        return f"edgepanda {names[names.index('edgepanda') + 1]}".strip()
    return (process / "comm").read_text().strip()
