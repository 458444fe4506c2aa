"""A person at a terminal: a home and a folder of their own, and the `edgepanda` command as a real process."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.rig.brokers import free_port
from tests.rig.running import PATIENCE, Running


class Person:
    """Somebody with an empty home, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.home, self.folder, self.temporary = folder / "home", folder / "here", folder / "tmp"
        for each in (self.home, self.folder, self.temporary):
            each.mkdir(parents=True)
        self.prefix: list[str] = []  # words before each command, as `Network.prefix`
        self._started: list[Running] = []

    def close(self) -> None:
        """End what was started and goes on still."""
        for running in reversed(self._started):
            if running.process.poll() is None:
                running.end()

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the developer's own."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("EDGEPANDA_", "XDG_"))}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
        return {**kept, "HOME": str(self.home), "TMPDIR": str(self.temporary), "PATH": path, "TERM": "dumb"}

    def run(self, *words: str, within: float = PATIENCE) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*self.prefix, sys.executable, "-m", "edgepanda", *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=within,
        )

    def ok(self, *words: str) -> str:
        """What a command prints that must succeed."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Any:
        """The document of a command with --json that must succeed."""
        return json.loads(self.ok(*words, "--json"))

    def start(self, *words: str, more: dict[str, str] | None = None) -> Running:
        """Start a command that goes on; `more`: variables of its environment."""
        process = subprocess.Popen(
            [*self.prefix, sys.executable, "-u", "-m", "edgepanda", *words],
            cwd=self.folder,
            env=self.environment | (more or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(Running(process))
        return self._started[-1]

    def at_terminal(self, *words: str, typed: str | None = None) -> tuple[int, str]:
        """Run a command with a terminal as its output, and as its input too if something is typed there; its exit code,
        and all that stood on the terminal.
        """
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "edgepanda", *words],
            cwd=self.folder,
            env=self.environment | {"TERM": "xterm"},
            stdin=subprocess.DEVNULL if typed is None else theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, (typed or "").encode())
        told = b""
        patience = threading.Timer(PATIENCE, process.kill)
        patience.start()
        with contextlib.suppress(OSError):  # the end of a terminal is an error
            while part := os.read(ours, 65536):
                told += part
        patience.cancel()
        os.close(ours)
        return process.wait(PATIENCE), told.decode()

    def listen_anywhere(self) -> None:
        """Let the embedded broker of the configuration listen on a free port."""
        config = self.folder / "edgepanda.toml"
        text = config.read_text()
        line = f'listen = "127.0.0.1:{free_port()}"'
        assert '# listen = "127.0.0.1:1883"' in text
        config.write_text(text.replace('# listen = "127.0.0.1:1883"', line))

    def configure(self, text: str) -> None:
        """Add to the configuration."""
        with (self.folder / "edgepanda.toml").open("a") as file:
            file.write(text)

    @contextlib.contextmanager
    def up(self) -> Iterator[Running]:
        """`edgepanda up`, ready; ended afterwards."""
        running = self.start("up")
        try:
            running.wait_for("^ready: ")
            yield running
        finally:
            running.end()

    def processes(self) -> list[str]:
        """Command lines of all processes that belong to this person's folders, zombies left out."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if str(self.folder.parent) in line or self._works_here(entry):
                        found.append(f"{entry.name} {line}")
        return found

    def _works_here(self, process: Path) -> bool:
        return str(process.joinpath("cwd").readlink()).startswith(str(self.folder.parent))


@contextlib.contextmanager
def set_up(folder: Path, more: str = "") -> Iterator[Person]:
    """Somebody whose site is set up, with a broker on a port of its own and `more` in the configuration, and does not
    run. What was started is ended afterwards.
    """
    someone = Person(folder)
    try:
        someone.ok("init", "--name", "desk")
        someone.listen_anywhere()
        someone.configure(more)
        yield someone
    finally:
        someone.close()
