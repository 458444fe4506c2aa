"""`device`: the devices of this machine's node: its group of commands, and the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.device_add import add_command
from edgepanda.cli.device_change import remove_command, set_command
from edgepanda.cli.device_test import test_command
from edgepanda.cli.out import emit, say, table

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded

_PLACES = ("pin", "port", "file", "path", "camera", "address", "device", "url", "host")
"""Keys that tell where a device is, the first that it has."""

_RETURNS = "Exit codes: 0 done, 2 the configuration or the command is wrong."


@command(
    "list",
    short_help="The devices, where they are, and their state",
    timeout_help="",
    examples="edgepanda device list\nedgepanda device list --json",
    returns=_RETURNS,
)
def _list(settings: Settings) -> None:
    """List the devices of the configuration with what this machine's running node says of them."""
    import asyncio

    from edgepanda.cli.local import LocalNode

    loaded = settings.load()
    card = asyncio.run(LocalNode.of(loaded).card())
    rows = listed(loaded, card)
    if settings.json:
        emit({"config": str(loaded.path), "node": "running" if card is not None else "not running", "devices": rows})
        return
    if not rows:
        say(f"{loaded.path} has no devices; add one: edgepanda device add DRIVER NAME --help")
        return
    shown = [(row["name"], row["driver"], row["where"], row["state"], _why(row)) for row in rows]
    table(("NAME", "DRIVER", "WHERE", "STATE", "REASON"), shown)


def listed(loaded: Loaded, card: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A row for each device of the configuration, and for those that only the running node has. Pure."""
    seen: dict[str, Any] = (card or {}).get("devices", {})
    rows = []
    for name, entry in loaded.config.devices.items():
        told = seen.get(name)
        row = {
            "name": name,
            "driver": entry["driver"],
            "where": where_of(entry),
            "simulated": bool(entry.get("simulate")),
        }
        if card is None:
            rows.append({**row, "state": "node not running"})
        elif told is None:
            rows.append({**row, "state": "not loaded", "cure": "the node has not read it yet: SIGHUP has it do so"})
        else:
            rows.append(
                {**row, **{key: told[key] for key in ("reason", "cure") if told.get(key)}, "state": _state(told)}
            )
    gone = [name for name in seen if name not in loaded.config.devices]
    rows += [
        {"name": name, "driver": seen[name]["driver"], "where": "", "simulated": False, "state": "not in the file"}
        for name in gone
    ]
    return rows


def _state(told: dict[str, Any]) -> str:
    return str(told.get("state", "probing"))


def _why(row: dict[str, Any]) -> str:
    return "; ".join(row[key] for key in ("reason", "cure") if row.get(key)) or (
        "simulated" if row["simulated"] else ""
    )


def where_of(entry: dict[str, Any]) -> str:
    """Where a device is, as its configuration tells: `GPIO12`, `gpiochip1 line 7`, a port. Pure."""
    from edgepanda.drivers.gpio import MARK, Owner, declared_lines

    marked = {"properties": {"pin": {MARK: True}}}
    lines = declared_lines(Owner("", entry, marked))
    if lines:
        return ", ".join(str(line) for line in lines.values())
    return next((str(entry[key]) for key in _PLACES if key in entry), "")


device_command = click.Group(
    "device",
    no_args_is_help=False,  # then it is an error that names the help
    commands={
        "list": _list,
        "add": add_command,
        "test": test_command,
        "set": set_command,
        "remove": remove_command,
    },
    help="The devices of this machine's node: list, add, test, change or remove them.",
)
