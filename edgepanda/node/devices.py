"""The node's devices and commands: their driver hosts, what they said of themselves, and calls to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda import __version__
from edgepanda.drivers.contract import CallResult, Description, DriverError, Probe
from edgepanda.drivers.gpio import Owner, declared_lines, find_clash
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Action, Capability, Card, Device, Driver, narrowed
from edgepanda.model.config import ConfigError, Loaded
from edgepanda.node import cards
from edgepanda.node.cards import Seen
from edgepanda.node.hosts import Host
from edgepanda.node.memory import Memory

log = logging.getLogger("edgepanda.node")

COMMAND = "command"  # the driver of capabilities of the user's own
RESERVED = ("driver", "labels", "command")  # keys of a device that are the node's and not its driver's
RETRY = 30.0  # seconds before a driver host that could not be started is tried again


class Thing(msgspec.Struct):
    """One configured device, or one capability of the user's own (which is a device of the `command` driver)."""

    name: str
    driver: str
    config: dict[str, Any]
    labels: dict[str, str]
    host: Host
    capability: bool = False
    seen: Seen = Seen()


class Devices:
    """All of them. Nothing here fails a start: what cannot be used is on the card with its reason."""

    def __init__(
        self,
        loaded: Loaded,
        memory: Memory,
        *,
        on_change: Callable[[], None],
        on_output: Callable[[str, int, str, str], None],
        on_event: Callable[[str, str, Any], None],
    ) -> None:
        self._loaded, self._memory = loaded, memory
        self._on_change, self._on_output, self._on_event = on_change, on_output, on_event
        self._hosts: dict[str, Host] = {}
        self._descriptions: dict[str, Description] = {}
        self.things: dict[str, Thing] = {}
        for name, config in loaded.config.devices.items():
            self._add(name, config, capability=False)
        for name, config in loaded.config.capabilities.items():
            self._add(name, {"driver": COMMAND, **config}, capability=True)

    def _add(self, name: str, config: dict[str, Any], *, capability: bool) -> None:
        driver, argv = self._driver(name, config)
        labels = {str(k): str(v) for k, v in dict(config.get("labels", {})).items()}
        own = {key: value for key, value in config.items() if key not in RESERVED or (capability and key == "command")}
        if name in self.things:
            raise ConfigError(f"{name!r} is a device and a capability", where=f"{self._loaded.path}: devices.{name}")
        self.things[name] = Thing(name, self._name_of(driver), own, labels, self._host(driver, argv), capability)

    def _driver(self, name: str, config: dict[str, Any]) -> tuple[str, list[str] | None]:
        """A built-in driver's name, or the path of a Python file, or the name of a program in any language."""
        driver, argv = config["driver"], config.get("command") if config["driver"] != COMMAND else None
        if driver.endswith(".py"):
            return str((self._loaded.path.parent / driver).resolve()), None
        if argv is None:
            return driver, None
        if not isinstance(argv, list) or not argv or not all(isinstance(part, str) for part in argv):
            raise ConfigError("a list of words is expected", where=f"{self._loaded.path}: devices.{name}.command")
        program = self._loaded.path.parent / argv[0]
        return driver, [str(program.resolve()) if "/" in argv[0] else argv[0], *argv[1:]]

    @staticmethod
    def _name_of(driver: str) -> str:
        return Path(driver).stem if driver.endswith(".py") else driver

    def _host(self, driver: str, argv: list[str] | None) -> Host:
        if driver not in self._hosts:
            self._hosts[driver] = Host(
                driver,
                argv,
                self._loaded.run_dir,
                on_state=self._memory.state,
                on_event=self._on_event,
                on_output=self._on_output,
            )
        return self._hosts[driver]

    # life

    async def start(self) -> None:
        """Start all hosts, probe and open all devices; those of different hosts at once. Returns when all have said
        something; a host that could not be started is tried again later.
        """
        await asyncio.gather(*(self._start_host(driver, host) for driver, host in self._hosts.items()))

    async def _start_host(self, driver: str, host: Host) -> None:
        mine = [thing for thing in self.things.values() if thing.host is host]
        while True:
            try:
                await host.start()
                self._descriptions[self._name_of(driver)] = await host.describe()
                break
            except EdgePandaError as error:
                log.error("driver %s cannot be used: %s [%s]", driver, error, error.code)
                for thing in mine:
                    thing.seen = Seen(None, error.message, error.cure)
                self._on_change()
                await asyncio.sleep(RETRY)
            except Exception as error:
                log.exception("driver %s cannot be used", driver)
                for thing in mine:
                    thing.seen = Seen(None, f"its host cannot be started: {error}", "the node's log has the details")
                self._on_change()
                await asyncio.sleep(RETRY)
        for thing in mine:
            await self._open(thing)
        self._on_change()

    async def _open(self, thing: Thing) -> None:
        clash = self._clash(thing)
        if clash is not None:
            log.error("%s cannot be used: %s [%s]", thing.name, clash.problem, clash.code)
            thing.seen = clash
            return
        try:
            probe = await thing.host.probe(thing.config)
            thing.seen = Seen(probe)
            if probe.usable:
                await thing.host.open(thing.name, thing.config, self._known(thing))
            else:
                log.warning("%s cannot be used: %s; %s", thing.name, probe.reason, probe.cure)
        except EdgePandaError as error:
            log.error("%s cannot be used: %s [%s]", thing.name, error, error.code)
            thing.seen = Seen(None, error.message, error.cure)

    def _clash(self, thing: Thing) -> Seen | None:
        """Why it may not be opened: one of its lines belongs to a device that was opened before."""
        mine = self._owner(thing)
        if not declared_lines(mine):
            return None
        from edgepanda.node.scan.gpio import header_chip

        others = [self._owner(each) for each in self.things.values() if each is not thing and each.seen.probe]
        clash = find_clash(mine, others, header_chip())
        if clash is None:
            return None
        return Seen(
            None, str(clash), f"`edgepanda device set {thing.name} {clash.key}=...` names another", "pin_conflict"
        )

    def _owner(self, thing: Thing) -> Owner:
        description = self._descriptions.get(thing.driver)
        return Owner(thing.name, thing.config, description.device if description else None)

    def _known(self, thing: Thing) -> dict[str, Any] | None:
        return self._memory.known(thing.name) if self.remembers(thing.name) else None

    async def close(self) -> None:
        """Bring every device to its safe state and end the hosts."""
        await asyncio.gather(*(host.close() for host in self._hosts.values()), return_exceptions=True)

    # questions

    def remembers(self, name: str) -> bool:
        """True if the node keeps this device's position."""
        description = self._descriptions.get(self.things[name].driver)
        return description is not None and description.remembers

    def attaches(self, name: str) -> bool:
        """True if its work outlives its host, and a repeated call joins it."""
        description = self._descriptions.get(self.things[name].driver)
        return description is not None and description.attaches

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

    async def call(self, name: str, action: str, args: dict[str, Any], **rest: Any) -> CallResult:
        """Let the device do it (see `Host.call`). Raises `DriverError`."""
        thing = self.things.get(name)
        if thing is None:
            raise DriverError(f"this node has no device {name!r}", code="unavailable", where=name)
        return await thing.host.call(name, action, args, **rest)

    async def probe(self, name: str) -> Probe:
        """What its driver says of a device now; changes nothing. Raises `EdgePandaError`: `unknown_device`, and
        `DriverError`.
        """
        thing = self.things.get(name)
        if thing is None:
            known = ", ".join(sorted(self.things)) or "none"
            raise EdgePandaError(
                f"this node has no device {name!r}", code="unknown_device", where="device", cure=f"it has: {known}"
            )
        return await thing.host.probe(thing.config)

    async def cancel(self, name: str, task: str, attempt: int) -> bool:
        """Stop a running call; True if there was one."""
        thing = self.things.get(name)
        return thing is not None and await thing.host.cancel(task, attempt)

    def card(self, *, node: str, revision: int, incarnation: int) -> Card:
        """The node's card as things stand, but for its hardware."""
        settings = self._loaded.require_node()
        devices: dict[str, Device] = {}
        capabilities: dict[str, Capability] = {}
        for name, thing in self.things.items():
            own = cards.own_action(thing.seen)
            if not thing.capability:
                devices[name] = cards.as_device(thing.driver, thing.seen, thing.labels)
            elif own is not None:
                capabilities[name] = cards.as_capability(own, thing.seen, thing.labels)
            else:
                hidden = Action(tier=2, replay="unsafe", description="its driver has said nothing yet")
                capabilities[name] = cards.as_capability(hidden, thing.seen, thing.labels)
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
