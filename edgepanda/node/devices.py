"""A node's devices: the hosts of their drivers, what is open, what a changed configuration makes of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

from edgepanda import __version__
from edgepanda.drivers.contract import CallResult, Description, DriverError
from edgepanda.drivers.gpio import Owner, declared_lines, find_clash
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Action, Capability, Card, Device, Driver, narrowed
from edgepanda.model.config import Node
from edgepanda.node import cards
from edgepanda.node.breaker import Breakers
from edgepanda.node.cards import Seen
from edgepanda.node.configured import Change, Configured, Program, differences
from edgepanda.node.hosts import Host
from edgepanda.node.memory import Memory

log = logging.getLogger("edgepanda.node")

LOOK_FIRST, LOOK_MOST = 5.0, 300.0  # seconds before what cannot be used is looked at again: at first, and at most
CHANGING = "its configuration has changed; it is opened anew once what runs on it has ended"
LEAVING = "it is not configured any more; it goes to its safe state once what runs on it has ended"

Free = Callable[[str], AbstractAsyncContextManager[None]]


class Thing(msgspec.Struct):
    """One configured device or capability, and what is known of it."""

    configured: Configured
    host: Host
    seen: Seen = Seen()
    opened: bool = False

    @property
    def name(self) -> str:
        """Unique at the node."""
        return self.configured.name

    @property
    def driver(self) -> str:
        """The driver's name on the card."""
        return self.configured.program.driver

    @property
    def capability(self) -> bool:
        """True for a command of the user's own."""
        return self.configured.capability


class Devices:
    """All of them. Nothing here fails a start: what cannot be used is on the card with its reason, and is looked at
    again, ever more rarely.

    A device is opened and closed only while it is nobody's: `free(name)` waits for that and keeps it so.
    """

    def __init__(
        self,
        things: Mapping[str, Configured],
        memory: Memory,
        run_dir: Path,
        *,
        free: Free,
        on_change: Callable[[], None],
        on_output: Callable[[str, int, str, str], None],
        on_event: Callable[[str, str, Any], None],
    ) -> None:
        self._memory, self._run_dir, self._free = memory, run_dir, free
        self._on_change, self._on_output, self._on_event = on_change, on_output, on_event
        self.breakers = Breakers(on_change)
        self._hosts: dict[Program, Host] = {}
        self._descriptions: dict[str, Description] = {}
        self._targets: dict[str, Configured | None] = {}  # what a name is to become once it is free; None: nothing
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._gates: dict[str, asyncio.Lock] = {}  # one host of a driver is started at a time
        self._look = asyncio.Event()
        self._background: set[asyncio.Task[Any]] = set()
        self.things = {name: self._thing(each) for name, each in things.items()}

    def _thing(self, each: Configured) -> Thing:
        host = self._hosts.get(each.program)
        if host is None:
            host = self._hosts[each.program] = Host(
                each.program.source,
                list(each.program.argv) or None,
                self._run_dir,
                on_state=self._memory.state,
                on_event=self._on_event,
                on_output=self._on_output,
            )
        return Thing(each, host)

    # life

    async def start(self) -> None:
        """Start all hosts, probe and open all devices; those of different hosts at once. Returns when each has said
        something, or could not.
        """
        await asyncio.gather(*(self._start_host(program) for program in list(self._hosts)))
        self._spawn(self._keep_looking())

    async def close(self) -> None:
        """Bring every device to its safe state and end the hosts."""
        self.breakers.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await asyncio.gather(*(host.close() for host in self._hosts.values()), return_exceptions=True)

    async def _start_host(self, program: Program) -> None:
        """Start it, unless it runs, and open what is its."""
        host = self._hosts.get(program)
        if host is None:
            return
        async with self._gates.setdefault(program.driver, asyncio.Lock()):
            if not host.started and not await self._started(program, host):
                return
        for thing in [thing for thing in self._of(host) if not thing.opened]:
            async with self._free(thing.name):
                await self._open(thing)
        self._on_change()

    async def _started(self, program: Program, host: Host) -> bool:
        if any(other.started for each, other in self._hosts.items() if each.driver == program.driver):
            return False  # the driver's earlier program still works; this one's turn comes when that has ended
        try:
            await host.start()
            self._descriptions[program.driver] = await host.describe()
            if self._hosts.get(program) is not host:  # meanwhile nothing needs it any more
                await host.close()
            return host.started
        except EdgePandaError as error:
            seen = Seen(None, error.message, error.cure)
        except Exception as error:
            log.exception("driver %s cannot be used", program.driver)
            seen = Seen(None, f"its host cannot be started: {error}", "the node's log has the details")
        if any(thing.seen != seen for thing in self._of(host)):
            log.error("driver %s cannot be used: %s", program.driver, seen.problem)
        for thing in self._of(host):
            thing.seen = seen
        self._on_change()
        return False

    def _of(self, host: Host) -> list[Thing]:
        return [thing for thing in self.things.values() if thing.host is host]

    async def _open(self, thing: Thing) -> None:
        """Probe it and open it, unless it is open, or is something else by now. It must be nobody's."""
        if self.things.get(thing.name) is not thing or thing.opened or thing.name in self._targets:
            return
        clash = self._clash(thing)
        if clash is not None:
            if thing.seen != clash:
                log.error("%s cannot be used: %s [%s]", thing.name, clash.problem, clash.code)
            thing.seen = clash
            return
        try:
            probe = await thing.host.probe(thing.configured.config)
            if probe.usable:
                await thing.host.open(thing.name, thing.configured.config, self._known(thing))
                thing.opened = True
            elif thing.seen != Seen(probe):
                log.warning("%s cannot be used: %s; %s", thing.name, probe.reason, probe.cure)
            thing.seen = Seen(probe)
        except EdgePandaError as error:
            seen = Seen(None, error.message, error.cure)
            if thing.seen != seen:
                log.error("%s cannot be used: %s [%s]", thing.name, error, error.code)
            thing.seen = seen

    def _clash(self, thing: Thing) -> Seen | None:
        """Why it may not be opened: one of its lines belongs to a device that was opened before."""
        mine = self._owner(thing)
        if not declared_lines(mine):
            return None
        from edgepanda.node.scan.gpio import header_chip

        others = [self._owner(each) for each in self.things.values() if each is not thing and each.opened]
        clash = find_clash(mine, others, header_chip())
        if clash is None:
            return None
        return Seen(
            None, str(clash), f"`edgepanda device set {thing.name} {clash.key}=...` names another", "pin_conflict"
        )

    def _owner(self, thing: Thing) -> Owner:
        description = self._descriptions.get(thing.driver)
        return Owner(thing.name, thing.configured.config, description.device if description else None)

    def _known(self, thing: Thing) -> dict[str, Any] | None:
        return self._memory.known(thing.name) if self.remembers(thing.name) else None

    # looking again

    async def look_again(self) -> None:
        """Start the hosts that do not run, probe what is not open, and open what can be now."""
        await asyncio.gather(*(self._start_host(program) for program in list(self._hosts) if self._lost(program)))

    def _lost(self, program: Program) -> bool:
        host = self._hosts[program]
        return not host.started or not all(thing.opened for thing in self._of(host))

    async def _keep_looking(self) -> None:
        pause = LOOK_FIRST
        while True:
            self._look.clear()
            lost = any(self._lost(program) for program in self._hosts)
            try:
                async with asyncio.timeout(pause if lost else None):
                    await self._look.wait()
                pause = LOOK_FIRST
            except TimeoutError:
                pause = min(pause * 2, LOOK_MOST)
                try:
                    await self.look_again()
                except Exception:
                    log.exception("a look at what cannot be used failed")

    # another configuration

    async def become(self, things: Mapping[str, Configured], *, within: float) -> dict[str, Change]:
        """Take up another configuration; gives what changes.

        A device that is gone goes to its safe state and is closed, one that is new is opened, one that has changed is
        closed and opened anew; each once what runs on it, or waits for it already, has ended. Returns when all that
        is done, and after `within` seconds at the latest; the rest goes on.
        """
        aims = {name: each for name, each in {**self._now(), **self._targets}.items() if each is not None}
        changes = differences(aims, things)
        for name, change in changes.items():
            if change == "relabelled" and name not in self._targets:
                self.things[name].configured = things[name]
                continue
            waited = name in self._targets
            self._targets[name] = things.get(name)
            if name in self.things:
                problem = CHANGING if name in things else LEAVING
                self.things[name].seen = Seen(None, problem, "wait, or cancel what runs on it")
            if not waited:
                self._settling[name] = self._spawn(self._settle(name))
        self._on_change()
        waiting = [self._settling[name] for name in changes if name in self._settling]
        if waiting:
            await asyncio.wait(waiting, timeout=within)
        return changes

    def _now(self) -> dict[str, Configured | None]:
        return {name: thing.configured for name, thing in self.things.items()}

    async def _settle(self, name: str) -> None:
        """Make of this name what it is to be, once it is nobody's."""
        try:
            async with self._free(name):
                old, target = self.things.pop(name, None), self._targets.pop(name)
                if old is not None:
                    await self._let_go(old, gone=target is None)
                if target is not None:
                    self.things[name] = thing = self._thing(target)
                    if thing.host.started:
                        await self._open(thing)
            await self._end_unused()
            await self.look_again()
        except Exception:
            log.exception("%s could not be made what the configuration says", name)
        finally:
            self._look.set()
            self._on_change()

    async def _let_go(self, thing: Thing, *, gone: bool) -> None:
        """Close it; what is gone goes to its safe state before."""
        try:
            if gone and thing.opened:
                await thing.host.safe(thing.name)
            if thing.opened:
                await thing.host.close_device(thing.name)
        except EdgePandaError as error:
            log.warning("%s could not be closed as it should be: %s [%s]", thing.name, error, error.code)
        thing.opened = False
        self.breakers.forget(thing.name)
        if gone:
            self._memory.forget(thing.name)

    async def _end_unused(self) -> None:
        used = {thing.configured.program for thing in self.things.values()}
        used |= {target.program for target in self._targets.values() if target is not None}
        for program in [program for program in self._hosts if program not in used]:
            await self._hosts.pop(program).close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    # questions

    def remembers(self, name: str) -> bool:
        """True if the node keeps this device's position."""
        description = self._description(name)
        return description is not None and description.remembers

    def attaches(self, name: str) -> bool:
        """True if its work outlives its host, and a repeated call joins it."""
        description = self._description(name)
        return description is not None and description.attaches

    def _description(self, name: str) -> Description | None:
        thing = self.things.get(name)
        return None if thing is None else self._descriptions.get(thing.driver)

    def action(self, name: str, action: str) -> Action:
        """What the device can do under this name. Raises `EdgePandaError`: `unknown_device`, `unsupported`,
        `unavailable` with the reason.
        """
        thing = self.things.get(name)
        if thing is None:
            known = ", ".join(sorted(self.things)) or "none"
            raise EdgePandaError(
                f"this node has no device {name!r}", code="unknown_device", where="device", cure=f"it has: {known}"
            )
        if thing.seen.probe is None or not thing.seen.probe.usable:
            reason = thing.seen.problem or (thing.seen.probe.reason if thing.seen.probe else "it is being probed")
            cure = thing.seen.cure or (thing.seen.probe.cure if thing.seen.probe else "")
            code = thing.seen.code or "unavailable"
            raise EdgePandaError(f"{name} cannot be used: {reason}", code=code, where=name, cure=cure)
        own = cards.own_action(thing.seen) if thing.capability else None
        if own is not None and action == "run":
            return own
        spec = self._descriptions[thing.driver].actions.get(action)
        if spec is None or thing.capability:
            known = ", ".join(sorted(self._descriptions[thing.driver].actions))
            raise EdgePandaError(
                f"{name} cannot {action!r}", code="unsupported", where="action", cure=f"it can: {known}"
            )
        return narrowed(cards.as_action(spec), thing.seen.probe.limits.get(action, {}))

    def reading_action(self, name: str) -> str | None:
        """The action that only observes this device and needs no argument, `read` before others; None if there is none,
        or it cannot be used now.
        """
        thing = self.things.get(name)
        if (
            thing is None or thing.capability or not thing.opened or self.attaches(name)
        ):  # a call would join the old one
            return None
        actions = self._descriptions[thing.driver].actions
        able = sorted(each for each, spec in actions.items() if spec.tier == 0 and not spec.args.get("required"))
        return "read" if "read" in able else next(iter(able), None)

    async def call(self, name: str, action: str, args: dict[str, Any], **rest: Any) -> CallResult:
        """Let the device do it (see `Host.call`). Raises `DriverError`."""
        thing = self.things.get(name)
        if thing is None:
            raise DriverError(f"this node has no device {name!r}", code="unavailable", where=name)
        return await thing.host.call(name, action, args, **rest)

    async def safe(self, name: str | None = None) -> None:
        """Stop the calls of a device, or of all, and bring it to its safe state; all hosts at once. What fails is
        logged.
        """
        if name is None:
            hosts = [host for host in self._hosts.values() if host.started]
        else:
            hosts = [self.things[name].host] if name in self.things and self.things[name].opened else []
        done = await asyncio.gather(*(host.safe(name) for host in hosts), return_exceptions=True)
        for host, result in zip(hosts, done, strict=True):
            if isinstance(result, Exception):
                log.error("driver %s: the safe state could not be reached: %s", host.driver, result)

    async def cancel(self, name: str, task: str, attempt: int) -> bool:
        """Stop a running call; True if there was one."""
        thing = self.things.get(name)
        return thing is not None and await thing.host.cancel(task, attempt)

    def link_losses(self) -> dict[str, float]:
        """The devices that have a `link_loss`, in seconds."""
        return {name: thing.configured.link_loss for name, thing in self.things.items() if thing.configured.link_loss}

    def card(self, settings: Node, *, node: str, revision: int, incarnation: int) -> Card:
        """The node's card as things stand, but for its hardware."""
        devices: dict[str, Device] = {}
        capabilities: dict[str, Capability] = {}
        for name, thing in self.things.items():
            own = cards.own_action(thing.seen)
            if not thing.capability:
                devices[name] = cards.as_device(thing.driver, thing.seen, thing.configured.labels)
            elif own is not None:
                capabilities[name] = cards.as_capability(own, thing.seen, thing.configured.labels)
            else:
                hidden = Action(tier=2, replay="unsafe", description="its driver has said nothing yet")
                capabilities[name] = cards.as_capability(hidden, thing.seen, thing.configured.labels)
        for name in self.things:
            problem = self.breakers.problem(name)
            if problem is not None and name in devices:
                devices[name] = cards.left_alone(devices[name], problem)
            elif problem is not None:
                capabilities[name] = cards.left_alone(capabilities[name], problem)
        used = {device.driver for device in devices.values()}
        drivers: dict[str, Driver] = {
            name: cards.as_driver(description) for name, description in self._descriptions.items() if name in used
        }
        return Card(
            node=node,
            revision=revision,
            incarnation=incarnation,
            software=__version__,
            description=settings.description,
            labels=settings.labels,
            slots=settings.slots,
            drivers=drivers,
            devices=devices,
            capabilities=capabilities,
        )
