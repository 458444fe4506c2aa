"""Output of a command on disk: the head and the tail of each stream, in segments that only grow.

The first segment is the head. Of the later ones only the last two are kept, so the tail is whole and nothing is
rewritten; who follows the output knows by segment and offset what is new.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Segments:
    """The writer of one stream; each segment has at most `limit` bytes."""

    def __init__(self, folder: Path, stream: str, limit: int) -> None:
        self.total = 0
        self._folder = folder
        self._stream = stream
        self._limit = limit
        self._index = 0
        self._size = 0
        self._file = self._open()

    def write(self, data: bytes) -> None:
        """Adds bytes."""
        self.total += len(data)
        while data:
            if self._size == self._limit:
                self._turn()
            part, data = data[: self._limit - self._size], data[self._limit - self._size :]
            os.write(self._file, part)
            self._size += len(part)

    def close(self, target: Path) -> None:
        """Ends the stream and joins what was kept into one file, with a line where something is left out."""
        os.close(self._file)
        paths = segments(self._folder, self._stream)
        head, later = paths[0].read_bytes(), b"".join(path.read_bytes() for path in paths[1:])
        tail = later[-self._limit :]
        left_out = self.total - len(head) - len(tail)
        gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
        target.write_bytes(head + gap + tail)

    def _open(self) -> int:
        path = self._folder / f"{self._stream}.{self._index}"
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def _turn(self) -> None:
        os.close(self._file)
        self._index += 1
        self._size = 0
        self._file = self._open()
        if self._index > 2:
            with contextlib.suppress(FileNotFoundError):
                (self._folder / f"{self._stream}.{self._index - 2}").unlink()


def segments(folder: Path, stream: str) -> list[Path]:
    """The segments that are there, in order."""
    return sorted(folder.glob(f"{stream}.[0-9]*"), key=_index)


def _index(path: Path) -> int:
    return int(path.suffix[1:])


class Follower:
    """Reads a stream's segments while they grow; what was dropped before it was read is skipped."""

    def __init__(self, folder: Path, stream: str) -> None:
        self._folder = folder
        self._stream = stream
        self._index = 0
        self._offset = 0

    def skip_to_end(self) -> None:
        """Takes what is there as read already."""
        for path in segments(self._folder, self._stream)[-1:]:
            self._index, self._offset = _index(path), path.stat().st_size

    def read(self, most: int) -> bytes:
        """The next bytes, at most `most`; empty if there is nothing new."""
        found = b""
        for path in segments(self._folder, self._stream):
            index = _index(path)
            if index < self._index or len(found) >= most:
                continue
            if index > self._index:
                self._index, self._offset = index, 0
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(self._offset)
                part = file.read(most - len(found))
                self._offset += len(part)
                found += part
        return found
