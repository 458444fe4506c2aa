"""What a configuration says of a node's devices, and what differs between two of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgepanda.model.config import ConfigError, Loaded

COMMAND = "command"  # the driver of capabilities of the user's own
RESERVED = ("driver", "labels", "command", "link_loss")  # keys of a device that are the node's and not its driver's

Change = Literal["added", "changed", "relabelled", "removed"]


class Program(msgspec.Struct, frozen=True):
    """What runs as the host of a driver: a built-in driver's name or the path of a .py file, or a name with `argv`."""

    source: str
    argv: tuple[str, ...] = ()

    @property
    def driver(self) -> str:
        """The driver's name on the card."""
        return Path(self.source).stem if self.source.endswith(".py") else self.source


class Configured(msgspec.Struct, frozen=True):
    """One device, or one capability of the user's own (which is a device of the `command` driver)."""

    name: str
    program: Program
    config: dict[str, Any]  # its driver's keys
    labels: dict[str, str]
    capability: bool = False
    link_loss: float = 0.0  # seconds without its commander until its safe state; 0: never


def configured(loaded: Loaded) -> dict[str, Configured]:
    """All devices and capabilities of a configuration; a capability's name has a dot, so no device has it.

    Raises `ConfigError` for what only shows in the whole.
    """
    things: dict[str, Configured] = {}
    for name, config in loaded.config.devices.items():
        things[name] = _thing(loaded, name, config, capability=False)
    for name, config in loaded.config.capabilities.items():
        things[name] = _thing(loaded, name, {"driver": COMMAND, **config}, capability=True)
    _one_program_each(loaded, things)
    return things


def differences(old: Mapping[str, Configured], new: Mapping[str, Configured]) -> dict[str, Change]:
    """What becomes of each thing that is not as it was."""
    changes: dict[str, Change] = {name: "removed" for name in old if name not in new}
    for name, thing in new.items():
        before = old.get(name)
        if before is None:
            changes[name] = "added"
        elif _opened_as(before) != _opened_as(thing):
            changes[name] = "changed"
        elif before != thing:
            changes[name] = "relabelled"
    return changes


def _opened_as(thing: Configured) -> Configured:
    """Without what the node alone knows of it, which needs no opening anew."""
    return msgspec.structs.replace(thing, labels={}, link_loss=0.0)


def _thing(loaded: Loaded, name: str, config: dict[str, Any], *, capability: bool) -> Configured:
    labels = {str(k): str(v) for k, v in dict(config.get("labels", {})).items()}
    own = {key: value for key, value in config.items() if key not in RESERVED or (capability and key == "command")}
    program = program_of(config, loaded.path.parent, f"{loaded.path}: devices.{name}")
    return Configured(name, program, own, labels, capability, 0.0 if capability else config.get("link_loss", 0.0))


def program_of(config: Mapping[str, Any], folder: Path, where: str) -> Program:
    """What runs as the host of a device's driver. `folder`: that of the configuration, which paths are relative to;
    `where`: the device's place in it. Raises `ConfigError`.
    """
    driver, argv = config["driver"], config.get("command") if config["driver"] != COMMAND else None
    if driver.endswith(".py"):
        return Program(str((folder / driver).resolve()))
    if argv is None:
        return Program(driver)
    if not isinstance(argv, list) or not argv or not all(isinstance(part, str) for part in argv):
        raise ConfigError(
            "a list of words is expected",
            where=f"{where}.command",
            cure='write it like command = ["./dimmer"]',
        )
    program = str((folder / argv[0]).resolve()) if "/" in argv[0] else argv[0]
    return Program(driver, (program, *argv[1:]))


def _one_program_each(loaded: Loaded, things: Mapping[str, Configured]) -> None:
    """The card shows a driver once, by its name."""
    first: dict[str, Configured] = {}
    for thing in things.values():
        other = first.setdefault(thing.program.driver, thing)
        if other.program != thing.program:
            raise ConfigError(
                f"{other.name!r} and {thing.name!r} name different programs as the driver {thing.program.driver!r}",
                where=f"{loaded.path}: devices.{thing.name}",
                cure="give the other program's driver another name",
            )
