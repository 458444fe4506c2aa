"""What `device add`, `set` and `test` share: the driver's own word on a device, its lines, its entry in the file."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.nearest import did_you_mean

if TYPE_CHECKING:
    from edgepanda.cli.common import Settings
    from edgepanda.config_edit import ConfigFile
    from edgepanda.drivers.contract import Description, JsonSchema, Probe
    from edgepanda.model.config import Loaded

ANSWER_WITHIN = 15.0  # seconds: a probe may take 10


class Checked(NamedTuple):
    """A device as it may be written, and what its driver says of it."""

    entry: dict[str, Any]
    description: Description
    probe: Probe


def open_config(settings: Settings) -> tuple[Loaded, ConfigFile]:
    """The configuration, and the same file for changes. Raises `ConfigError`: what is wrong with it, or no node."""
    from edgepanda.config_edit import ConfigFile

    loaded = settings.load()
    loaded.require_node()
    return loaded, ConfigFile(loaded.path)


def line_of(loaded: Loaded, file: ConfigFile, *key: str) -> str:
    """File and line of a key, for an error."""
    from edgepanda.model.config_lines import Lines

    return f"{loaded.path}:{Lines(file.text).of(key)}"


def known_device(loaded: Loaded, name: str) -> dict[str, Any]:
    """A device's entry. Raises `EdgePandaError` (`unknown_device`) with the nearest."""
    devices = loaded.config.devices
    if name in devices:
        return devices[name]
    there = ", ".join(devices) or "none; `edgepanda device add` adds one"
    raise EdgePandaError(
        f"there is no device {name!r}",
        code="unknown_device",
        where=str(loaded.path),
        cure=did_you_mean(name, devices, f"there are: {there}"),
    )


def entry_of(driver: str, program: str, folder: Path) -> dict[str, Any]:
    """The node's keys of a new device. A path that was typed here becomes one from the configuration's folder.

    Raises:
        EdgePandaError: `unknown_driver` with the nearest; `usage`.
    """
    from edgepanda.model.config_types import DRIVERS

    if driver == "command":
        raise EdgePandaError(
            "a command is no device", code="usage", where="command", cure="`edgepanda capability add NAME -- COMMAND`"
        )
    if program:
        words = shlex.split(program)
        if not words:
            raise EdgePandaError("there is no program in it", code="usage", where="--command", cure="name the program")
        return {"driver": driver, "command": [_from(words[0], folder) if "/" in words[0] else words[0], *words[1:]]}
    if driver.endswith(".py"):
        return {"driver": _from(driver, folder)}
    devices = [name for name in DRIVERS if name != "command"]
    if driver not in devices:
        there = f"there is: {', '.join(devices)}; one of your own goes by the path of its .py file, or with --command"
        raise EdgePandaError(
            f"there is no driver {driver!r}",
            code="unknown_driver",
            where="DRIVER",
            cure=did_you_mean(driver, devices, there, cutoff=0.5),
        )
    return {"driver": driver}


def _from(path: str, folder: Path) -> str:
    """As it stands if it is there from the configuration's folder, or is nowhere; else made so that it is."""
    if os.path.isabs(path) or (folder / path).exists() or not Path(path).exists():
        return path
    relative = os.path.relpath(path, folder)
    return os.path.abspath(path) if relative.startswith("..") else f"./{relative}"


async def describe(entry: dict[str, Any], folder: Path, *, user: str = "") -> Description:
    """What a driver says of itself; its host runs as `user`. Raises `DriverError` (`unavailable`) when that does not
    start.
    """
    from edgepanda.node.configured import program_of
    from edgepanda.node.visit import visited

    async with visited(program_of(entry, folder, "devices"), user=user) as host:
        return await host.describe()


async def check_device(
    loaded: Loaded,
    file: ConfigFile,
    name: str,
    node_keys: dict[str, Any],
    values_of: Callable[[JsonSchema], dict[str, Any]],
) -> Checked:
    """Let the driver judge a device; `values_of` makes its own keys from the driver's schema.

    Raises:
        EdgePandaError: `invalid_args` for a value that the driver refuses; `pin_conflict`; `unavailable` for a driver
            that cannot be started. A device that cannot be used is no error here: the probe says so.
    """
    from edgepanda.node.configured import program_of
    from edgepanda.node.visit import visited, visitor

    program = program_of(node_keys, loaded.path.parent, f"devices.{name}")
    async with visited(program, user=visitor(loaded)) as host:
        description = await host.describe()
        values = values_of(description.device)
        await refuse_clash(loaded, file, name, values, description.device)
        probe = await by_node(loaded, node_keys["driver"], values) or await host.probe(values)
    return Checked({**node_keys, **values}, description, probe)


async def by_node(loaded: Loaded, driver: str, values: dict[str, Any]) -> Probe | None:
    """What the running node's own driver says: its user may use what ours may not, and the other way round. None where
    no node runs, or it may not be asked of this driver. Raises `EdgePandaError`: what the driver refuses.
    """
    from edgepanda.cli.local import LocalNode
    from edgepanda.drivers.contract import Probe

    try:
        told = await LocalNode.of(loaded).request("probe", {"driver": driver, "config": values}, within=ANSWER_WITHIN)
    except EdgePandaError as error:
        if error.code in ("no_answer", "unsupported", "unknown_driver", "unknown_device"):
            return None
        raise
    return msgspec.convert(told, Probe)


def save(file: ConfigFile) -> None:
    """Save it, if a node can take it up as a whole. Raises `ConfigError`; the file is as it was, then."""
    from edgepanda.model.config import load_text
    from edgepanda.node.configured import configured

    configured(load_text(file.text, file.path))
    file.save()


async def refuse_clash(loaded: Loaded, file: ConfigFile, name: str, values: dict[str, Any], schema: JsonSchema) -> None:
    """Raises `EdgePandaError` (`pin_conflict`) that names both devices and the other's line in the file."""
    from edgepanda.drivers.gpio import Owner, declared_lines, find_clash
    from edgepanda.node.scan.gpio import header_chip

    mine = Owner(name, values, schema)
    if not declared_lines(mine):
        return
    clash = find_clash(mine, await _others(loaded, name), header_chip())
    if clash is None:
        return
    other = line_of(loaded, file, "devices", clash.other, clash.other_key.partition("[")[0])
    raise EdgePandaError(
        f"{name}: {clash}",
        code="pin_conflict",
        where=f"{other}: devices.{clash.other}.{clash.other_key}",
        cure=f"give {name} another {clash.key}, or first: edgepanda device set {clash.other} {clash.other_key}=...",
        details={"device": name, "line": str(clash.line), "other": clash.other, "other_line": str(clash.other_line)},
    )


async def _others(loaded: Loaded, name: str) -> list[Any]:
    """The other devices with the schemas of their drivers; one whose driver says nothing here has no known lines."""
    from edgepanda.drivers.gpio import Owner
    from edgepanda.node.configured import program_of
    from edgepanda.node.visit import visitor

    entries = {other: entry for other, entry in loaded.config.devices.items() if other != name}
    programs = {other: program_of(entry, loaded.path.parent, f"devices.{other}") for other, entry in entries.items()}
    distinct = {program: entries[other] for other, program in programs.items()}
    told = await asyncio.gather(
        *(describe(entry, loaded.path.parent, user=visitor(loaded)) for entry in distinct.values()),
        return_exceptions=True,
    )
    schemas = {
        program: answer.device
        for program, answer in zip(distinct, told, strict=True)
        if isinstance(answer, msgspec.Struct)
    }
    return [Owner(other, own_values(entry), schemas.get(programs[other])) for other, entry in entries.items()]


def own_values(entry: dict[str, Any]) -> dict[str, Any]:
    """The keys of a device that are its driver's."""
    from edgepanda.node.configured import RESERVED

    return {key: value for key, value in entry.items() if key not in RESERVED}


def refuse_unusable(name: str, probe: Probe) -> None:
    """Raises `EdgePandaError` (`device_unusable`) with the driver's reason and cure."""
    raise EdgePandaError(
        f"{name} cannot be used: {probe.reason or 'its driver does not say why'}",
        code="device_unusable",
        where=f"devices.{name}",
        cure=f"{probe.cure + '; ' if probe.cure else ''}nothing was written; --anyway writes it all the same",
    )
