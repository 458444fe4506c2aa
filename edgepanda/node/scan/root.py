"""Reading /proc, /sys, /dev and /boot below a root folder. What cannot be read is empty, never an error."""

from __future__ import annotations

import os
import re
from pathlib import Path

from edgepanda.node.scan.edge import Edge, Still

MOST = 256 * 1024  # bytes that are read of one file
DEVICE_TREE = "sys/firmware/devicetree/base"  # /proc/device-tree is a link to it, and an absolute one


class Root:
    """A machine's files, and its edge: what only the live machine can tell."""

    def __init__(self, path: Path, edge: Edge | None = None) -> None:
        self.path = path
        live = path == Path("/")
        self.edge = edge if edge is not None else (Edge() if live else Still())
        self._open: dict[str, list[tuple[int, str]]] | None = None

    def text(self, name: str) -> str:
        """The file's text without the space around it; empty if there is none. Device-tree text ends with a NUL."""
        try:
            with open(self.path / name, "rb") as file:
                raw = file.read(MOST)
        except (OSError, ValueError):
            return ""
        text = raw.decode("utf-8", "replace").strip(" \t\r\n\0")
        return text if text.isprintable() else "".join(c for c in text if c == "\n" or c.isprintable())

    def lines(self, name: str) -> list[str]:
        """The file's lines."""
        return self.text(name).splitlines()

    def number(self, name: str) -> int | None:
        """The file's whole number, decimal; None if it is none."""
        return whole(self.text(name))

    def names(self, folder: str, pattern: str = "") -> list[str]:
        """The names in a folder that match as a whole, in the order of their numbers."""
        try:
            found = os.listdir(self.path / folder)
        except (OSError, ValueError):
            return []
        return sorted((name for name in found if not pattern or re.fullmatch(pattern, name)), key=by_number)

    def link(self, name: str) -> str:
        """The last part of where a link points; empty if it is no link."""
        try:
            return Path(os.readlink(self.path / name)).name
        except (OSError, ValueError):
            return ""

    def real(self, name: str) -> str:
        """The path below the root with all links followed; empty if it cannot be."""
        try:
            return str((self.path / name).resolve(strict=True).relative_to(self.path.resolve()))
        except (OSError, ValueError, RuntimeError):
            return ""

    def has(self, name: str) -> bool:
        """True if it is there."""
        try:
            return (self.path / name).exists()
        except (OSError, ValueError):
            return False

    def users(self, device: str) -> list[tuple[int, str]]:
        """The processes that have /dev/... open, as far as we may look: number and command. Not ourselves, nor our
        children (driver hosts).
        """
        if self._open is None:
            self._open = self._look()
        return self._open.get(device, [])

    def command(self, pid: int) -> str:
        """A process's command, in a word."""
        return self.text(f"proc/{pid}/comm") or "a process"

    def _look(self) -> dict[str, list[tuple[int, str]]]:
        me, found = self.edge.user().pid, dict[str, list[tuple[int, str]]]()
        for name in self.names("proc", r"\d+"):
            pid, handles = int(name), self._handles(name)
            if not handles or pid == me or self._parent(name) == me:
                continue
            for target in handles:
                found.setdefault(target, []).append((pid, self.command(pid)))
        return found

    def _handles(self, pid: str) -> set[str]:
        folder = self.path / "proc" / pid / "fd"
        found = set()
        for name in self.names(f"proc/{pid}/fd"):
            try:
                target = os.readlink(folder / name)
            except (OSError, ValueError):
                continue
            if target.startswith("/dev/"):
                found.add(target)
        return found

    def _parent(self, pid: str) -> int:
        after = self.text(f"proc/{pid}/stat").rpartition(")")[2].split()
        return whole(after[1]) or 0 if len(after) > 1 else 0


def whole(text: str) -> int | None:
    """A whole number of at most 18 digits, or None."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def by_number(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts gpiochip2 before gpiochip10."""
    return [
        (0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part)
        for part in re.split(r"(\d{1,18})", name)
    ]
