"""Real processes under random faults, and whether every promise held: `tests/faults/run --seconds 60 --seed 7`.

A coordinator, two nodes with a driver and a user's own commands, a broker, and a proxy before it. A client submits
`safe` and `unsafe` tasks and cancels some; meanwhile the faults of `schedule.py` strike. Then all is calm, everything
that was killed runs again, and the model is asked. The seed decides faults, work and weather; processes have a will of
their own, so a seed replays what strikes and when, not each thread's step.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Self

from edgepanda.client import AsyncClient
from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.model.task import Limits
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from edgepanda.wire.requests import TaskView
from tests.faults.model import Final, Model
from tests.faults.schedule import NODES, WEATHER, Fault, schedule
from tests.rig.brokers import Process
from tests.rig.proxy import CALM, Proxy, Weather
from tests.rig.site import RECORDER, Site

JOB = Path(__file__).parents[1] / "rig" / "job.sh"
TTL = 2.0
CALM_WITHIN = 60.0  # seconds in which everything must have ended, once all runs again
AT_ONCE = 40  # submits and questions under way
LIVE = ("queued", "leased", "running", "waiting_answer", "waiting_review", "waiting_consent")
# Whoever asks again may be answered. Consent is asked for while a driver has not said what its actions are; a counter
# was used if the request was taken, and the answer lost with the coordinator.
PASSING = ("no_answer", "broker_unreachable", "queue_full", "storage_full", "busy", "consent_required", "counter_used")


def node_text(record: Path, name: str) -> str:
    """The configuration of a node with a recorder and two commands."""
    jobs = "".join(
        f'[capabilities."job.{replay}"]\nargv = ["{JOB}", "{record}", "0.1"]\ntier = 1\nreplay = "{replay}"\n\n'
        for replay in ("safe", "unsafe")
    )
    device = f'[devices.rec]\ndriver = "{RECORDER}"\nfile = "{record}"\n'
    return f'[node]\nname = "{name}"\nslots = 16\nbeat = 0.5\ndrain = 1.0\n\n{jobs}{device}'


class Run:
    """One run; an asynchronous context manager."""

    def __init__(
        self,
        folder: Path,
        broker: Process,
        *,
        seconds: float,
        seed: int,
        tasks: int,
        every: float = 0.5,
        calm: float = CALM_WITHIN,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.model = Model()
        self.counts: collections.Counter[str] = collections.Counter()
        self._folder, self._broker, self._calm_within = folder, broker, calm
        self._seconds, self._seed, self._tasks, self._every = seconds, seed, tasks, every
        self._environment = environment or {}
        self._record = folder / "record"
        self._chance = random.Random(seed + 1)
        self._under_way: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._acts: list[asyncio.Task[None]] = []
        self._guests = 0

    async def __aenter__(self) -> Self:
        self._broker.start()
        self.proxy = Proxy(self._broker.host, self._broker.port, self._seed + 2, worth_keeping=_mutates)
        await self.proxy.start()
        nodes = {name: node_text(self._record, name) for name in NODES}
        self.site = Site(self._folder / "site", self.proxy.url, nodes, lease_ttl=TTL)
        self.site.environment = dict(self._environment)
        self.site.__enter__()
        self.client: AsyncClient = self.site.client()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in [*self._under_way, *self._acts]:
            task.cancel()
        await asyncio.gather(*self._under_way, *self._acts, return_exceptions=True)
        await self.client.close()
        for process in self.site.loaded:
            self._signal(lambda process=process: self.site.pid(process), signal.SIGCONT)  # type: ignore[misc]
        await asyncio.to_thread(self.site.__exit__, None, None, None)
        await self.proxy.stop()
        self._broker.kill()

    async def go(self) -> list[str]:
        """Everything, and what was found."""
        await self._connected()
        await self.site.claiming(self.client, *NODES)
        began = time.monotonic()
        work = asyncio.create_task(self._submit_all())
        for fault in schedule(self._seed, self._seconds, self._every):
            await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
            self.counts[fault.kind] += 1
            self._acts.append(asyncio.create_task(self._strike(fault)))
        await asyncio.sleep(max(0.0, began + self._seconds - time.monotonic()))
        await work
        await self._calm()
        await self._look()
        return self.model.problems()

    async def _connected(self) -> None:
        async with asyncio.timeout(15):
            while True:
                with contextlib.suppress(EdgePandaError):
                    await self.client.connect()
                    return
                await asyncio.sleep(0.1)

    # work

    async def _submit_all(self) -> None:
        gap = self._seconds / self._tasks
        began = time.monotonic()
        for number in range(self._tasks):
            await asyncio.sleep(max(0.0, began + number * gap - time.monotonic()))
            await self._slots.acquire()
            self._spawn(self._one(number, random.Random((self._seed << 20) + number)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _one(self, number: int, chance: random.Random) -> None:
        task, replay = new_id(), "unsafe" if number % 2 else "safe"
        seconds = chance.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        what: dict[str, Any] = {"capability": f"job.{replay}"}  # on any node
        if chance.random() < 0.8:
            action = "mark" if replay == "unsafe" else "note"
            what = {"device": "rec", "action": action, "args": {"seconds": seconds}, "node": chance.choice(NODES)}
        cancel, twice = chance.random() < 0.1, chance.random() < 0.1
        self.model.submit(task, replay)
        try:
            if await self._submitted(task, what) and cancel:
                await asyncio.sleep(chance.random() * 0.2)
                await self._cancelled(task)
            if twice:  # somebody is not sure whether it was asked for, and asks again
                await asyncio.sleep(1.0)
                await self._submitted(task, what)
        finally:
            self._slots.release()

    async def _submitted(self, task: str, what: dict[str, Any]) -> bool:
        limits = Limits(valid_for=600)
        try:
            await self._asked(lambda: self.client.submit(id=task, limits=limits, **what))
        except EdgePandaError as error:
            self.model.refuse(task, error.code)
            return False
        self.model.answer(task)
        return True

    async def _cancelled(self, task: str) -> None:
        try:
            await self._asked(lambda: self.client.cancel(task, "the harness wants it"))
        except EdgePandaError as error:
            if error.code != "invalid_state":  # it has ended
                raise

    async def _asked(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Ask until it is answered, as a person would. Raises what is an answer."""
        while True:
            try:
                return await ask()
            except EdgePandaError as error:
                if error.code not in PASSING:
                    raise
                await asyncio.sleep(0.2)

    # faults

    async def _strike(self, fault: Fault) -> None:
        if fault.kind in WEATHER:
            await self._weather(fault)
        elif fault.kind == "cut":
            self.proxy.cut(fault.victim)
        elif fault.kind == "echo":
            self.proxy.echo(20)
        elif fault.kind == "stop":
            await self._stop(fault.lasts)
        elif fault.kind == "guest":
            await self._guest()
        elif fault.kind.endswith("_host"):
            await self._host(fault)
        elif fault.victim == "broker":
            await self._strike_broker(fault)
        else:
            await self._strike_process(fault)

    async def _weather(self, fault: Fault) -> None:
        share = 0.02 + 0.2 * fault.strength
        changes: dict[str, Any] = {"delay": 0.3 * fault.strength} if fault.kind == "delay" else {fault.kind: share}
        if fault.kind == "deaf":
            changes = {"deaf": True}
        self.proxy.weather = Weather(fault.victim, **changes)
        await asyncio.sleep(fault.lasts)
        self.proxy.weather = CALM

    async def _strike_broker(self, fault: Fault) -> None:
        if fault.kind == "pause":
            self._broker.suspend()
            await asyncio.sleep(fault.lasts)
            self._broker.resume()
            return
        await asyncio.to_thread(self._broker.kill)
        await asyncio.sleep(fault.lasts)
        await asyncio.to_thread(self._broker.restart)

    async def _strike_process(self, fault: Fault) -> None:
        if fault.kind == "pause":
            pid = self.site.pid(fault.victim)
            self._signal(lambda: pid, signal.SIGSTOP)
            await asyncio.sleep(fault.lasts)
            self._signal(lambda: pid, signal.SIGCONT)
            return
        self.site.kill(fault.victim)
        await asyncio.sleep(fault.lasts)
        self.site.start(fault.victim)

    async def _host(self, fault: Fault) -> None:
        hosts = _children(self.site, fault.victim)
        if not hosts:
            return
        pid = hosts[int(fault.strength * len(hosts)) % len(hosts)]
        if fault.kind == "kill_host":
            self._signal(lambda: pid, signal.SIGKILL)
            return
        self._signal(lambda: pid, signal.SIGSTOP)
        await asyncio.sleep(fault.lasts)
        self._signal(lambda: pid, signal.SIGCONT)

    def _signal(self, pid: Callable[[], int], sign: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(pid(), sign)

    async def _stop(self, lasts: float) -> None:
        with contextlib.suppress(EdgePandaError):
            await self.client.stop("the harness stops")
        await asyncio.sleep(lasts)
        await self._release()

    async def _release(self) -> None:
        """Until no stop stands, at the site or at a node."""
        while True:
            stops = await self._asked(self.client.stops)
            ids = _standing(stops)
            if not ids:
                return
            await self._asked(lambda ids=ids: self.client.release(ids, "the harness releases"))  # type: ignore[misc]
            await asyncio.sleep(0.2)

    async def _guest(self) -> None:
        """A peer is let in, and out again; from then on it must stay out."""
        self._guests += 1
        name = f"guest{self._guests}"
        peer = Peer(key=encode_key(Identity.create().public), name=name, role="client")
        for ask in (lambda: self.client.add_peer(peer), lambda: self.client.remove_peer(name)):
            with contextlib.suppress(EdgePandaError):  # a repetition finds that it was done
                await self._asked(ask)
        self.model.let_out.add(name)

    # the end

    async def _calm(self) -> None:
        end = time.monotonic() + self._calm_within
        waiting = [asyncio.ensure_future(self._release()), *self._acts, *self._under_way]
        self.proxy.weather = CALM
        done, late = await asyncio.wait(waiting, timeout=self._calm_within)
        for task in done:
            task.result()
        self.model.unanswered = len(late)
        print(f"calm, {len(late)} requests unanswered", flush=True)
        while await self._living() and time.monotonic() < end:  # noqa: ASYNC110 the others are processes
            await asyncio.sleep(0.3)
        self.proxy.echo(100)  # what was said long ago changes nothing
        await asyncio.sleep(1.0)
        self.model.released = waiting[0].done()

    async def _living(self) -> bool:
        found = await self._asked(lambda: self.client.list(states=LIVE, limit=1))
        return bool(found["tasks"])

    async def _look(self) -> None:
        model = self.model
        for start in range(0, len(model.submitted), AT_ONCE):
            some = list(model.submitted)[start : start + AT_ONCE]
            for task, final in zip(some, await asyncio.gather(*map(self._final, some)), strict=True):
                if final is not None:
                    model.end(task, final)
        if self._record.exists():
            model.record(self._record.read_text().splitlines())
        verified = await self.client.verify()
        model.verified = [] if verified["ok"] else [str(p) for p in verified["problems"]] or ["not well"]
        peers = (await self.client.peers())["peers"]
        model.peers = {peer["name"] for peer in peers if not peer.get("revoked")}
        model.standing = tuple(name for ids in _standing(await self.client.stops()).values() for name in ids)

    async def _final(self, task: str) -> Final | None:
        try:
            view: TaskView = await self._asked(lambda: self.client.get(task))
        except EdgePandaError as error:
            if error.code == "unknown_task":
                return None
            raise
        lines = [str(one.get("line", "")).split() for one in view.result.evidence] if view.result else []
        shown = tuple(int(words[1]) for words in lines if len(words) >= 2 and words[0] == task)
        return Final(view.state, view.attempt, view.code, view.result is not None, shown, view.replay)


def _standing(stops: dict[str, Any]) -> dict[str, list[str]]:
    """The ids of the stops in force, by the key id of who has them."""
    parts = [stops["site"], *stops["nodes"].values()]
    return {part["kid"]: [stop["id"] for stop in part["stops"]] for part in parts if part["stops"]}


def _mutates(packet: bytes) -> bool:
    """Whether it is worth saying again at any later time: stops, and changes of the list of peers."""
    return b"/site/stop" in packet[:80] or b'"peers.add"' in packet


def _children(site: Site, process: str) -> list[int]:
    """The driver hosts of a node, if it runs."""
    try:
        pid = site.pid(process)
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (KeyError, OSError):
        return []
    return sorted(int(word) for word in text.split())
