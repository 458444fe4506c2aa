"""One device of a host: its thread, and the work that runs on it one after another."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import msgspec

from edgepanda.drivers.base import Driver
from edgepanda.drivers.context import Context, StopReason
from edgepanda.drivers.contract import CallParams, CallResult, DriverError, OpenParams
from edgepanda.drivers.rpc import Notice, Result, failure

MAX_WAITING = 64
"""Calls that may wait for one device."""

log = logging.getLogger("edgepanda.drivers")
Send = Callable[[msgspec.Struct], None]
Task = Callable[[], None]


class Worker:
    """The thread of one device."""

    def __init__(self, device: str, driver: type[Driver], run_dir: Path, send: Send) -> None:
        self.calls: dict[int, Context] = {}
        self._name = device
        self._type = driver
        self._run_dir = run_dir
        self._send = send
        self._device: Driver | None = None
        self._settling = False
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=device, daemon=True)
        self.thread.start()

    def open(self, request: int, params: OpenParams) -> None:
        """Opens the device with this configuration; one that is open is closed first."""
        self._tasks.put(lambda: self._answer(request, lambda: self._open(params)))

    def close(self, request: int) -> None:
        """Closes the device and ends the thread."""
        self.stop_calls("safe")
        self._tasks.put(lambda: self._answer(request, self._close))
        self._tasks.put(None)

    def call(self, request: int, params: CallParams) -> None:
        """Runs an action when the device's earlier work is done.

        Raises:
            DriverError: `busy` when too many calls wait.
        """
        if len(self.calls) >= MAX_WAITING:
            raise DriverError(f"{MAX_WAITING} calls wait for this device", code="busy", where=params.device)
        context = Context(request, params, (self._device or self._type).ends_within, self._send)
        self.calls[request] = context
        self._tasks.put(lambda: self._call(request, context, params))

    def cancel(self, call: int, request: int) -> bool:
        """Asks a call to stop; False if it is not here."""
        context = self.calls.get(call)
        if context is None:
            return False
        if context.stop("cancel", request):
            self.calls.pop(call, None)
        return True

    def safe(self, done: Callable[[DriverError | None], None]) -> None:
        """Stops all calls and brings the device to its safe state; `done` is called once, with the error if any."""
        self.stop_calls("safe")
        if self._settling:
            done(None)
        else:
            self._tasks.put(lambda: self._safe(done))

    def exit(self) -> None:
        """Stops all calls, does what the driver wants done before an exit, and ends the thread."""
        self.stop_calls("exit")
        self._tasks.put(self._exit)
        self._tasks.put(None)

    def stop_calls(self, reason: StopReason) -> None:
        """Asks all calls of the device to stop; those that have not begun never will."""
        for call, context in list(self.calls.items()):
            if context.stop(reason):
                self.calls.pop(call, None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def _answer(self, request: int, work: Callable[[], object]) -> None:
        try:
            self._send(Result(request, work()))
        except Exception as error:
            self._send(failure(request, as_driver_error(error, self._name)))

    def _open(self, params: OpenParams) -> None:
        self._close()
        config = self._type.read_config(params.config)
        device = self._type(self._name, config, self._run_dir, self._notify)
        device.open(params.known)
        self._device = device

    def _close(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            device.close()

    def _call(self, request: int, context: Context, params: CallParams) -> None:
        if not context.begin():
            return
        answer: msgspec.Struct
        try:
            answer = Result(request, self._act(context, params))
        except Exception as error:
            answer = failure(request, as_driver_error(error, f"{self._name}.{params.action}"))
        self.calls.pop(request, None)
        context.finish(answer)

    def _act(self, context: Context, params: CallParams) -> CallResult:
        device = self._device
        if device is None:
            raise DriverError("the device is not open", code="unavailable", where=self._name)
        bound = device._bound.get(params.action)
        if bound is None:
            names = ", ".join(sorted(device._bound))
            raise DriverError(f"there is no action {params.action}; there are: {names}", code="invalid_args")
        args = bound.check(params.args)
        context.check()
        result = bound.method(device, context, **args)
        return result if isinstance(result, CallResult) else CallResult("succeeded", value=result)

    def _safe(self, done: Callable[[DriverError | None], None]) -> None:
        device = self._device
        if device is None:
            return done(None)

        def under_way() -> None:
            self._settling = True
            done(None)

        device._under_way = under_way
        error = None
        try:
            device.safe()
        except Exception as problem:
            error = as_driver_error(problem, self._name)
        device._under_way = None
        if not self._settling:
            done(error)
        self._settling = False

    def _exit(self) -> None:
        try:
            if self._device is not None:
                self._device.exit()
            self._close()
        except Exception as error:
            as_driver_error(error, self._name)

    def _notify(self, method: str, params: object) -> None:
        self._send(Notice(method, params))


def as_driver_error(error: Exception, where: str) -> DriverError:
    """The error as the contract knows it, with a place if the driver named none.

    What a driver did not foresee is logged with its traceback, and is `io`.
    """
    if isinstance(error, DriverError):
        error.where = error.where or where
        return error
    log.error("%s: unforeseen %s", where, type(error).__name__, exc_info=error)
    return DriverError(
        f"{type(error).__name__}: {error}", code="io", where=where, cure="the host's log has the details"
    )
