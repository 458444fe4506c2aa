"""Processes that run together: started in order, restarted with back-off, ended in the opposite order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

from edgepanda import sdnotify
from edgepanda.cli.process import SUPERVISOR
from edgepanda.errors import EdgePandaError

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a restart
STEADY_AFTER = 60.0  # seconds of life after which the pause begins anew
LAST_WORDS = 1.0  # seconds for lines that are still in the pipe; a process of its own may hold that open longer
LONGEST_LINE = 64 * 1024
_ERROR_LINE = re.compile(r"error: .* \[[a-z_]+\]")


class Listener(Protocol):
    """Who hears what happens to the processes."""

    def line(self, name: str, text: str) -> None:
        """A process has printed a line."""

    def happened(self, name: str, what: str, detail: str = "") -> None:
        """`started`, `ready`, `ended`, `restarting`."""


class Child:
    """One process: `python -m edgepanda WORDS`. It says over systemd's protocol when it is ready."""

    def __init__(self, name: str, words: Sequence[str], listener: Listener, *, end_within: float = 10.0) -> None:
        """`end_within`: seconds that it gets after SIGTERM."""
        self.name, self._words, self._listener, self._end_within = name, tuple(words), listener, end_within
        self.ready = asyncio.Event()
        self.told: dict[str, str] = {}  # what it said beside READY=1
        self._last_words: list[str] = []  # errors, held back: `start` raises what it ended with
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ending = False
        self._address = f"@edgepanda-{os.getpid()}-{name}-{secrets.token_hex(8)}"

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> None:
        """Start it; returns when it is ready. Raises `EdgePandaError` (`process_ended`) when it ends before that."""
        self._keeper = asyncio.create_task(self._keep())
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait({self._keeper, ready}, return_when=asyncio.FIRST_COMPLETED)
            if not self.ready.is_set():
                await self._keeper
        finally:
            ready.cancel()

    def hangup(self) -> None:
        """Let it read its configuration again."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGHUP)

    async def stop(self) -> None:
        """End it: SIGTERM, and SIGKILL after its time. May be called twice, and before `start`."""
        self._ending = True
        if self._process is None or self._process.returncode is not None:
            if self._keeper is not None:
                self._keeper.cancel()
        else:
            await self._end(self._process)
        if self._keeper is not None:
            await asyncio.gather(self._keeper, return_exceptions=True)

    async def wait(self) -> None:
        """Returns when it has ended for good. Raises what ended it."""
        if self._keeper is not None:
            await asyncio.wait([self._keeper])  # whoever waits here may be cancelled; that must not kill the process
            await self._keeper

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        with self._notifications() as sock:
            while True:
                began = loop.time()
                code = await self._run_once()
                if self._ending:
                    return
                if not self.ready.is_set():
                    self._notified(sock)
                    raise self._failure(code)
                if loop.time() - began >= STEADY_AFTER:
                    pause = FIRST_PAUSE
                self._listener.happened(self.name, "restarting", f"it ended with {_ended(code)}; again in {pause:g} s")
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _run_once(self) -> int:
        environment = {k: v for k, v in os.environ.items() if k not in ("WATCHDOG_USEC", "WATCHDOG_PID")}
        environment |= {"NOTIFY_SOCKET": self._address, SUPERVISOR: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "edgepanda", *self._words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a Ctrl-C is ours to hand on, in order
            limit=LONGEST_LINE,
        )
        self._listener.happened(self.name, "started", f"process {process.pid}")
        assert process.stdout is not None  # noqa: S101 it is a pipe
        forward = asyncio.create_task(self._forward(process.stdout))
        try:
            code = await process.wait()
            await asyncio.wait([forward], timeout=LAST_WORDS)
            return code
        finally:
            forward.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._listener.happened(self.name, "ended", _ended(process.returncode or 0))

    async def _forward(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                continue  # longer than we take: dropped
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if not self.ready.is_set() and _ERROR_LINE.fullmatch(text):
                self._last_words.append(text)
            else:
                self._say_last_words()
                self._listener.line(self.name, text)

    def _say_last_words(self) -> None:
        for text in self._last_words:
            self._listener.line(self.name, text)
        self._last_words.clear()

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._end_within):
                await process.wait()
        except TimeoutError:
            self._listener.happened(self.name, "killed", f"it did not end within {self._end_within:g} s")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @contextlib.contextmanager
    def _notifications(self) -> Iterator[socket.socket]:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.bind("\0" + self._address[1:])
            loop.add_reader(sock.fileno(), self._notified, sock)
            try:
                yield sock
            finally:
                loop.remove_reader(sock.fileno())

    def _notified(self, sock: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                lines = sock.recv(LONGEST_LINE).decode(errors="replace").splitlines()
                self.told |= dict(line.split("=", 1) for line in lines if "=" in line)
                if "READY=1" in lines and not self.ready.is_set():  # it also ends a reload
                    self._listener.happened(self.name, "ready")
                    self.ready.set()

    def _failure(self, code: int) -> EdgePandaError:
        """The error that it told of itself, which it has printed too; else how it ended."""
        told = self.told.get(sdnotify.ERROR.removesuffix("="))
        if told is None:
            self._say_last_words()
            return EdgePandaError(
                f"the {self.name} could not start: {_ended(code)}",
                code="process_ended",
                where=self.name,
                cure=f"what it printed says why; `edgepanda {self.name} -v` starts it alone",
            )
        error = EdgePandaError.from_dict(json.loads(told))
        error.message = f"the {self.name} could not start: {error.message}"
        return error


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


async def stop_all(children: Sequence[Child]) -> None:
    """End them one after the other, the last one first."""
    for child in reversed(children):
        await child.stop()
