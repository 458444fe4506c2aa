"""Errors of tasks, attempts and the coordinator, from its parts on a real ledger and a real journal."""

from __future__ import annotations

import asyncio
from typing import Any

from edgepanda.errors import EdgePandaError
from edgepanda.model.head import Head
from edgepanda.model.task import Answer, Finished, Task
from edgepanda.node import attempts as attempts_module
from edgepanda.node.arbiter import Arbiter
from edgepanda.node.journal import Journal
from edgepanda.node.site import Site
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from edgepanda.wire import messages
from tests.provoke.kit import Here, provokes
from tests.rig.desk import Desk, at_desk
from tests.rig.workbench import Bench, at_bench

# requests


async def refused(here: Here, method: str, **params: Any) -> EdgePandaError:
    """What the coordinator answers where one node is at the site, and `task-0001` waits for it."""
    with at_desk(here.folder) as desk:
        desk.joins()
        await desk.submit("task-0001")
        return await answer(desk, method, **params)


async def answer(desk: Desk, method: str, **params: Any) -> EdgePandaError:
    """The error that comes for a request."""
    asked = desk.ask(method, **params)
    await desk.settle()
    error = next(reply.error for reply in desk.replies if reply.id == asked)
    assert error is not None
    return EdgePandaError.from_dict(error.data)


for _code, (_method, _params) in {
    "unsupported": ("task.nothing", {}),
    "unknown_task": ("task.get", {"id": "task-none"}),
    "unknown_node": ("node.get", {"name": "n9"}),
    "not_allowed": ("peers.remove", {"name": "me"}),
    "invalid_state": ("task.review", {"id": "task-0001", "verdict": "again"}),
    "idempotency_conflict": ("task.submit", {"id": "task-0001", "capability": "job.unsafe"}),
    "unknown_capability": ("task.submit", {"id": "task-0002", "capability": "job.none"}),
    "unknown_device": ("task.submit", {"id": "task-0002", "device": "tilt", "action": "move"}),
    "invalid_task_id": ("task.submit", {"id": "No", "capability": "job.safe"}),
    "consent_required": ("task.submit", {"id": "task-0002", "capability": "job.final"}),
    "limit": ("task.submit", {"id": "task-0002", "capability": "job.safe", "priority": 1000}),
}.items():
    provokes(_code)(lambda here, method=_method, params=_params: refused(here, method, **params))


@provokes("ambiguous")
async def _(here: Here) -> EdgePandaError:
    with at_desk(here.folder) as desk:
        desk.joins("n1")
        desk.joins("n2")
        return await answer(desk, "task.submit", id="task-0001", capability="servo.move")


@provokes("counter_missing")
async def _(here: Here) -> EdgePandaError:
    with at_desk(here.folder) as desk:
        desk.requests.take(messages.Request(id="r1", method="task.cancel", params={"id": "task-0001"}), desk.me)
        await desk.settle()
        error = desk.replies[-1].error
        assert error is not None
        return EdgePandaError.from_dict(error.data)


@provokes("counter_used")
async def _(here: Here) -> EdgePandaError:
    with at_desk(here.folder) as desk:
        await desk.answer("task.cancel", id="task-0001", counter=5)
        return await answer(desk, "task.cancel", id="task-0001", counter=5)


@provokes("key_known")
async def _(here: Here) -> EdgePandaError:
    with at_desk(here.folder) as desk:
        key = encode_key(Identity.create().public)
        await desk.answer("peers.add", peer={"key": key, "name": "shed", "role": "node"})
        return await answer(desk, "peers.add", peer={"key": key, "name": "attic", "role": "node"})


# what the ledger says of a task


async def recorded(desk: Desk, task: str = "task-0001") -> EdgePandaError:
    """Code and reason of a task, as `show` has them."""
    await desk.settle()
    view = await desk.answer("task.get", id=task)
    return EdgePandaError(view["reason"], code=view.get("code", ""), where=task)


@provokes("expired")
async def _(here: Here) -> EdgePandaError:
    with at_desk(here.folder) as desk:
        desk.joins(slots=0)
        await desk.submit("task-0001", limits={"valid_for": 1})
        desk.now += 5
        desk.leases.tick()
        return await recorded(desk)


@provokes("lost")
async def _(here: Here) -> EdgePandaError:
    with at_desk(here.folder) as desk:
        desk.joins()
        await desk.submit("task-0001", "job.unsafe")
        desk.say(messages.Starting, "task-0001")
        await desk.settle()
        desk.now += 1000
        desk.leases.tick()
        return await recorded(desk)


@provokes("node_busy")
async def _(here: Here) -> EdgePandaError:
    return await refused(here, "node.rename", name="n1", to="lab")  # the task is leased to it


@provokes("fence_retired")
async def _(here: Here) -> str:
    with at_desk(here.folder) as desk:
        desk.joins()
        await desk.submit("task-0001")
        desk.say(messages.Started, "task-0001", node="n2")
        await desk.settle()
        return here.logged()


for _code, _result in {
    "no_evidence": Finished(outcome="succeeded"),
    "criterion_not_met": Finished(
        outcome="succeeded", evidence=({"kind": "seen"},), answers=(Answer(criterion="level", met=False),)
    ),
}.items():

    @provokes(_code)
    async def _(here: Here, result: Finished = _result) -> EdgePandaError:
        with at_desk(here.folder) as desk:
            desk.joins()
            await desk.submit("task-0001", criteria=["level"])
            desk.say(messages.FinishedReport, "task-0001", result=result)
            return await recorded(desk)


# attempts


async def ended(bench: Bench) -> EdgePandaError:
    """How the attempt ends that runs."""
    (attempt,) = bench.attempts.running.values()
    assert attempt.runner is not None
    await bench.settle()
    finished = await attempt.runner
    return EdgePandaError(finished.message, code=finished.code, where=attempt.device)


async def declined(here: Here, **fields: Any) -> EdgePandaError:
    """What a node answers to a lease."""
    with at_bench(here.folder, here.patch) as bench:
        lease = bench.accept(**fields)
        await bench.settle()
        (report,) = bench.said(messages.Declined)
        return EdgePandaError(report.message, code=report.code, where=lease.task.id)


provokes("busy")(lambda here: declined(here, slots=0))
provokes("draining")(lambda here: declined(here, draining=True))


@provokes("no_permit")
async def _(here: Here) -> EdgePandaError:
    here.patch.setattr(attempts_module, "PERMIT_WITHIN", 0.0)
    with at_bench(here.folder, here.patch) as bench:
        bench.accept(safe=False)
        return await ended(bench)


@provokes("lease_over")
async def _(here: Here) -> EdgePandaError:
    with at_bench(here.folder, here.patch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        bench.now += 31.0
        bench.permit()
        return await ended(bench)


@provokes("stopped")
async def _(here: Here) -> EdgePandaError:
    with at_bench(here.folder, here.patch) as bench:
        bench.attempts.may_actuate = lambda: False
        lease = bench.accept()
        await bench.settle()
        (report,) = bench.said(messages.Declined)
        return EdgePandaError(report.message, code=report.code, where=lease.task.id)


@provokes("link_loss")
async def _(here: Here) -> EdgePandaError:
    with at_bench(here.folder, here.patch) as bench:
        bench.accept()
        await bench.settle()
        (attempt,) = bench.attempts.running.values()
        assert attempt.runner is not None
        bench.attempts.halt("link_loss", attempt.device)
        await bench.settle()
        finished = await attempt.runner
        return EdgePandaError(finished.message, code=finished.code, where=attempt.device)


@provokes("superseded")
async def _(here: Here) -> EdgePandaError:
    arbiter = Arbiter()
    lane = arbiter.lane("pan")
    await lane.take("preempt", lambda: None)
    waiting = asyncio.ensure_future(lane.take("preempt", lambda: None))
    await asyncio.sleep(0)
    newest = asyncio.ensure_future(lane.take("preempt", lambda: None))
    try:
        await waiting
    finally:
        newest.cancel()
    raise AssertionError


@provokes("interrupted")
async def _(here: Here) -> None:
    task = Task(id="task-0009", capability="job.unsafe", by="n1", door="local", node="n1")
    with at_bench(here.folder, here.patch) as bench:
        running = asyncio.ensure_future(bench.attempts.direct(task, "run"))
        await bench.settle()
        await bench.end("died")
        await running
        await bench.restart()
        await bench.attempts.direct(task, "run")


# a node and its coordinator


async def met(here: Here, epoch: int, ledger: str, head: Head | None = None) -> EdgePandaError | None:
    """What a node has against a coordinator, after it has worked for the ledger `home` in epoch 4, up to entry 10."""
    me = Peer(key=encode_key(Identity.create().public), name="n1", role="node")
    journal = Journal.open(here.folder / "journal.db")
    site = Site(here.folder / "peers.json", name="home", key=Identity.create().public, me=me, journal=journal)
    try:
        await site.meet(4, "home")
        site.prove(Head("home", 10, "h"))
        site.lost()
        if await site.meet(epoch, ledger) and head is not None:
            site.prove(head)
        for _ in range(2):
            site.unanswered()
        return site.problem
    finally:
        site.close()
        journal.close()


provokes("epoch_stale")(lambda here: met(here, 3, "home"))
provokes("ledger_foreign")(lambda here: met(here, 5, "another"))
provokes("ledger_behind")(lambda here: met(here, 5, "home", Head("home", 3, "g")))
provokes("not_let_in")(lambda here: met(here, 5, "home"))
