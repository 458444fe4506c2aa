"""Runs one command and outlives the host that began it: `python -m edgepanda.drivers.command_supervisor WORK`.

It holds the lock of the attempt (inherited, so there is no moment without it), owns the command's pipes, keeps head
and tail of its output, enforces the time-out, ends the command's process group by INT, TERM, KILL, and writes how it
ended so that a power cut leaves the record whole or absent. Only the standard library: one runs per command.

SIGTERM (a cancel) and SIGALRM (a deadline) ask for INT, TERM, KILL with the grace time between them; SIGUSR1 for KILL
at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from edgepanda.drivers.command_output import Segments
from edgepanda.drivers.process import record_of, write_json

DRAIN = 0.2
"""Seconds in which output may still arrive after the command has ended."""

STEPS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class Supervisor:
    """One command from its start to the record of its end."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._run = work / ".run"
        self._spec: dict[str, Any] = json.loads((self._run / "spec.json").read_text())
        self._streams = {name: Segments(self._run, name, self._spec["output_limit"]) for name in ("stdout", "stderr")}
        self._began = time.monotonic()
        self._reason = "exited"
        self._steps = iter(STEPS)
        self._next_step: float | None = None
        self._wake, self._woken = os.pipe()
        self._asked: set[int] = set()

    def run(self) -> None:
        """Runs the command."""
        for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1):
            signal.signal(number, self._signalled)
        try:
            child = subprocess.Popen(
                self._spec["argv"],
                cwd=self._work,
                env=self._spec["env"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            self._finish({"error": error.strerror or str(error)})
            return
        records = {"process": record_of(os.getpid()), "group": record_of(child.pid)}
        write_json(self._run / "pids.json", records, sync=False)
        self._watch(child)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # what the command left behind in its group
        code = child.wait()
        self._finish({"code": code} if code >= 0 else {"code": None, "signal": -code})

    def _signalled(self, number: int, _: object) -> None:
        self._asked.add(number)
        os.write(self._woken, b"x")

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        pidfd = os.pidfd_open(child.pid)
        pipes = {pipe.fileno(): name for name, pipe in (("stdout", child.stdout), ("stderr", child.stderr)) if pipe}
        poll = select.poll()
        for descriptor in (*pipes, pidfd, self._wake):
            poll.register(descriptor, select.POLLIN)
        ended: float | None = None
        while ended is None or (pipes and time.monotonic() < ended + DRAIN):
            for descriptor, _ in poll.poll(self._pause(ended) * 1000):
                if descriptor == pidfd:
                    ended = time.monotonic()
                    poll.unregister(pidfd)
                elif descriptor == self._wake:
                    os.read(self._wake, 64)
                elif data := os.read(descriptor, 1 << 16):
                    self._streams[pipes[descriptor]].write(data)
                else:
                    poll.unregister(descriptor)
                    del pipes[descriptor]
            if ended is None:
                self._step(child.pid)
        os.close(pidfd)

    def _pause(self, ended: float | None) -> float:
        now = time.monotonic()
        if ended is not None:
            return max(0.0, ended + DRAIN - now)
        until = self._began + self._spec["timeout"] if self._next_step is None else self._next_step
        return max(0.0, until - now) + 0.001

    def _step(self, group: int) -> None:
        """Sends the signal that is due, if one is."""
        now = time.monotonic()
        if signal.SIGUSR1 in self._asked:
            self._stop("killed", now)
            self._steps = iter((signal.SIGKILL,))
            self._next_step = now
            self._asked.clear()
        elif signal.SIGTERM in self._asked:
            self._stop("cancelled", now)
        elif signal.SIGALRM in self._asked or now >= self._began + self._spec["timeout"]:
            self._stop("timeout", now)
        if self._next_step is not None and now >= self._next_step:
            number = next(self._steps, signal.SIGKILL)
            self._next_step = now + self._spec["grace"]
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)

    def _stop(self, reason: str, now: float) -> None:
        if self._next_step is None:
            self._reason = reason
            self._next_step = now

    def _finish(self, ending: dict[str, Any]) -> None:
        for name, stream in self._streams.items():
            stream.close(self._work / f"{name}.log")
        totals = {name: stream.total for name, stream in self._streams.items()}
        seconds = round(time.monotonic() - self._began, 3)
        write_json(self._run / "exit.json", ending | {"reason": self._reason, "seconds": seconds, "bytes": totals})


if __name__ == "__main__":
    Supervisor(Path(sys.argv[1])).run()
