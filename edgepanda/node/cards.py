"""From what drivers say of themselves to the node's card. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from edgepanda.drivers.contract import ActionSpec, Description, Probe
from edgepanda.model.card import Action, Availability, Capability, Card, Device, Driver
from edgepanda.model.ids import digest

Shown = TypeVar("Shown", Device, Capability)


class Seen(msgspec.Struct, frozen=True):
    """What is known of one configured thing: its probe, or the reason why there is none."""

    probe: Probe | None = None
    problem: str = ""
    cure: str = ""
    code: str = ""  # of the problem, where it has one of its own


def as_action(spec: ActionSpec) -> Action:
    """A driver's action as the card shows it."""
    return Action(
        description=spec.description,
        args=spec.args,
        returns=spec.returns,
        tier=spec.tier,
        replay=spec.replay,
        on_busy=spec.on_busy,
        timeout=spec.timeout,
        max_attempts=spec.max_attempts,
        retry_backoff=spec.retry_backoff,
        spoken=spec.spoken,
        home=spec.home,
    )


def as_driver(description: Description) -> Driver:
    """A driver as the card shows it."""
    actions = {name: as_action(spec) for name, spec in description.actions.items()}
    return Driver(version=description.version, digest=digest(description)[:16], actions=actions)


def as_device(driver: str, seen: Seen, labels: dict[str, str]) -> Device:
    """A device as the card shows it: `probing` until its driver has said something."""
    probe = seen.probe
    if probe is None:
        state: Availability = "problem" if seen.problem else "probing"
        return Device(driver=driver, state=state, reason=seen.problem, cure=seen.cure, labels=labels)
    return Device(
        driver=driver,
        state="ready" if probe.usable else "unavailable",
        reason=probe.reason,
        cure=probe.cure,
        simulated=probe.simulated,
        labels=labels,
        facts=probe.facts,
        overrides=probe.limits,
    )


def left_alone(thing: Shown, problem: tuple[str, str]) -> Shown:
    """A device or command that has failed too often, with reason and cure; what has a problem already keeps its own."""
    if thing.state != "ready":
        return thing
    return msgspec.structs.replace(thing, state="problem", reason=problem[0], cure=problem[1])


def as_capability(action: Action, seen: Seen, labels: dict[str, str]) -> Capability:
    """A command of the user's own as the card shows it."""
    device = as_device("command", seen, labels)
    return Capability(action=action, state=device.state, reason=device.reason, cure=device.cure, labels=labels)


def own_action(seen: Seen) -> Action | None:
    """The action of a command of the user's own, once its driver has made it from the configuration."""
    if seen.probe is None or not seen.probe.actions:
        return None
    spec = seen.probe.actions.get("run")
    return as_action(spec) if spec is not None else None


def same(one: Card, other: Card) -> bool:
    """True if two cards differ in their revision at most."""
    return msgspec.structs.replace(one, revision=0) == msgspec.structs.replace(other, revision=0)


def claimed(card: Card, *, actuate: bool = True) -> tuple[str, ...]:
    """The capabilities that the node can serve now: those of devices and commands that are ready. `actuate=False`:
    those only that observe (tier 0).
    """
    names = {
        f"{device.driver}.{name}"
        for device in card.devices.values()
        if device.state == "ready"
        for name, action in card.drivers.get(device.driver, Driver()).actions.items()
        if actuate or action.tier == 0
    }
    names |= {
        name for name, own in card.capabilities.items() if own.state == "ready" and (actuate or own.action.tier == 0)
    }
    return tuple(sorted(names))
