"""A node's attempts on a real journal, without bus and drivers: what is said is kept in a list, calls end when told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgepanda.model.head import Head
from edgepanda.model.task import Finished, Task
from edgepanda.node import attempts as attempts_module
from edgepanda.node.arbiter import Arbiter
from edgepanda.node.attempts import Attempts
from edgepanda.node.journal import Journal
from edgepanda.node.memory import Memory
from edgepanda.node.reporter import Reporter
from edgepanda.wire import messages
from edgepanda.wire.clock import Stamp
from edgepanda.wire.topics import Topic
from tests.rig.quiet_site import Call, QuietDevices, World

DONE = Finished(outcome="succeeded", evidence=({"kind": "seen"},))


class Bus:
    """What the reporter sees of the wire: bodies that wait for an acknowledgement, and all that was said."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.up = True
        self.pending: dict[str, messages.Body] = {}
        self.refuses: Exception | None = None

    def deliver(self, _topic: Topic, body: messages.Body, **_names: str) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.said.append(body)
        self.pending[body.id] = body

    def send(self, _topic: Topic, body: messages.Body, **_names: str) -> None:
        self.said.append(body)

    def settle(self, ids: Any) -> None:
        for body_id in ids:
            self.pending.pop(body_id, None)

    def waits_for(self, body_id: str) -> bool:
        return body_id in self.pending


class Bench:
    """The parts; `restart` is a kill and a new start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = World()
        self.now = 1_000.0
        self.attaching = False
        self.open()

    def open(self) -> None:
        self.bus = Bus()
        self.journal = Journal.open(self.folder / "journal.db")
        self.memory = Memory(self.folder / "positions.json")
        self.reporter = Reporter(self.journal, "n1")
        self.devices = QuietDevices(self.world, "n1")
        self.devices.things = {"job.safe": None, "job.unsafe": None}
        self.devices.attaches = lambda _name: self.attaching  # type: ignore[method-assign]
        self.attempts = Attempts(
            devices=self.devices,  # type: ignore[arg-type]
            arbiter=Arbiter(self.journal.newest),
            memory=self.memory,
            journal=self.journal,
            reporter=self.reporter,
            work_dir=self.folder / "work",
        )
        self.reporter.resume(self.bus)  # type: ignore[arg-type]
        self.attempts.recover()

    async def restart(self) -> None:
        await self.settle()
        self.journal.close()
        self.world.calls.clear()
        for attempt in list(self.attempts.running.values()):
            if attempt.runner is not None:
                attempt.runner.cancel()
        await asyncio.sleep(0)
        self.memory.close()
        self.open()
        await self.settle()

    def close(self) -> None:
        self.memory.close()
        self.journal.close()

    async def settle(self) -> None:
        """Until the journal and all that waits for it have nothing to do."""
        for _ in range(6):
            for _ in range(4):
                await asyncio.sleep(0)
            await self.journal._store.write(lambda _connection: None)

    # the coordinator's side

    def lease(self, task: str = "task-0001", attempt: int = 1, *, safe: bool = True, **fields: Any) -> messages.Lease:
        capability = "job.safe" if safe else "job.unsafe"
        whole = Task(id=task, capability=capability, replay="safe" if safe else "unsafe", **fields.pop("whole", {}))
        ms = int(self.now * 1000)
        raw = {"order": 1, "submitted_ms": ms, "until_ms": ms + 30_000, **fields}
        stamp = Stamp(incarnation=self.journal.incarnation, boot="b", ms=ms)
        return messages.Lease(
            id=f"{task}.{attempt}", task=whole, attempt=attempt, epoch=1, ledger="l", stamp=stamp, **raw
        )

    def accept(self, *args: Any, slots: int = 4, draining: bool = False, **rest: Any) -> messages.Lease:
        lease = self.lease(*args, **rest)
        self.attempts.accept(lease, slots=slots, draining=draining)
        return lease

    def permit(self, task: str = "task-0001", attempt: int = 1) -> None:
        self.attempts.permit(messages.Permit(id="p", task=task, attempt=attempt, head=Head("l", 1, "h")))

    def cancel(self, task: str = "task-0001", attempt: int = 1, reason: str = "cancelled") -> None:
        self.attempts.cancel(messages.Cancel(id="c", task=task, attempt=attempt, reason=reason))

    async def acknowledge(self) -> None:
        """Everything that waits."""
        self.reporter.acknowledged(tuple(self.bus.pending))
        await self.settle()

    def said(self, kind: type[Any] = messages.Report) -> list[Any]:
        return [body for body in self.bus.said if isinstance(body, kind)]

    def call(self) -> Call:
        return self.world.calls[-1]

    async def end(self, how: str = "done") -> None:
        self.world.end(self.call(), how)
        await self.settle()

    @property
    def begun(self) -> list[tuple[str, int]]:
        return [(task, attempt) for task, attempt, _ in self.world.begun]


@contextlib.contextmanager
def at_bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bench whose clock is `bench.now`; within a running loop."""
    bench = Bench(folder)
    monkeypatch.setattr(attempts_module, "boottime", lambda: bench.now)
    try:
        yield bench
    finally:
        bench.close()
