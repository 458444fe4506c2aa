"""What a running call may ask and tell: its task, its deadline, whether it should stop, progress and output."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from edgepanda.drivers.contract import CallParams, CancelResult, DriverError, Output, Progress, Stream
from edgepanda.drivers.rpc import Notice, Result, failure

StopReason = Literal["cancel", "safe", "exit", "deadline"]

_TEXT = {
    "cancel": "the call was cancelled",
    "safe": "the call was stopped: the device goes to its safe state",
    "exit": "the call was stopped: the driver host is ending",
    "deadline": "the call reached its deadline",
}


class Context:
    """The context of one call, handed to the action's method. All of it may be used from any thread."""

    def __init__(
        self, call: int, params: CallParams, ends_within: float, send: Callable[[msgspec.Struct], None]
    ) -> None:
        self.task = params.task
        self.attempt = params.attempt
        self.work = Path(params.work)
        self.goal = params.goal
        self.constraints = params.constraints
        self.criteria = params.criteria
        self._call = call
        self._place = f"{params.device}.{params.action}"
        self._ends_within = ends_within
        self._send = send
        self._deadline = time.monotonic() + params.deadline_ms / 1000
        self._stopped = threading.Event()
        self._reason: StopReason | None = None
        self._lock = threading.Lock()
        self._phase: Literal["queued", "running", "noticed", "done"] = "queued"
        self._cancels: list[int] = []

    @property
    def remaining(self) -> float:
        """Seconds to the deadline, never below 0."""
        return max(0.0, self._deadline - time.monotonic())

    def stop_reason(self) -> StopReason | None:
        """Why the call should stop, or None; asking counts as taking notice of a cancel."""
        if self._stopped.is_set():
            self._notice()
            return self._reason
        return None if self._deadline > time.monotonic() else "deadline"

    def check(self) -> None:
        """Returns if the call may go on.

        Raises:
            DriverError: `cancelled`, or `timeout` past the deadline.
        """
        reason = self.stop_reason()
        if reason is not None:
            raise stop_error(reason, self._place)

    def wait(self, seconds: float) -> None:
        """Waits; use it in place of `time.sleep`, so that the call can be cancelled within the 200 ms of the contract.

        Raises:
            DriverError: `cancelled`, or `timeout` when the deadline comes first.
        """
        self._stopped.wait(min(seconds, self.remaining))
        self.check()

    def progress(self, fraction: float | None, text: str = "") -> None:
        """Tells how far the call is: 0 to 1, or None when that is not known."""
        self._send(Notice("progress", Progress(self._call, fraction, text)))

    def output(self, text: str, stream: Stream = "stdout") -> None:
        """Passes on text that the call's program wrote."""
        self._send(Notice("output", Output(self._call, text, stream)))

    # The host's side of the context.

    def begin(self) -> bool:
        """False if the call was stopped before it began, and so has its answer already."""
        with self._lock:
            if self._phase == "queued":
                self._phase = "running"
        return self._phase == "running"

    def stop(self, reason: StopReason, request: int | None = None) -> bool:
        """Asks the call to stop; `request` is the `cancel` to answer. True if the call is over with this."""
        with self._lock:
            if self._reason in (None, "cancel"):
                self._reason = reason
            if request is not None:
                self._cancels.append(request)
            over = self._phase == "queued"
            if over:
                self._phase = "done"
                self._send(failure(self._call, stop_error(reason, self._place)))
            if self._phase != "running":
                self._answer_cancels()
        self._stopped.set()
        return over

    def finish(self, answer: msgspec.Struct) -> None:
        """Answers the call, and the cancels that its code took no notice of."""
        with self._lock:
            self._phase = "done"
            self._answer_cancels()
        self._send(answer)

    def _notice(self) -> None:
        with self._lock:
            if self._phase == "running":
                self._phase = "noticed"
            self._answer_cancels()

    def _answer_cancels(self) -> None:
        for request in self._cancels:
            self._send(Result(request, CancelResult(known=True, within_ms=int(self._ends_within * 1000))))
        self._cancels.clear()


def stop_error(reason: StopReason, where: str) -> DriverError:
    """The error of a call that stopped for this reason, which stands in `details` too."""
    return DriverError(
        _TEXT[reason],
        code="timeout" if reason == "deadline" else "cancelled",
        where=where,
        details={"reason": reason},
    )
