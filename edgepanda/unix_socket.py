"""Unix sockets in deep folders: the kernel takes names of at most 107 bytes, a folder may be deeper."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

LONGEST_NAME = 107  # bytes of `sun_path`, without the zero at its end (unix(7))


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
