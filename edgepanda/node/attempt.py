"""One attempt: what is known of it while it waits and runs."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Literal

import msgspec

from edgepanda.drivers.contract import DriverError
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Action
from edgepanda.model.task import Finished, Task
from edgepanda.node.arbiter import superseded
from edgepanda.node.journal import AttemptRow

OUTPUT_HEAD, OUTPUT_TAIL = 20, 80  # lines of output that go into the report
LONGEST_LINE = 200  # characters of such a line

Why = Literal["", "cancelled", "superseded", "fence_retired", "lease_over", "draining", "stopped", "link_loss"]
Key = tuple[str, int]


class Attempt:
    """A running or waiting attempt. Times are milliseconds of this machine's boot clock."""

    def __init__(self, task: Task, number: int, *, device: str, action: str, spec: Action, seq: int) -> None:
        self.task, self.number = task, number
        self.device, self.action, self.spec = device, action, spec
        self.until_ms: int | None = None  # the lease's end; None: a direct command
        self.begin_by_ms: int | None = None
        self.end_by_ms: int | None = None
        self.began = False
        self.journaled = False
        self.asked = False  # for its permit
        self.entered = False  # its runner has taken its first step
        self.result: Finished | None = None  # known already, from a direct command of this task
        self.why: Why = ""  # why it was stopped
        self.permit: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.head: list[str] = []
        self.tail: deque[str] = deque(maxlen=OUTPUT_TAIL)
        self._seq = seq
        self.runner: asyncio.Task[Finished] | None = None

    @property
    def key(self) -> Key:
        """Task and number."""
        return (self.task.id, self.number)

    def next_seq(self) -> int:
        """The number of the next report."""
        self._seq += 1
        return self._seq

    def output(self, text: str) -> list[str]:
        """Keep these lines, head and tail; gives them as they are shown."""
        lines = [line[:LONGEST_LINE] for line in text.splitlines()]
        for line in lines:
            if len(self.head) < OUTPUT_HEAD:
                self.head.append(line)
            else:
                self.tail.append(line)
        return lines


class NeverBegan(Exception):
    """An attempt ends before it acts; `code` says why."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def stopped(attempt: Attempt) -> EdgePandaError:
    """Why an attempt that has not begun was stopped."""
    if attempt.why == "superseded":
        return superseded(attempt.device)
    return EdgePandaError("it was stopped before it began", code=attempt.why or "draining", where=attempt.device)


def is_unknown(error: EdgePandaError) -> bool:
    """True if the driver's host died in the middle, or nobody saw how a command ended: it may have been done."""
    return isinstance(error, DriverError) and bool(
        error.details.get("unknown") or error.details.get("reason") == "interrupted"
    )


def new_row(
    task: Task,
    number: int,
    device: str | None,
    action: str,
    state: Literal["starting", "began", "finished"],
    work: str | None = None,
) -> AttemptRow:
    """The journal's row of an attempt as it is now."""
    return AttemptRow(
        task=task.id,
        attempt=number,
        state=state,
        capability=task.capability,
        device=device,
        action=action,
        replay=task.replay,
        lease=msgspec.json.encode(task),
        work=work,
        updated=time.time(),
    )
