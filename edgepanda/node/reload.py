"""Taking up an edited configuration while the node runs, and looking again at what could not be used."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from edgepanda.config_reload import log_changes, read_again
from edgepanda.model.card import Capability, Card, Device
from edgepanda.model.config import Loaded
from edgepanda.node.configured import Change, configured
from edgepanda.node.devices import Devices
from edgepanda.node.inventory import Inventory
from edgepanda.node.methods import converted
from edgepanda.wire.requests import NoParams

log = logging.getLogger("edgepanda.node")

TABLES = ("site", "broker", "node", "devices", "capabilities")  # what a node reads
SETTLED_WITHIN = 12.0  # seconds that an answer waits for devices: longer than a driver may take to open one


class State(msgspec.Struct, frozen=True):
    """How one device or capability stands, as on the card."""

    state: str
    reason: str = ""
    cure: str = ""


class Reloaded(msgspec.Struct, frozen=True):
    """What a reload has done: keys that were taken up, keys that wait for a restart, what became of devices, and how
    those stand. A device that still shows `problem` with work on it changes when that has ended.
    """

    config: str
    taken: tuple[str, ...]
    restart: tuple[str, ...]
    devices: dict[str, Change]
    states: dict[str, State]


class Rescan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rescan`. `forget`: hardware that is missing goes from the card."""

    forget: bool = False


class Rescanned(msgspec.Struct, frozen=True):
    """How all devices and capabilities stand after a new look."""

    revision: int
    states: dict[str, State]


class Reloader:
    """Reads the configuration again; one at a time."""

    def __init__(
        self,
        loaded: Loaded,
        devices: Devices,
        inventory: Inventory,
        *,
        on_taken: Callable[[Loaded], None],
        card: Callable[[], Card],
    ) -> None:
        """`on_taken` hears of the configuration that is in effect from now on; `card` gives the present card."""
        self._loaded, self._devices, self._inventory = loaded, devices, inventory
        self._on_taken, self._card = on_taken, card
        self._turn = asyncio.Lock()

    async def reload(self, params: dict[str, Any]) -> Reloaded:
        """Take up what needs no restart. Raises `ConfigError`, and then nothing has changed; `malformed`."""
        converted(params, NoParams, "reload")
        async with self._turn:
            edited = await asyncio.to_thread(read_again, self._loaded, TABLES)
            things = configured(edited.new)
            self._loaded = edited.in_effect
            self._on_taken(self._loaded)
            devices = await self._devices.become(things, within=SETTLED_WITHIN)
            log_changes(log, edited)
            states = {name: state for name, state in _states(self._card()).items() if name in devices}
            return Reloaded(str(edited.new.path), edited.changes.taken, edited.changes.restart, devices, states)

    async def rescan(self, params: dict[str, Any]) -> Rescanned:
        """Scan the hardware again, start again the drivers that do not start, probe again what cannot be used.

        Raises `EdgePandaError`: `malformed`, and what `Inventory.rescan` raises.
        """
        asked = converted(params, Rescan, "rescan")
        self._devices.breakers.try_now()
        await asyncio.gather(self._inventory.rescan(forget=asked.forget), self._devices.look_again())
        card = self._card()
        return Rescanned(card.revision, _states(card))


def _states(card: Card) -> dict[str, State]:
    things: dict[str, Device | Capability] = {**card.devices, **card.capabilities}
    return {name: State(thing.state, thing.reason, thing.cure) for name, thing in things.items()}
