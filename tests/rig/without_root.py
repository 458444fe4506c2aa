"""A folder to which permissions apply, also where the tests run as root."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 loaded late, when that user may no longer read it
import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def without_root() -> Iterator[Path]:
    """A folder of a user to whom permissions apply, and that user's rights for the time being."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if os.geteuid() != 0:
            yield folder
            return
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(0)
