"""One process of a driver host: starts it, writes requests, matches answers, bounds what it may send."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.drivers.contract import MAX_LINE, DriverError, error_from_data
from edgepanda.drivers.rpc import MISSING, Call, Incoming, LineBuffer, RpcError
from edgepanda.node.host_lock import HostLock

WINDOW = 0.1
"""Seconds over which lines that answer nothing are counted."""

LINES_A_WINDOW = 500
"""Such lines in one window; a host that sends more is not read until the window is over."""

MAX_UNSENT = 4 * MAX_LINE
"""Bytes that may wait for a host that does not read."""

LOG_LINES_A_WINDOW = 20

log = logging.getLogger("edgepanda.node.hosts")

_decode = msgspec.json.Decoder(Incoming).decode
_encode = msgspec.json.Encoder().encode


class HostProcess:
    """The connection to one running host. Everything happens on the event loop; nothing here blocks.

    Plain descriptors on the loop: asyncio's subprocess transport costs a thread for each child, and hangs when it is
    cancelled while it starts one.
    """

    def __init__(
        self, name: str, child: subprocess.Popen[bytes], on_notice: Callable[[str, msgspec.Raw], None]
    ) -> None:
        self.pid = child.pid
        self.garbage = 0
        self.heard = asyncio.get_running_loop().time()  # when it last told anything, by the loop's clock
        self.last_words: deque[str] = deque(maxlen=5)
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self._name = name
        self._child = child
        self._on_notice = on_notice
        self._lines = LineBuffer()
        self._log_lines = LineBuffer(4096)
        self._waiting: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._next_id = 0
        self._window_end = 0.0
        self._unasked = 0
        self._logged = 0
        self._pipes = [pipe for pipe in (child.stdin, child.stdout, child.stderr) if pipe is not None]
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in self._pipes)
        self._unsent = bytearray()
        self._input_ended = False
        self._pidfd = os.pidfd_open(child.pid)
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)
        self._loop.add_reader(self._stdout, self._readable)
        self._loop.add_reader(self._stderr, self._log_readable)
        self._loop.add_reader(self._pidfd, self._process_exited)

    @classmethod
    def spawn(
        cls, name: str, argv: list[str], lock: HostLock, on_notice: Callable[[str, msgspec.Raw], None]
    ) -> HostProcess:
        """Starts the program in a session of its own; it inherits the lock.

        Raises:
            DriverError: `unavailable` when the program cannot be started.
        """
        pipe = subprocess.PIPE
        try:
            child = subprocess.Popen(
                argv,
                bufsize=0,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                pass_fds=(lock.descriptor,),
                start_new_session=True,
            )
        except OSError as error:
            raise DriverError(
                f"the driver host cannot be started: {error.strerror}",
                code="unavailable",
                where=argv[0],
                cure="check `command` in the configuration of the driver",
            ) from error
        lock.record(child.pid)
        return cls(name, child, on_notice)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self.exited.done()

    @property
    def suspended(self) -> bool:
        """Whether somebody has stopped the process (SIGSTOP, a debugger), so that it answers nothing."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b") ")[2][:1] in (b"T", b"t")

    def send(self, method: str, params: object) -> tuple[int, asyncio.Future[msgspec.Raw]]:
        """Writes a request; the future gives its undecoded result or raises its `DriverError`.

        Raises:
            DriverError: `unavailable` when the host is gone; `busy` when it does not read; nothing was sent.
        """
        if self.exited.done() or self._input_ended:
            raise DriverError("the driver host is not running", code="unavailable", where=self._name)
        if len(self._unsent) > MAX_UNSENT:
            raise DriverError("the driver host does not read its requests", code="busy", where=self._name)
        line = _encode(Call(self._next_id + 1, method, params)) + b"\n"
        if len(line) > MAX_LINE:
            raise DriverError(f"a request has at most {MAX_LINE} bytes", code="invalid_args", where=self._name)
        self._next_id += 1
        future: asyncio.Future[msgspec.Raw] = self._loop.create_future()
        self._waiting[self._next_id] = future
        self._write(line)
        return self._next_id, future

    async def request(self, method: str, params: object, timeout: float) -> msgspec.Raw:
        """Writes a request and waits for its answer for `timeout` seconds.

        Raises:
            DriverError: the host's own, or `timeout`.
        """
        call, future = self.send(method, params)
        try:
            async with asyncio.timeout(timeout):  # `wait_for` loses a cancel that meets the answer
                return await future
        except TimeoutError as error:
            raise DriverError(f"no answer to {method} in {timeout:g} s", code="timeout", where=self._name) from error
        finally:
            self._waiting.pop(call, None)

    def end_input(self) -> None:
        """Closes the host's standard input, which means: safe, then exit."""
        if not self._input_ended:
            self._input_ended = True
            self._loop.remove_writer(self._stdin)
            self._pipes[0].close()

    def terminate(self) -> None:
        """Sends SIGTERM, which means the same."""
        if self.alive:
            self._child.terminate()

    def kill(self) -> None:
        """Kills the host with its process group."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def _write(self, line: bytes) -> None:
        if not self._unsent:
            try:
                line = line[os.write(self._stdin, line) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                return  # the host is ending; its exit settles what waits
            if not line:
                return
            self._loop.add_writer(self._stdin, self._writable)
        self._unsent += line

    def _writable(self) -> None:
        try:
            del self._unsent[: os.write(self._stdin, self._unsent)]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent.clear()
        if not self._unsent:
            self._loop.remove_writer(self._stdin)

    def _readable(self) -> None:
        data = _read(self._stdout)
        if data == b"":
            self._loop.remove_reader(self._stdout)
        elif data:
            self._received(data)

    def _received(self, data: bytes) -> None:
        self.heard = self._loop.time()
        before = self._lines.overlong
        for line in self._lines.feed(data):
            self._line(line)
        if self._lines.overlong > before:
            self._bad(f"a line of more than {MAX_LINE} bytes")
        if self._unasked > LINES_A_WINDOW:
            self._hold()

    def _log_readable(self) -> None:
        data = _read(self._stderr)
        if data == b"":
            self._loop.remove_reader(self._stderr)
        for line in self._log_lines.feed(data or b""):
            self._log(line)

    def _process_exited(self) -> None:
        while data := _read(self._stdout):
            self._received(data)
            if self.garbage + self._unasked > LINES_A_WINDOW:
                break
        self._log_readable()
        for descriptor in (self._stdout, self._stderr, self._pidfd):
            self._loop.remove_reader(descriptor)
        self.end_input()
        self._child.wait()  # it has exited: this only collects its status
        os.close(self._pidfd)
        for pipe in self._pipes:
            pipe.close()
        self.exited.set_result(None)
        error = DriverError("the host died", where=self._name)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # a request that nobody awaits any more is no unhandled error
        self._waiting.clear()

    def _line(self, line: bytes) -> None:
        try:
            message = _decode(line)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            return self._bad(str(error))
        if message.id is not None:
            future = self._waiting.pop(message.id, None)
            if future is not None:
                if not future.done():
                    self._settle(future, message)
                return
        self._count()
        if message.method:
            self._notice(message)
        elif message.error is not None:
            log.warning("%s: the host refused a line: %s", self._name, message.error.message)

    def _settle(self, future: asyncio.Future[msgspec.Raw], message: Incoming) -> None:
        if message.error is not None:
            future.set_exception(_as_error(message.error))
        elif message.result is not MISSING:
            future.set_result(message.result)
        else:
            future.set_exception(DriverError("an answer with neither result nor error", where=self._name))

    def _notice(self, message: Incoming) -> None:
        try:
            self._on_notice(message.method, message.params)
        except (msgspec.MsgspecError, RecursionError) as error:
            self._bad(f"{message.method}: {error}")
        except Exception:
            log.exception("%s: the receiver of %s failed", self._name, message.method)

    def _bad(self, reason: str) -> None:
        self._count()
        self.garbage += 1
        if self.garbage == 1:
            log.warning("%s: the host sent a bad line: %s (later ones are only counted)", self._name, reason)

    def _count(self) -> None:
        self._turn_window()
        self._unasked += 1

    def _turn_window(self) -> None:
        now = time.monotonic()
        if now >= self._window_end:
            self._window_end, self._unasked, self._logged = now + WINDOW, 0, 0

    def _hold(self) -> None:
        pause = self._window_end - time.monotonic()
        self._unasked = 0
        if pause > 0 and self.alive:
            self._loop.remove_reader(self._stdout)
            self._loop.call_later(pause, self._resume)

    def _resume(self) -> None:
        if self.alive:
            self._loop.add_reader(self._stdout, self._readable)

    def _log(self, line: bytes) -> None:
        text = line.decode(errors="replace")[:500]
        self.last_words.append(text)
        self._turn_window()
        self._logged += 1
        if self._logged <= LOG_LINES_A_WINDOW:
            log.info("%s: %s", self._name, text)


def _read(descriptor: int) -> bytes | None:
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _as_error(error: RpcError) -> DriverError:
    return error_from_data(error.message, error.data)


def decode_result(raw: msgspec.Raw, kind: type[Any], where: str) -> Any:
    """The typed result of a request.

    Raises:
        DriverError: `io` when the host's answer breaks the contract.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        text = f"the host's answer breaks the contract: {error}"
        raise DriverError(text, where=where, details={"unreadable": True}) from error
