"""What each driver says of each device: through the running node, or else by a driver host for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from edgepanda.doctor.finding import Finding, fault, ok, warning
from edgepanda.doctor.patient import Patient
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded

if TYPE_CHECKING:
    from edgepanda.node.configured import Configured
    from edgepanda.node.hosts import Host


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One device or capability. `state` as on the card; `by`: who told."""

    name: str
    driver: str
    capability: bool = False
    state: str = "probing"
    reason: str = ""
    cure: str = ""
    simulated: bool = False
    by: str = "node"

    @property
    def where(self) -> str:
        """Its place in the configuration."""
        return f"capabilities.{self.name}" if self.capability else f"devices.{self.name}"


async def read(patient: Patient) -> list[DeviceFacts]:
    """All that the configuration has."""
    seen = await patient.node
    if seen.status is not None and seen.status.get("card"):
        return from_card(seen.status["card"])
    if patient.loaded is None or seen.denied or seen.status is not None or seen.error is not None:
        return []  # a node has the devices, and nobody else asks them then
    return await _visit(patient.loaded)


def from_card(card: dict[str, Any]) -> list[DeviceFacts]:
    """What the node says. Pure."""
    return [
        DeviceFacts(
            name=name,
            driver=str(thing.get("driver", "command")),
            capability=kind == "capabilities",
            state=thing.get("state", "probing"),
            reason=thing.get("reason", ""),
            cure=thing.get("cure", ""),
            simulated=bool(thing.get("simulated")),
        )
        for kind in ("devices", "capabilities")
        for name, thing in card.get(kind, {}).items()
    ]


async def _visit(loaded: Loaded) -> list[DeviceFacts]:
    from edgepanda.node.configured import configured
    from edgepanda.node.visit import visitor

    programs: dict[Any, list[Configured]] = {}
    for thing in configured(loaded).values():
        programs.setdefault(thing.program, []).append(thing)
    asked = await asyncio.gather(*(_visit_driver(things, visitor(loaded)) for things in programs.values()))
    return [facts for group in asked for facts in group]


async def _visit_driver(things: list[Configured], user: str) -> list[DeviceFacts]:
    """Devices of one driver; a host that does not start is told of each."""
    from edgepanda.node.visit import visited

    program = things[0].program
    facts = {
        thing.name: DeviceFacts(name=thing.name, driver=program.driver, capability=thing.capability, by="driver")
        for thing in things
    }
    waiting = list(facts)
    try:
        async with visited(program, user=user) as host:
            for thing in things:
                facts[thing.name] = await _probed(host, thing, facts[thing.name])
                waiting.remove(thing.name)
    except EdgePandaError as error:
        facts |= {name: _problem(facts[name], error) for name in waiting}
    return list(facts.values())


async def _probed(host: Host, thing: Configured, facts: DeviceFacts) -> DeviceFacts:
    try:
        probe = await host.probe(thing.config)
    except EdgePandaError as error:
        return _problem(facts, error)
    return msgspec.structs.replace(
        facts,
        state="ready" if probe.usable else "unavailable",
        reason=probe.reason,
        cure=probe.cure,
        simulated=probe.simulated,
    )


def _problem(facts: DeviceFacts, error: EdgePandaError) -> DeviceFacts:
    return msgspec.structs.replace(facts, state="problem", reason=error.message, cure=error.cure)


def judge(devices: Iterable[DeviceFacts]) -> list[Finding]:
    """A device that cannot be used is a fault, with its driver's own reason and cure."""
    found, well = [], []
    for device in devices:
        if device.state == "ready":
            well.append(f"{device.name}{' (simulated)' if device.simulated else ''}")
        elif device.state == "probing":
            cure = "give the command again in a moment"
            told = f"its driver {device.driver} has not said anything yet"
            found.append(warning(code="doctor_not_checked", where=device.where, found=told, cure=cure))
        else:
            told = f"cannot be used: {device.reason or 'its driver gives no reason'}"
            cure = device.cure or f"look at the node's log for what the driver {device.driver} says"
            found.append(fault(code="device_fault", where=device.where, found=told, cure=cure))
    if well:
        found.append(ok(where="devices", found=f"ready: {', '.join(well)}"))
    return found
