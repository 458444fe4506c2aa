"""The capability card: what a node says that it is and can do."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MAX_ATTEMPTS = 3  # of a `safe` task whose capability and submit name no other number
RETRY_BACKOFF = 1.0  # seconds before the second attempt; doubled before each further one

Replay = Literal["safe", "unsafe"]
OnBusy = Literal["preempt", "queue", "refuse"]
Availability = Literal["probing", "ready", "unavailable", "problem"]


class Action(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one device can do, as its driver describes it."""

    description: str = ""
    args: dict[str, Any] = {}  # JSON Schema of an object; units stand in the members' `unit`
    returns: dict[str, Any] | None = None
    tier: int
    replay: Replay
    on_busy: OnBusy = "queue"
    timeout: float = 30.0  # seconds, when the task names none
    max_attempts: int = MAX_ATTEMPTS  # of a safe task that names none
    retry_backoff: float = RETRY_BACKOFF  # seconds
    spoken: tuple[str, ...] = ()
    home: dict[str, Any] = {}


class Driver(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A driver's schemas, once for all its devices."""

    version: str = ""
    digest: str = ""
    actions: dict[str, Action] = {}


class Device(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One configured thing; `overrides` holds only what differs from its driver: action, argument, schema members."""

    driver: str
    state: Availability = "probing"
    reason: str = ""
    cure: str = ""
    simulated: bool = False
    labels: dict[str, str] = {}
    facts: dict[str, Any] = {}
    overrides: dict[str, dict[str, dict[str, Any]]] = {}


class Capability(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A capability that needs no device: a command of the user's own."""

    action: Action
    state: Availability = "probing"
    reason: str = ""
    cure: str = ""
    labels: dict[str, str] = {}


class Card(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node's description of itself. A change makes a new, higher revision."""

    node: str
    revision: int
    incarnation: int  # how often this node's daemon has started: orders cards of different starts
    software: str = ""
    description: str = ""  # a person's word
    hardware: dict[str, Any] = {}
    labels: dict[str, str] = {}
    slots: int = 1
    drivers: dict[str, Driver] = {}
    devices: dict[str, Device] = {}
    capabilities: dict[str, Capability] = {}


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One way to carry out a capability: on a node, and with a device where the capability has one."""

    node: str
    capability: str
    device: str | None
    action_name: str
    action: Action
    state: Availability
    reason: str
    labels: dict[str, str]
    cure: str = ""

    @property
    def place(self) -> str:
        """`node` or `node/device`: how a person names this offer."""
        return self.node if self.device is None else f"{self.node}/{self.device}"


def narrowed(action: Action, overrides: dict[str, dict[str, Any]]) -> Action:
    """The action with a device's own limits laid over its arguments' schema."""
    if not overrides:
        return action
    properties = {
        name: {**schema, **overrides.get(name, {})} for name, schema in action.args.get("properties", {}).items()
    }
    return msgspec.structs.replace(action, args={**action.args, "properties": properties})


def offers(card: Card) -> list[Offer]:
    """All that a card offers, its devices' actions first."""
    found = [
        Offer(
            node=card.node,
            capability=f"{device.driver}.{action_name}",
            device=name,
            action_name=action_name,
            action=narrowed(action, device.overrides.get(action_name, {})),
            state=device.state,
            reason=device.reason,
            cure=device.cure,
            labels={**card.labels, **device.labels},
        )
        for name, device in card.devices.items()
        for action_name, action in card.drivers.get(device.driver, Driver()).actions.items()
    ]
    found += [
        Offer(
            node=card.node,
            capability=name,
            device=None,
            action_name="run",
            action=own.action,
            state=own.state,
            reason=own.reason,
            cure=own.cure,
            labels={**card.labels, **own.labels},
        )
        for name, own in card.capabilities.items()
    ]
    return found
