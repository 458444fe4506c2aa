"""The node's side of a driver host: calls with deadlines, cancels, restarts, the kill of what hangs.

A host that dies is started again (at once, then with exponential back-off); its devices are opened again and brought
to their safe state, and its running calls fail with `io`. A driver whose work outlives its host (`attaches`) is asked
again instead. A host that does not answer `cancel` or `safe` in time, or does not end a call that it cancelled, is
killed, and a fresh one does `open` and `safe`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.drivers.contract import (
    CANCEL_WITHIN,
    EXIT_WITHIN,
    CallParams,
    CallResult,
    CancelParams,
    CancelResult,
    CloseParams,
    Description,
    DriverError,
    Event,
    OpenParams,
    Output,
    Probe,
    ProbeParams,
    Progress,
    SafeParams,
    State,
)
from edgepanda.node.host_calls import Calls, OnProgress, Running, Silence
from edgepanda.node.host_lock import lock_path, take_lock
from edgepanda.node.host_process import HostProcess, decode_result

REQUEST_WITHIN = 10.0
"""Seconds for describe, probe, open and close."""

BACKOFF_FIRST, BACKOFF_MOST, STEADY_AFTER = 0.5, 30.0, 30.0
"""Seconds: the second restart waits the first, doubled up to the most; a host that lived the third starts anew at 0."""

log = logging.getLogger("edgepanda.node.hosts")

OnState = Callable[[str, dict[str, Any]], None]
OnEvent = Callable[[str, str, Any], None]
OnOutput = Callable[[str, int, str, str], None]


class Host:
    """One driver host and its devices.

    `driver` is the name of a built-in driver or the path of a Python file; with `argv` it is only the name, and the
    program is the host. `on_state(device, values)`, `on_event(device, name, data)` and
    `on_output(task, attempt, stream, text)` are called on the event loop and must not block.
    """

    def __init__(
        self,
        driver: str,
        argv: list[str] | None,
        run_dir: Path,
        *,
        on_state: OnState | None = None,
        on_event: OnEvent | None = None,
        on_output: OnOutput | None = None,
    ) -> None:
        self.driver = driver
        self.restarts = 0
        self.problem = ""
        self._argv = argv or [sys.executable, "-m", "edgepanda.drivers.host", driver, "--run-dir", str(run_dir)]
        self._run_dir = run_dir
        self._on_state = on_state
        self._on_event = on_event
        self._on_output = on_output
        self._process: HostProcess | None = None
        self._description: Description | None = None
        self._devices: dict[str, OpenParams] = {}
        self._calls = Calls(self._overdue)
        self._ready = asyncio.Event()
        self._hung = False
        self._silence = Silence(self._calls, self._kill)
        self._hurry = asyncio.Event()  # the next start waits for nothing: a device is to be safe
        self._watch: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._notices: dict[str, tuple[Callable[[Any], None], msgspec.json.Decoder[Any]]] = {
            "progress": (self._progress, msgspec.json.Decoder(Progress)),
            "state": (self._state, msgspec.json.Decoder(State)),
            "event": (self._event, msgspec.json.Decoder(Event)),
            "output": (self._output, msgspec.json.Decoder(Output)),
        }

    @property
    def alive(self) -> bool:
        """Whether the host runs and its devices are open."""
        return self._ready.is_set() and self._process is not None and self._process.alive

    @property
    def started(self) -> bool:
        """Whether `start` has succeeded: then it is kept alive, and `alive` tells whether it runs right now."""
        return self._watch is not None and not self._watch.done()

    @property
    def pid(self) -> int | None:
        """The host's process, if it runs."""
        return self._process.pid if self._process is not None and self._process.alive else None

    async def start(self) -> None:
        """Ends left-over hosts of this driver, starts one, and reads its description.

        Raises:
            DriverError: `busy` when another process keeps the driver; `unavailable` when the host does not start.
        """
        try:
            await self._spawn()
        except BaseException:
            await self._end_process()
            raise
        self._ready.set()
        self._watch = asyncio.create_task(self._keep_alive(), name=f"host {self.driver}")

    async def describe(self) -> Description:
        """What the driver is and can do, as it said at its start."""
        if self._description is None:
            raise DriverError("the driver host was not started", code="unavailable", where=self.driver)
        return self._description

    async def probe(self, config: dict[str, Any]) -> Probe:
        """Whether a device of this configuration can be used.

        Raises:
            DriverError: `invalid_args` for a malformed configuration; `unavailable`, `timeout`, `io`.
        """
        raw = await (await self._running_host()).request("probe", ProbeParams(config), REQUEST_WITHIN)
        probe: Probe = decode_result(raw, Probe, self.driver)
        return probe

    async def open(self, device: str, config: dict[str, Any], known: dict[str, Any] | None = None) -> None:
        """Opens a device; a restarted host opens it again.

        Raises:
            DriverError: what the driver says; `unavailable`, `timeout`, `io`.
        """
        params = OpenParams(device, config, known)
        await (await self._running_host()).request("open", params, REQUEST_WITHIN)
        self._devices[device] = params

    async def close_device(self, device: str) -> None:
        """Closes a device; a restarted host does not open it again."""
        self._devices.pop(device, None)
        await (await self._running_host()).request("close", CloseParams(device), REQUEST_WITHIN)

    async def call(
        self,
        device: str,
        action: str,
        args: dict[str, Any],
        *,
        task: str,
        attempt: int,
        work: Path | str = "",
        timeout: float,
        criteria: tuple[str, ...] = (),
        goal: str = "",
        constraints: tuple[str, ...] = (),
        on_progress: OnProgress | None = None,
    ) -> CallResult:
        """Runs an action for at most `timeout` seconds and gives its result.

        If the awaiting task is cancelled the call goes on at the driver; to stop it, `cancel`.

        Raises:
            DriverError: what the driver says; `timeout`, `cancelled`; `io` when the host died or was killed, which
                leaves unknown what was done; `unavailable` before anything was sent.
        """
        process = self._process
        if process is None or not self.alive:
            process = await self._running_host()
        params = CallParams(
            device, action, int(timeout * 1000), args, task, attempt, str(work), goal, constraints, criteria
        )
        running = Running(params, on_progress)
        self._calls.send(process, running)
        self._silence.watch(process, self._description.silence if self._description is not None else 0.0)
        raw = await running.future
        result: CallResult = decode_result(raw, CallResult, f"{device}.{action}")
        return result

    async def cancel(self, task: str, attempt: int) -> bool:
        """Asks the call of this attempt to stop, and kills the host if that is not answered in time.

        Returns when the driver has taken notice (True), or at once when no such call runs (False). The call itself
        then raises `cancelled`, or gives its result if that was faster.
        """
        found = self._calls.of(task, attempt)
        for running in found:
            await self._stop(running)
        return bool(found)

    async def safe(self, device: str | None = None) -> None:
        """Stops the calls of a device, or of all, and brings it to its safe state.

        A host that does not answer in time is killed, and a fresh one opens its devices and does it.

        Raises:
            DriverError: the driver's own error; `unavailable` when no host could do it in `REQUEST_WITHIN`.
        """
        process = self._process
        if process is None or not self.alive:
            self._hung = True
            self._hurry.set()
            await self._running_host(REQUEST_WITHIN)
            return
        try:
            await process.request("safe", SafeParams(device), 0.0 if process.suspended else CANCEL_WITHIN)
        except DriverError as error:
            if process.alive and error.code != "timeout":
                raise
            self._hurry.set()
            self._kill(process, "it did not answer `safe` in time")
            await self._running_host(REQUEST_WITHIN)

    async def close(self) -> None:
        """Ends the host: end of input (safe, then exit), then SIGTERM, then SIGKILL. May be called twice."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        for task in list(self._tasks):
            task.cancel()
        self._silence.close()
        await self._end_process()
        self._calls.fail("the driver host was closed")

    # Starting and restarting.

    async def _spawn(self) -> None:
        lock = await take_lock(lock_path(self._run_dir, self.driver))
        try:
            process = self._process = HostProcess.spawn(self.driver, self._argv, lock, self._notice)
        finally:
            lock.release()
        try:
            raw = await process.request("describe", {}, REQUEST_WITHIN)
        except DriverError as error:
            if process.alive or error.code == "unavailable":
                raise
            words = "; ".join(process.last_words) or "it said nothing"
            raise DriverError(f"the driver host ended: {words}", code="unavailable", where=self.driver) from error
        description: Description = decode_result(raw, Description, self.driver)
        self._description = description

    async def _keep_alive(self) -> None:
        delay = 0.0
        while True:
            process = self._process
            began = time.monotonic()
            if process is not None:
                await asyncio.wait([process.exited])  # a plain await would let a cancel of this task reach it
            self._ready.clear()
            delay = 0.0 if time.monotonic() - began > STEADY_AFTER else delay
            self._forget_moving()
            if self._hung or not self._attaches:
                self._calls.fail("the host died; what the call had done is not known")
            self.restarts += 1
            self.problem = f"the driver host ended; it is started again in {delay:g} s"
            log.warning("%s: %s", self.driver, self.problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._hurry.wait()
            self._hurry.clear()
            delay = min(BACKOFF_MOST, max(BACKOFF_FIRST, delay * 2))
            await self._restart()

    async def _restart(self) -> None:
        try:
            await self._spawn()
            await self._reopen()
        except Exception as error:  # whatever it is, the next try comes
            self.problem = str(error)
            log.warning("%s: the driver host does not start: %s", self.driver, error)
            if self._process is not None:
                self._process.kill()
            return
        self.problem = ""
        self._ready.set()

    async def _reopen(self) -> None:
        process = self._process
        if process is None:
            return
        for params in list(self._devices.values()):
            try:
                await process.request("open", params, REQUEST_WITHIN)
            except DriverError as error:
                if not process.alive:
                    raise
                log.warning("%s: %s cannot be opened again: %s", self.driver, params.device, error)
        if self._hung or not self._attaches:
            await process.request("safe", SafeParams(), EXIT_WITHIN)
        self._hung = False
        self._calls.send_again(process)
        self._silence.watch(process, self._description.silence if self._description is not None else 0.0)

    @property
    def _attaches(self) -> bool:
        return self._description is not None and self._description.attaches

    async def _running_host(self, within: float = 2.0) -> HostProcess:
        if self._watch is not None and not self._watch.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._ready.wait()
        process = self._process
        if process is None or not self.alive:
            raise DriverError(
                self.problem or "the driver host is not running",
                code="unavailable",
                where=self.driver,
                cure="the log of the node has what the host said last",
            )
        return process

    async def _end_process(self) -> None:
        process = self._process
        self._ready.clear()
        if process is None:
            return
        for step, seconds in ((process.end_input, EXIT_WITHIN), (process.terminate, 1.0), (process.kill, 1.0)):
            if not process.alive:
                break
            step()
            await asyncio.wait([process.exited], timeout=seconds)

    # Cancels and deadlines.

    def _overdue(self, running: Running) -> None:
        task = asyncio.create_task(self._stop(running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self, running: Running) -> None:
        process, call = self._process, running.id
        if process is None or self._calls.get(call) is None:
            return
        try:
            raw = await process.request("cancel", CancelParams(call), CANCEL_WITHIN)
            within = decode_result(raw, CancelResult, self.driver).within_ms / 1000
        except DriverError:
            if self._calls.get(call) is not None:
                self._kill(process, "it did not answer `cancel` in time")
            return
        self._calls.end_within(running, within, lambda: self._kill(process, "a cancelled call did not end in time"))

    def _kill(self, process: HostProcess, reason: str) -> None:
        if process is not self._process or not process.alive:
            return
        log.error("%s: the host is killed: %s", self.driver, reason)
        self._hung = True
        self._ready.clear()
        self._calls.fail(f"the host was killed: {reason}; what the call had done is not known")
        process.kill()

    # What hosts tell.

    def _forget_moving(self) -> None:
        for running in self._calls.all():
            params = self._devices.get(running.params.device)
            if params is not None:
                self._devices[params.device] = msgspec.structs.replace(params, known=None)

    def _notice(self, method: str, raw: msgspec.Raw) -> None:
        entry = self._notices.get(method)
        if entry is not None:
            entry[0](entry[1].decode(raw))

    def _progress(self, told: Progress) -> None:
        running = self._calls.get(told.call)
        if running is not None and running.on_progress is not None:
            running.on_progress(told.fraction, told.text)

    def _output(self, told: Output) -> None:
        running = self._calls.get(told.call)
        if running is not None and self._on_output is not None:
            self._on_output(running.params.task, running.params.attempt, told.stream, told.text)

    def _state(self, told: State) -> None:
        params = self._devices.get(told.device)
        if params is not None and self._description is not None and self._description.remembers:
            self._devices[told.device] = msgspec.structs.replace(params, known=(params.known or {}) | told.values)
        if self._on_state is not None:
            self._on_state(told.device, told.values)

    def _event(self, told: Event) -> None:
        if self._on_event is not None:
            self._on_event(told.device, told.name, told.data)
