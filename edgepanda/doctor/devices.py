"""What each driver says of each device: through the running node, or else by a driver host for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.doctor.finding import Finding, fault, ok, warning
from edgepanda.doctor.patient import Patient
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded

_NODES_OWN = ("driver", "labels", "command")  # keys that are not the driver's


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
    from edgepanda.node.visit import program_of

    folder = loaded.path.parent
    things = [(name, entry, False) for name, entry in loaded.config.devices.items()]
    things += [(name, {"driver": "command", **entry}, True) for name, entry in loaded.config.capabilities.items()]
    groups: dict[str, list[tuple[str, dict[str, Any], bool]]] = {}
    for thing in things:
        groups.setdefault(repr(program_of({"driver": "command"} if thing[2] else thing[1], folder)), []).append(thing)
    asked = await asyncio.gather(*(_visit_driver(group, folder) for group in groups.values()))
    return [facts for group in asked for facts in group]


async def _visit_driver(things: Iterable[tuple[str, dict[str, Any], bool]], folder: Path) -> list[DeviceFacts]:
    """Devices of one driver; a host that does not start is told of each."""
    from edgepanda.node.visit import program_of, visited

    things = list(things)
    _, entry, capability = things[0]
    driver, argv = program_of({"driver": "command"} if capability else entry, folder)
    told: list[DeviceFacts] = []
    try:
        async with visited(driver, argv) as host:
            for name, given, own in things:
                facts = DeviceFacts(name=name, driver=Path(driver).stem, capability=own, by="driver")
                config = {key: value for key, value in given.items() if own or key not in _NODES_OWN}
                try:
                    probe = await host.probe(config)
                    state = "ready" if probe.usable else "unavailable"
                    facts = msgspec.structs.replace(
                        facts, state=state, reason=probe.reason, cure=probe.cure, simulated=probe.simulated
                    )
                except EdgePandaError as error:
                    facts = msgspec.structs.replace(facts, state="problem", reason=error.message, cure=error.cure)
                told.append(facts)
    except EdgePandaError as error:
        rest = [thing for thing in things if thing[0] not in {facts.name for facts in told}]
        told += [
            DeviceFacts(
                name=name,
                driver=Path(driver).stem,
                capability=own,
                state="problem",
                reason=error.message,
                cure=error.cure,
                by="driver",
            )
            for name, _, own in rest
        ]
    return told


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
