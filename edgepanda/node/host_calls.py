"""The calls of a driver host that are not answered yet: sent, timed, settled once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from edgepanda.drivers.contract import CallParams, DriverError
from edgepanda.node.host_process import HostProcess

DEADLINE_SLACK = 0.25
"""Seconds past its deadline after which a call that its host did not end is cancelled from the node."""

OnProgress = Callable[[float | None, str], None]


class Running:
    """A call that has not been answered; `future` gives its undecoded result."""

    __slots__ = ("ends", "future", "id", "on_progress", "params", "timer")

    def __init__(self, params: CallParams, on_progress: OnProgress | None) -> None:
        loop = asyncio.get_running_loop()
        self.params = params
        self.on_progress = on_progress
        self.ends = loop.time() + params.deadline_ms / 1000
        self.future: asyncio.Future[msgspec.Raw] = loop.create_future()
        self.id = 0
        self.timer: asyncio.TimerHandle | None = None


class Calls:
    """All running calls of one host; `on_overdue` is told of those that the host did not end at their deadline."""

    def __init__(self, on_overdue: Callable[[Running], None]) -> None:
        self._running: dict[int, Running] = {}
        self._on_overdue = on_overdue

    def get(self, call: int) -> Running | None:
        """The running call with this id."""
        return self._running.get(call)

    def all(self) -> list[Running]:
        """The running calls."""
        return list(self._running.values())

    def of(self, task: str, attempt: int) -> list[Running]:
        """The running calls of one attempt."""
        return [r for r in self._running.values() if (r.params.task, r.params.attempt) == (task, attempt)]

    def send(self, process: HostProcess, running: Running) -> None:
        """Sends a call, or sends it again to a fresh host with the time that it has left.

        Raises:
            DriverError: nothing was sent; `unavailable`, `busy` or `invalid_args`.
        """
        loop = asyncio.get_running_loop()
        left = max(0.0, running.ends - loop.time())
        params = running.params
        if running.id:
            params = msgspec.structs.replace(params, deadline_ms=int(left * 1000))
        call, answer = process.send("call", params)
        running.id = call
        self._running[call] = running
        running.timer = loop.call_later(left + DEADLINE_SLACK, self._on_overdue, running)
        answer.add_done_callback(lambda done: self._answered(process, call, done))

    def send_again(self, process: HostProcess) -> None:
        """Sends all running calls to a fresh host; those that cannot be sent fail."""
        resumed = self.all()
        self._running.clear()
        for running in resumed:
            _stop_timer(running)
            try:
                self.send(process, running)
            except DriverError as error:
                self.settle(running, error, None)

    def settle(self, running: Running, error: BaseException | None, raw: msgspec.Raw | None) -> None:
        """Ends a call with its result or its error."""
        self._running.pop(running.id, None)
        _stop_timer(running)
        if running.future.done():
            return
        if error is not None:
            running.future.set_exception(error)
            running.future.exception()  # nobody may be waiting any more
        elif raw is not None:
            running.future.set_result(raw)

    def fail(self, text: str) -> None:
        """Ends all calls with `io`; `details.unknown` says that nobody knows what they had done."""
        for running in self.all():
            where = f"{running.params.device}.{running.params.action}"
            self.settle(running, DriverError(text, where=where, details={"unknown": True}), None)

    def end_within(self, running: Running, seconds: float, otherwise: Callable[[], None]) -> None:
        """Replaces a call's timer: after `seconds`, if it still runs, `otherwise` is called."""
        if running.id in self._running:
            _stop_timer(running)
            running.timer = asyncio.get_running_loop().call_later(seconds + DEADLINE_SLACK, otherwise)

    def _answered(self, process: HostProcess, call: int, answer: asyncio.Future[msgspec.Raw]) -> None:
        running = self._running.get(call)
        if running is None or answer.cancelled():
            return
        error = answer.exception()
        if error is not None and not process.alive:
            return  # the host died: who watches it fails the call or sends it again
        self.settle(running, error, None if error else answer.result())


class Silence:
    """While calls run, and only then, a host must tell something every so often, if its driver says so."""

    def __init__(self, calls: Calls, kill: Callable[[HostProcess, str], None]) -> None:
        """`kill` is told of a host that was silent for too long, and why; it knows which host runs now."""
        self._calls, self._kill = calls, kill
        self._timer: asyncio.TimerHandle | None = None
        self._process: HostProcess | None = None  # that the timer is for

    def watch(self, process: HostProcess, limit: float) -> None:
        """A call was sent; `limit` in seconds, 0 for none."""
        if self._process is not process:  # a fresh one
            self.close()
            self._process = process
        if limit and self._timer is None and self._calls.all():
            process.heard = asyncio.get_running_loop().time()  # what it owes begins now
            self._set(process, limit)

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, process: HostProcess, limit: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(process.heard + limit, self._look, process, limit)

    def _look(self, process: HostProcess, limit: float) -> None:
        self._timer = None
        if not self._calls.all():
            return
        if asyncio.get_running_loop().time() < process.heard + limit:
            self._set(process, limit)
        else:
            self._kill(process, f"it told nothing for {limit:g} s while a call ran")


def _stop_timer(running: Running) -> None:
    if running.timer is not None:
        running.timer.cancel()
