"""`probe` on the local socket: what a driver says of a device, in the surroundings of the node; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from edgepanda.drivers.contract import Probe
from edgepanda.errors import EdgePandaError
from edgepanda.model.config_types import DRIVERS
from edgepanda.node.configured import Program
from edgepanda.node.methods import converted

if TYPE_CHECKING:
    from edgepanda.node.devices import Thing


class Probing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device or capability of the node; or a built-in driver with the configuration of a device that may come."""

    device: str = ""
    driver: str = ""
    config: dict[str, Any] = {}


async def probe(things: Mapping[str, Thing], params: dict[str, Any]) -> Probe:
    """Raises `EdgePandaError`: `malformed`, `unknown_device`, `unknown_driver`, and what the driver says.

    Only built-in drivers by their name: whoever may ask here may not choose what the node's user runs.
    """
    asked = converted(params, Probing, "probe")
    if asked.driver:
        return await _of_driver(things, asked)
    thing = things.get(asked.device)
    if thing is None:
        known = ", ".join(sorted(things)) or "none"
        raise EdgePandaError(
            f"this node has no device {asked.device[:80]!r}",
            code="unknown_device",
            where="device",
            cure=f"it has: {known}",
        )
    return await thing.host.probe(thing.configured.config)


async def _of_driver(things: Mapping[str, Thing], asked: Probing) -> Probe:
    if asked.driver not in DRIVERS:
        raise EdgePandaError(
            f"{asked.driver[:80]!r} is no built-in driver",
            code="unknown_driver",
            where="driver",
            cure=f"there are: {', '.join(DRIVERS)}",
        )
    program = Program(asked.driver)
    running = (thing.host for thing in things.values() if thing.configured.program == program and thing.host.started)
    host = next(running, None)
    if host is not None:
        return await host.probe(asked.config)
    from edgepanda.node.visit import visited

    async with visited(program) as visit:
        return await visit.probe(asked.config)
