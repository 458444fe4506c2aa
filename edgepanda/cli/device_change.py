"""`device set` and `device remove`: a device of the configuration, changed or gone, and the running node told."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from edgepanda.cli.common import Settings, command, confirmed, label_option, quiet
from edgepanda.cli.device_add import RETURNS, write
from edgepanda.cli.out import emit, hint, say
from edgepanda.cli.reload import Taken, option_of, take_up, tell
from edgepanda.errors import EdgePandaError
from edgepanda.model.nearest import did_you_mean


@command(
    "set",
    short_help="Change what its driver is told: NAME KEY=VALUE",
    timeout_help="",
    context_settings={"ignore_unknown_options": True},
    examples="""
    edgepanda device set pan pin=13
    edgepanda device set pan --max-angle 45 --speed 60deg/s
    edgepanda device set pan --unset max_speed --label room=attic
    """,
    returns=RETURNS,
)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...", type=click.UNPROCESSED)
@click.option("--unset", multiple=True, metavar="KEY", help="Back to the driver's default. Repeatable.")
@label_option("A label that tasks may ask for; NAME= takes it away.")
@click.option("--anyway", is_flag=True, help="Write it although its driver says that it cannot be used now.")
def set_command(
    settings: Settings,
    name: str,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    labels: dict[str, str],
    anyway: bool,
) -> None:
    """Change what a device's driver is told, by the same options as in `edgepanda device add`.

    Checked, probed and written in the same way; the running node closes the device once its work has ended and opens
    it anew. `edgepanda device add DRIVER --help` lists the keys.
    """
    from edgepanda.cli.device_work import check_device, known_device, open_config, own_values
    from edgepanda.cli.driver_options import read_words, require
    from edgepanda.node.configured import RESERVED

    quiet(settings)
    loaded, file = open_config(settings)
    old = known_device(loaded, name)
    node_keys = {key: value for key, value in old.items() if key in RESERVED}
    if labels:
        merged = {key: value for key, value in {**old.get("labels", {}), **labels}.items() if value}
        node_keys = {**node_keys, "labels": merged} if merged else without(node_keys, ("labels",), where=name)

    def values_of(schema: dict[str, Any]) -> dict[str, Any]:
        values = without(own_values(old), unset, where=f"devices.{name}")
        values |= read_words(words, schema)
        require(values, schema)
        return values

    checked = asyncio.run(check_device(loaded, file, name, node_keys, values_of))
    if checked.entry == old:
        _nothing(settings, name, old)
        return
    write(settings, loaded, file, name, checked, anyway=anyway, what="changed")


def without(values: dict[str, Any], unset: tuple[str, ...], *, where: str) -> dict[str, Any]:
    """The values without some of them. Raises `EdgePandaError` (`config_key_unknown`) for one not there. Pure."""
    left = dict(values)
    for word in unset:
        key = word.removeprefix("--").replace("-", "_")
        key = key if key in left else word
        if key not in left:
            cure = did_you_mean(key, left, f"set are: {', '.join(left) or 'none'}")
            raise EdgePandaError(f"{word!r} is not set", code="config_key_unknown", where=where, cure=cure)
        del left[key]
    return left


def _nothing(settings: Settings, name: str, entry: dict[str, Any]) -> None:
    if settings.json:
        emit({"device": name, "entry": entry, "changed": False})
    else:
        say(f"{name} is as it was")


@command(
    "remove",
    short_help="Take a device away: NAME",
    timeout_help="",
    examples="edgepanda device remove pan\nedgepanda device remove pan --yes",
    returns="Exit codes: 0 removed; 1 the file cannot be written: nothing was changed; 2 there is no such device; "
    "130 not confirmed.",
)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_command(settings: Settings, name: str, yes: bool) -> int | None:
    """Take a device out of the configuration; it asks before.

    The running node brings the device to its safe state and closes it, once what runs on it has ended. The file's other
    lines and comments stay as they are.
    """
    from edgepanda.cli.device import where_of
    from edgepanda.cli.device_work import known_device, open_config

    quiet(settings)
    loaded, file = open_config(settings)
    entry = known_device(loaded, name)
    place = ", ".join(text for text in (str(entry["driver"]), where_of(entry)) if text)
    if not yes and not confirmed(settings, f"Remove {name} ({place}) from {loaded.path}?", "removes it without asking"):
        hint("nothing was changed")
        return 130
    file.remove(("devices", name))
    file.save()
    taken = asyncio.run(take_up(loaded, name))
    if settings.json:
        emit({"device": name, "config": str(loaded.path), "entry": entry, "node": taken})
        return None
    say(f"removed  {name} ({place}) from {loaded.path}")
    say(left_in(taken, entry))
    if not taken.reloaded:
        tell(taken, option_of(settings, loaded))
    return None


def left_in(taken: Taken, entry: dict[str, Any]) -> str:
    """In which state the device was left, as far as that is known. Pure."""
    safe = f" (safe = {entry['safe']})" if "safe" in entry else ""
    if taken.reloaded and taken.state == "gone":
        return f"the node has brought it to its safe state{safe} and closed it"
    if taken.reloaded:
        return f"work still runs on it; once that has ended, it goes to its safe state{safe} and is closed"
    if taken.running:
        return "the node still has it, as it is; once the node ends, it goes to its safe state" + safe
    return "no node drives it: it is as the node left it when it ended, in its safe state" + safe
