"""A folder as an initial RAM disk (cpio, "newc"), owned by root: `newc.py FOLDER FILE`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path


def entries(root: Path) -> Iterator[tuple[str, int, bytes]]:
    """Name, mode and content of everything below; the console first, which the kernel opens for the first process."""
    for folder, folders, files in os.walk(root):
        for name in sorted(folders + files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                yield str(path.relative_to(root)), mode, os.fsencode(path.readlink())
            elif stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                yield str(path.relative_to(root)), mode, path.read_bytes() if stat.S_ISREG(mode) else b""


def packed(number: int, name: str, mode: int, data: bytes, device: tuple[int, int] = (0, 0)) -> bytes:
    """One entry."""
    raw = os.fsencode(name) + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(raw), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + raw
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def main(root: str, target: str) -> None:
    """Write it."""
    with open(target, "wb") as out:
        for number, entry in enumerate(entries(Path(root)), 1):
            out.write(packed(number, *entry))
        out.write(packed(0, "dev/console", stat.S_IFCHR | 0o600, b"", (5, 1)))
        out.write(packed(0, "TRAILER!!!", 0, b""))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
