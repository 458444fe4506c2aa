"""`config`: check, show and edit the configuration, and what may stand in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, hint, say, table

if TYPE_CHECKING:
    from edgepanda.cli.reload import Taken
    from edgepanda.model.config_show import Value

_RETURNS = "Exit codes: 0 right, 1 a file cannot be written, 2 the configuration or the command is wrong."


def _path(settings: Settings) -> Path:
    from edgepanda.model.config import find_config

    return find_config(settings.config)


@command(
    "check",
    short_help="Say everything that is wrong with it; 2 if anything is",
    timeout_help="",
    examples="edgepanda config check\nedgepanda config check --config /etc/edgepanda/edgepanda.toml --json",
    returns=_RETURNS,
)
def _check(settings: Settings) -> None:
    """Check the configuration: all errors at once, each with line, key, what is allowed and what to do.

    Nothing is started and no hardware is touched: whether a device can be used here, its driver says when the node
    starts (`edgepanda card`).
    """
    loaded = settings.load()
    config = loaded.config
    if settings.json:
        facts = {"devices": sorted(config.devices), "capabilities": sorted(config.capabilities)}
        emit({"ok": True, "config": str(loaded.path), "state_dir": str(loaded.state_dir), **facts})
        return
    runs = ["broker"] if config.broker.embedded else []
    runs += [name for name in ("coordinator", "node") if getattr(config, name) is not None]
    say(f"{loaded.path}: no errors")
    say(f"runs {', '.join(runs) or 'nothing'}; devices: {', '.join(config.devices) or 'none'}")


@command(
    "show",
    short_help="Every value in effect, and where it is from",
    timeout_help="",
    examples="edgepanda config show\nedgepanda config show --json",
    returns=_RETURNS,
)
def _show(settings: Settings) -> None:
    """Show every value in effect and where it is from: a line of the file, or the default. Secrets are not shown."""
    path = _path(settings)
    values = _values(path)
    if settings.json:
        emit({"config": str(path), "values": values})
        return
    say(str(path))
    table(("KEY", "VALUE", "UNIT", "FROM"), [_row(value) for value in values])


def _values(path: Path) -> list[Value]:
    from edgepanda.model.config import load_text, read_text
    from edgepanda.model.config_show import effective

    text = read_text(path)
    return effective(load_text(text, path), text)


def _row(value: Value) -> tuple[str, str, str, str]:
    from edgepanda.model.config_words import toml

    if value.value is None:
        return value.key, "-", "", "no such table: not run here" if "." not in value.key else "default"
    return value.key, toml(value.value), value.unit, value.origin


@command(
    "edit",
    short_help="Open a copy in your editor; only what is right is kept",
    timeout_help="",
    examples="edgepanda config edit\nEDITOR=nano edgepanda config edit",
    returns=_RETURNS,
)
def _edit(settings: Settings) -> None:
    """Edit a copy of the configuration with $VISUAL or $EDITOR and take it over once it is right.

    With errors they are shown and you may edit again; the configuration in use stays as it was until then.
    """
    from edgepanda.cli.config_editor import edited
    from edgepanda.cli.reload import option_of, tell
    from edgepanda.config_edit import save_text
    from edgepanda.model.config import load_config, read_text

    path = _path(settings)
    before = read_text(path)
    with edited(path, before) as text:
        if text == before:
            changed = []
        else:
            old = _values_or_none(path)
            save_text(path, text, before=before)
            changed = [value for value in _values(path) if (value.key, value.value) not in old]
    restart = any(value.restart for value in changed)
    taken = _take_up(path) if text != before else None
    if settings.json:
        keys = [value.key for value in changed]
        emit({"config": str(path), "saved": text != before, "changed": keys, "restart": restart, "node": taken})
    elif text == before:
        say("nothing changed")
    else:
        say(f"saved {path}")
        if changed:
            say(f"changed: {', '.join(value.key for value in changed)}")
        if taken is not None:
            tell(taken, option_of(settings, load_config(path)))
        if any(value.key.startswith("coordinator.") and not value.restart for value in changed):
            hint("the coordinator takes it up on SIGHUP: send one to `edgepanda up`, or `systemctl reload` its unit")


def _take_up(path: Path) -> Taken | None:
    """What this machine's node makes of it; None where there is no node in it."""
    import asyncio

    from edgepanda.cli.reload import take_up
    from edgepanda.model.config import load_config

    loaded = load_config(path)
    return asyncio.run(take_up(loaded)) if loaded.config.node is not None else None


def _values_or_none(path: Path) -> list[tuple[str, object]]:
    """Keys and values of the file as it was; nothing if it was wrong."""
    from edgepanda.model.config import ConfigError

    try:
        return [(value.key, value.value) for value in _values(path)]
    except ConfigError:
        return []


@command(
    "schema",
    short_help="Every key: default, unit, what is allowed, restart",
    timeout_help="",
    examples="edgepanda config schema\nedgepanda config schema --json >edgepanda.schema.json",
    returns=_RETURNS,
)
def _schema(settings: Settings) -> None:
    """List every key with default, unit, what is allowed, and whether a change needs a restart.

    With --json as JSON Schema, which editors can use. A device's own keys are its driver's.
    """
    from edgepanda.model.config_show import schema
    from edgepanda.model.config_types import ENTRIES, TABLES, Config
    from edgepanda.model.config_words import allowed, fields_of, toml

    if settings.json:
        emit(schema())
        return
    tables = {"": Config, **TABLES, **{f"{name}.NAME": kind for name, kind in ENTRIES.items()}}
    rows = []
    for name, kind in tables.items():
        for field in fields_of(kind).values():
            if not field.description:
                continue  # a table
            default = "required" if field.required else "" if field.default is None else toml(field.default)
            key = f"{name}.{field.name}" if name else field.name
            rows.append((key, default, field.unit, "restart" if field.restart else "", allowed(field)))
    table(("KEY", "DEFAULT", "UNIT", "CHANGE", "ALLOWED"), rows)


config_command = click.Group(
    "config",
    no_args_is_help=False,  # then it is an error that names the help
    commands={"check": _check, "show": _show, "edit": _edit, "schema": _schema},
    help="Check, show or edit the configuration, or list its keys.",
)
