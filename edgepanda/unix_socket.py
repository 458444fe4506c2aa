"""Unix sockets in deep folders: the kernel takes names of at most 107 bytes, a folder may be deeper."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

LONGEST_NAME = 107  # bytes of `sun_path`, without the zero at its end (unix(7))
_PEER, _CREDENTIALS = (socket.SOL_SOCKET, socket.SO_PEERCRED), "3i"  # `struct ucred`: pid, uid, gid


@contextlib.contextmanager
def reachable(path: Path) -> Iterator[str]:
    """A name for this socket that may be bound or connected to within the context: its own, or one by way of /proc.

    Raises `OSError` when the folder cannot be opened.
    """
    if len(os.fsencode(path)) <= LONGEST_NAME:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listener(path: Path, within: float) -> tuple[int, int]:
    """Process and user of whoever listens on a socket, as the kernel tells. Raises `OSError`, also after `within` s."""
    with reachable(path) as name, socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(within)
        connection.connect(name)
        pid, uid, _ = struct.unpack(_CREDENTIALS, connection.getsockopt(*_PEER, struct.calcsize(_CREDENTIALS)))
    return pid, uid
