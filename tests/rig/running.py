"""A process that goes on, and what it prints as it comes. Only the standard library."""

from __future__ import annotations

import re
import signal
import subprocess
import threading

PATIENCE = 30.0  # seconds for one command, and for a process to be ready or gone


class Running:
    """A process of the command line that goes on; what it prints is kept."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, pattern: str, *, after: int = 0, within: float = PATIENCE) -> str:
        """The first line, from the one numbered `after` on, that the pattern is found in."""

        def found() -> str | None:
            return next((line for line in self.lines[after:] if re.search(pattern, line)), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None or self._ended, timeout=within)
            line = found()
        assert line is not None, f"{pattern!r} is not in:\n{self.text}"
        return line

    @property
    def text(self) -> str:
        """All that it has printed."""
        return "\n".join(self.lines)

    def end(self, sign: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal and give the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            code = self.process.wait(PATIENCE)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
        self._reader.join(PATIENCE)
        return code
