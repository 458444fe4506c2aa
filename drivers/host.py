"""The driver host: a process that runs one driver. `python -m edgepanda.drivers.host servo [--run-dir DIR]`.

The main thread reads lines and never waits for a device; each device has a thread of its own. What a driver prints
goes to standard error: the protocol has a descriptor to itself.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.drivers.base import Driver
from edgepanda.drivers.contract import (
    EXIT_WITHIN,
    INTERNAL,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_LINE,
    PARSE_ERROR,
    UNKNOWN_METHOD,
    CallParams,
    CancelParams,
    CancelResult,
    CloseParams,
    DriverError,
    OpenParams,
    ProbeParams,
    SafeParams,
)
from edgepanda.drivers.loading import load
from edgepanda.drivers.rpc import Failure, LineBuffer, Request, Result, RpcError, failure
from edgepanda.drivers.worker import Worker, as_driver_error

MAX_DEVICES = 256

log = logging.getLogger("edgepanda.drivers")


class Writer:
    """Writes whole lines to the protocol's descriptor, from any thread; a reader that is gone ends nothing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode

    def send(self, message: msgspec.Struct) -> None:
        """Writes one message; an answer that cannot be written as one line becomes an error."""
        line = self._line(message)
        if line:
            with self._lock, contextlib.suppress(BrokenPipeError):
                while line:
                    line = line[os.write(self._descriptor, line) :]

    def _line(self, message: msgspec.Struct) -> bytes:
        try:
            line = self._encode(message) + b"\n"
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            problem = f"the value is no JSON: {error}"
        else:
            if len(line) <= MAX_LINE:
                return line
            problem = f"the value is longer than {MAX_LINE} bytes as a line; write it to a file in the work directory"
        if isinstance(message, Result):
            return self._encode(failure(message.id, DriverError(problem, where="result"))) + b"\n"
        log.error("a notification was dropped: %s", problem)
        return b""


class Host:
    """Reads requests and hands them to the devices' threads."""

    def __init__(self, driver: type[Driver] | DriverError, run_dir: Path, writer: Writer) -> None:
        self._driver = driver
        self._run_dir = run_dir
        self._send = writer.send
        self._workers: dict[str, Worker] = {}
        self._read = msgspec.json.Decoder(Request).decode
        self._buffer = LineBuffer()
        self._overlong = 0
        self._bad_lines = 0
        self._methods: dict[str, tuple[Callable[[int, Any], None], msgspec.json.Decoder[Any]]] = {
            "describe": (self._describe, msgspec.json.Decoder(dict[str, Any])),
            "probe": (self._probe, msgspec.json.Decoder(ProbeParams)),
            "open": (self._open, msgspec.json.Decoder(OpenParams)),
            "close": (self._close, msgspec.json.Decoder(CloseParams)),
            "call": (self._call, msgspec.json.Decoder(CallParams)),
            "cancel": (self._cancel, msgspec.json.Decoder(CancelParams)),
            "safe": (self._safe, msgspec.json.Decoder(SafeParams)),
        }

    def feed(self, data: bytes) -> None:
        """Takes bytes as they arrive. Whatever they hold is answered or counted; nothing is raised."""
        for line in self._buffer.feed(data):
            self._line(line)
        if self._buffer.overlong > self._overlong:
            self._overlong = self._buffer.overlong
            self._refuse(None, INVALID_REQUEST, f"a line has at most {MAX_LINE} bytes")

    def _line(self, line: bytes) -> None:
        try:
            request = self._read(line)
        except msgspec.ValidationError as error:
            return self._refuse(None, INVALID_REQUEST, str(error))
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            return self._refuse(None, PARSE_ERROR, str(error))
        if request.id is None:
            return self._refuse(None, INVALID_REQUEST, f"{request.method} needs an id")
        entry = self._methods.get(request.method)
        if entry is None:
            return self._refuse(request.id, UNKNOWN_METHOD, f"there is no method {request.method[:64]}")
        self._do(request.id, request.params, *entry)

    def _do(
        self, request: int, raw: msgspec.Raw, method: Callable[[int, Any], None], decoder: msgspec.json.Decoder[Any]
    ) -> None:
        try:
            params = decoder.decode(raw)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            return self._refuse(request, INVALID_PARAMS, str(error))
        try:
            method(request, params)
        except DriverError as error:
            self._send(failure(request, error))
        except Exception as error:
            log.exception("unforeseen error in a request")
            self._refuse(request, INTERNAL, f"{type(error).__name__}: {error}")

    def _refuse(self, request: int | None, code: int, text: str) -> None:
        self._bad_lines += 1
        if self._bad_lines == 1:
            log.warning("a line was refused: %s (later ones are answered but not logged)", text)
        self._send(Failure(request, RpcError(code, text)))

    def _type(self) -> type[Driver]:
        if isinstance(self._driver, DriverError):
            raise self._driver
        return self._driver

    def _describe(self, request: int, _: Any) -> None:
        self._send(Result(request, self._type().describe()))

    def _probe(self, request: int, params: ProbeParams) -> None:
        driver = self._type()

        def work() -> None:
            try:
                self._send(Result(request, driver.probe(driver.read_config(params.config))))
            except Exception as error:
                self._send(failure(request, as_driver_error(error, "probe")))

        threading.Thread(target=work, name="probe", daemon=True).start()

    def _open(self, request: int, params: OpenParams) -> None:
        driver = self._type()
        worker = self._workers.get(params.device)
        if worker is None:
            if len(self._workers) >= MAX_DEVICES:
                raise DriverError(f"a host has at most {MAX_DEVICES} devices", code="limit", where=params.device)
            worker = self._workers[params.device] = Worker(params.device, driver, self._run_dir, self._send)
        worker.open(request, params)

    def _close(self, request: int, params: CloseParams) -> None:
        worker = self._workers.pop(params.device, None)
        if worker is None:
            self._send(Result(request, None))
        else:
            worker.close(request)

    def _worker(self, device: str) -> Worker:
        worker = self._workers.get(device)
        if worker is None:
            raise DriverError("the device is not open", code="unavailable", where=device)
        return worker

    def _call(self, request: int, params: CallParams) -> None:
        if any(request in worker.calls for worker in self._workers.values()):
            raise DriverError(f"a call with the id {request} runs", code="invalid_args", where="id")
        self._worker(params.device).call(request, params)

    def _cancel(self, request: int, params: CancelParams) -> None:
        if not any(worker.cancel(params.call, request) for worker in self._workers.values()):
            self._send(Result(request, CancelResult(known=False, within_ms=0)))

    def _safe(self, request: int, params: SafeParams) -> None:
        workers = list(self._workers.values()) if params.device is None else [self._worker(params.device)]
        gather = Gather(
            len(workers), lambda error: self._send(failure(request, error) if error else Result(request, None))
        )
        for worker in workers:
            worker.safe(gather.one)

    def exit(self) -> bool:
        """Brings every device to its safe state; False if one did not get there in time."""
        for worker in self._workers.values():
            worker.exit()
        end = time.monotonic() + EXIT_WITHIN - 0.5
        for worker in self._workers.values():
            worker.thread.join(max(0.0, end - time.monotonic()))
        return not any(worker.thread.is_alive() for worker in self._workers.values())


class Gather:
    """Calls `done` once, after `count` answers, with the first error among them."""

    def __init__(self, count: int, done: Callable[[DriverError | None], None]) -> None:
        self._left = count
        self._done = done
        self._error: DriverError | None = None
        self._lock = threading.Lock()
        if count == 0:
            done(None)

    def one(self, error: DriverError | None) -> None:
        """Takes one answer."""
        with self._lock:
            self._left -= 1
            self._error = self._error or error
            last = self._left == 0
        if last:
            self._done(self._error)


def serve(host: Host, source: int) -> None:
    """Feeds the host until end of input, SIGTERM or SIGINT."""
    wake, woken = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.write(woken, b"x") and None)
    poll = select.poll()
    poll.register(source, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = poll.poll()
        if any(descriptor == wake for descriptor, _ in ready):
            return
        data = os.read(source, 1 << 16)
        if not data:
            return
        host.feed(data)


def take_standard_streams() -> tuple[int, int]:
    """Moves the protocol away from descriptors 0 and 1: a driver's `input()` sees nothing, its `print()` is a log."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, sink


def main() -> None:
    """Runs the host; exits with 0, or with 1 if a device did not reach its safe state in time."""
    parser = argparse.ArgumentParser(prog="python -m edgepanda.drivers.host", description=__doc__)
    parser.add_argument("driver", help="the name of a built-in driver, or the path of a .py file")
    parser.add_argument("--run-dir", type=Path, default=Path("/run/edgepanda"), help="for records of running work")
    options = parser.parse_args()
    source, sink = take_standard_streams()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    driver: type[Driver] | DriverError
    try:
        driver = load(options.driver)
    except DriverError as error:
        log.error("%s", error)
        driver = error
    host = Host(driver, options.run_dir, Writer(sink))
    serve(host, source)
    if not host.exit():
        log.error("a device did not reach its safe state in time")
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
