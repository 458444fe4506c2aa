"""Tab in the shells that people have: real ones, each at a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rig.cli import PATIENCE, Person

START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
SET_UP = {
    "bash": 'eval "$(edgepanda completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(edgepanda completion zsh)"',
    "fish": "edgepanda completion fish | source",
}
SERVO = '\n[devices.tilt]\ndriver = "servo"\npin = 5\nsimulate = true\n'


class Terminal:
    """A shell at a terminal. What it shows is read without its escape sequences."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._raw = b""

    @property
    def shown(self) -> str:
        """All of it."""
        return re.sub(
            r"\x1b(\[[0-9;?<>=]*[a-zA-Z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])", "", self._raw.decode(errors="replace")
        )

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def wait_for(self, pattern: str, after: int = 0) -> None:
        """Read until it is shown."""
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.shown[after:]):
            assert time.monotonic() < end, f"{pattern!r} is not in:\n{self.shown[after:]!r}"
            if select.select([self._descriptor], [], [], 0.2)[0]:
                self._raw += os.read(self._descriptor, 65536)
                if b"\x1b[c" in self._raw:  # fish asks what the terminal is, and waits
                    self._raw = self._raw.replace(b"\x1b[c", b"")
                    self.type("\x1b[?6c")


@contextmanager
def shell(name: str, person: Person) -> Iterator[Terminal]:
    """A shell that knows our completion, ended afterwards."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(person.folder)
        os.execvpe(START[name][0], START[name], {**person.environment, "TERM": "dumb", "PS1": "> "})  # noqa: S606
    try:
        terminal = Terminal(descriptor)
        terminal.type(f"{SET_UP[name]}\recho set''up done\r")
        terminal.wait_for("setup done")
        yield terminal
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose site has two servos; `edgepanda` is on the path."""
    someone = Person(tmp_path_factory.mktemp("shells"))
    someone.ok("init", "--name", "desk")
    someone.listen_anywhere()
    someone.configure(SERVO)
    with someone.up():
        someone.ok("status")
    assert (Path(sys.executable).parent / "edgepanda").exists()
    yield someone
    someone.close()


@pytest.mark.parametrize("name", START)
def test_tab_completes(name: str, person: Person) -> None:
    with shell(name, person) as terminal:
        for typed, becomes in (
            ("edgepanda expl", "edgepanda explain"),
            ("edgepanda config sc", "edgepanda config schema"),
            ("edgepanda do pan.mo", "edgepanda do pan.move"),
            ("edgepanda do tilt.move sp", "edgepanda do tilt.move speed="),
            ("edgepanda broker r", "edgepanda broker run"),
            ("edgepanda tasks --sta", "edgepanda tasks --state"),
        ):
            before = len(terminal.shown)
            terminal.type(f"{typed}\t")
            new = becomes.removeprefix(typed)  # a shell may draw no more than that
            terminal.wait_for(f"{re.escape(typed)}[^\\n]*?{re.escape(new)}", before)
            terminal.type("\x15")  # a line anew
