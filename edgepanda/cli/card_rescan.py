"""`card rescan`: a node looks at its hardware again, and tries once more what could not be used."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from edgepanda.cli.common import Settings, ask, command, node_argument, quiet
from edgepanda.cli.out import coloured, emit, hint, say

WITHIN = 40.0  # seconds: the node scans for 20 at most, and a driver may take 10 to open a device


class _Asked(msgspec.Struct, frozen=True):
    forget: bool


@command(
    "rescan",
    short_help="Look at the hardware again, and at what cannot be used",
    examples="edgepanda card rescan\nedgepanda card rescan --forget\nedgepanda card rescan shed",
)
@node_argument
@click.option("--forget", is_flag=True, help="Take hardware that is gone off the card; else it stays as unavailable.")
def rescan_command(settings: Settings, node: str | None, forget: bool) -> None:
    """Have this machine's node, or NODE, scan its hardware again and probe again what could not be used.

    What has changed since is told, and the card gets a new revision. What was found before and is missing is shown as
    unavailable until it is back, or until --forget.
    """
    within = settings.timeout or WITHIN
    if node is None:
        told = asyncio.run(_local(settings, forget, within))
    else:
        answer = ask(settings, lambda client: client.ask_node(node, "rescan", _Asked(forget), within=within))
        told = {"name": node, **answer}
    if settings.json:
        emit(told)
    else:
        _show(told)


async def _local(settings: Settings, forget: bool, within: float) -> dict[str, Any]:
    from edgepanda.cli.hardware_view import changes
    from edgepanda.cli.local import LocalNode

    quiet(settings)
    loaded = settings.load()
    loaded.require_node()
    local = LocalNode.of(loaded)
    before = await local.request("status", {}, within=within)
    answer = await local.request("rescan", {"forget": forget}, within=within)
    after = await local.request("status", {}, within=within)
    hardware = [(status["card"] or {}).get("hardware", {}) for status in (before, after)]
    return {"name": after["name"], **answer, "changes": changes(*hardware)}


def _show(told: dict[str, Any]) -> None:
    say(f"{told['name']}: scanned, card {told['revision']}")
    for line in told.get("changes", ()):
        say(f"  {line}")
    if told.get("changes") == []:
        say("  the hardware is as it was")
    for name, state in told["states"].items():
        why = "; ".join(state[key] for key in ("reason", "cure") if state.get(key))
        say(f"  {name}  {coloured(state['state'])}" + (f": {why}" if why else ""))
    if "changes" not in told:
        hint(f"its hardware: edgepanda card show {told['name']}")
