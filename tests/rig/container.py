"""A machine to try documents on that is a whole Debian: a tree in systemd-nspawn, and a user with sudo in it.

Needs root. Only the standard library, so that the system's own Python can run it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.rig.machine import PATH, Machine

USER = "panda"


class Container(Machine):
    """Off until `boot`. `root`: the tree, in which the user has a clone already; `options`: for systemd-nspawn."""

    patience = 240.0  # seconds for one command: some of them install packages

    def __init__(self, name: str, root: Path, options: list[str]) -> None:
        self.name, self.root, self.options = name, root, options
        self.folder, self.path = root, PATH
        self.home = root / "home" / USER
        self.clone = self.home / "edgepanda"
        self.notes = root / "srv"  # /tmp is the container's own
        self.begin()

    def inside(self, path: Path) -> str:
        """The path without the tree's."""
        return f"/{path.relative_to(self.root)}"

    def boot_words(self) -> list[str]:
        """A container that holds nothing but a shell, as long as its standard input is open."""
        fixed = ["-q", "-D", str(self.root), f"--hostname={self.name}", "--register=no", "--keep-unit", "--as-pid2"]
        return ["systemd-nspawn", *fixed, "--pipe", *self.options, "sh", "-c", "echo up && exec cat"]

    def enter_words(self, first: int) -> list[str]:
        """Into all that is the container's, and there as the user."""
        enter = ["nsenter", "--target", str(first), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--"]
        return [*enter, "/usr/sbin/runuser", "-u", USER, "--"]

    def network_words(self) -> list[str]:
        """What runs a program of this system in the container's network; it must have one of its own."""
        return ["nsenter", "--target", str(self.first), "--net", "--"]

    def start_over(self) -> None:
        """As the clone was before anything was typed, but for the packages."""
        (self.clone / "edgepanda.toml").unlink(missing_ok=True)
        for folder in (self.clone / ".edgepanda", self.home / ".local/share/edgepanda"):
            shutil.rmtree(folder, ignore_errors=True)
