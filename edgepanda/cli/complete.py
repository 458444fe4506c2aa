"""What may come next on the command line: from the cache of names and the local configuration, asking nobody.

Imports nothing large, and a command's own module only once for its options: they are kept in the cache as well.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from edgepanda import __version__
from edgepanda.cli.names import cache_folder, config_path, names_path, read_json, write_json
from edgepanda.cli.table import COMMANDS, DEVICE_DRIVERS

OLD = 300.0  # seconds after which the names are fetched again, behind the person's back
ASK_EVERY = 60.0  # seconds between two such attempts
_TASKS = frozenset({"show", "watch", "cancel", "resolve", "review"})
_ON_DEVICES = frozenset({"remove", "set", "test"})
_WORDS = {"completion": ("bash", "zsh", "fish"), "review": ("accept", "again", "reject")}


class Names(NamedTuple):
    """All that can be named at a site."""

    nodes: dict[str, dict[str, Any]]
    tasks: list[str]
    devices: list[str]  # of the local configuration
    capabilities: list[str]  # likewise


class Level(NamedTuple):
    """Where a command line has come to: the options of the command, each with the values that it may have (empty:
    anything), and its subcommands, if one of them comes next.
    """

    options: dict[str, list[str]]
    subcommands: list[str]


def complete(words: Sequence[str], names: Names, level: Level) -> list[str]:
    """The words that the last one of `words` can become. Pure. What ends in `=`, `.` or `/` is not finished by that."""
    options = level.options
    *before, current = words or [""]
    if not before:
        first = ("--help", "--version") if current.startswith("-") else COMMANDS
        return [name for name in first if name.startswith(current)]
    if current.startswith("-"):
        return _fitting(options, current)
    if before[-1].startswith("-") and before[-1] in options and options[before[-1]] != ["(flag)"]:
        return _fitting(_values(before[-1], names, options), current)
    if level.subcommands:
        return _fitting(level.subcommands, current)
    return _fitting(_positional(before[0], _plain_words(before[1:], options), current, names), current)


def _fitting(candidates: Iterable[str], current: str) -> list[str]:
    return sorted({word for word in candidates if word.startswith(current)})


def _plain_words(words: Sequence[str], options: dict[str, list[str]]) -> list[str]:
    """Those that are neither options nor their values."""
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-") and word in options:
            skip = options[word] != ["(flag)"]
        else:
            found.append(word)
    return found


def _values(option: str, names: Names, options: dict[str, list[str]]) -> Iterable[str]:
    if option == "--node":
        return names.nodes
    if option == "--device":
        return _devices(names)
    if option == "--capability":
        return _capabilities(names)
    if option == "--label":
        return [label for node in names.nodes.values() for label in node["labels"]]
    return options[option]


def _devices(names: Names) -> list[str]:
    return [*names.devices, *(device for node in names.nodes.values() for device in node["devices"])]


def _capabilities(names: Names) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in names.capabilities}
    for node in names.nodes.values():
        found.update(node["capabilities"])
    return found


def _targets(names: Names, current: str) -> dict[str, list[str]]:
    """What `do` takes: without the node's name, unless one is being typed."""
    found: dict[str, list[str]] = {name: [] for name in names.capabilities}
    if "/" in current:
        node = current.partition("/")[0]
        return {f"{node}/{target}": args for target, args in names.nodes.get(node, {}).get("targets", {}).items()}
    for entry in names.nodes.values():
        found.update(entry["targets"])
    known = {target.partition(".")[0] for target in found}
    found.update({f"{device}.": [] for device in names.devices if device not in known})
    if current and not any(target.startswith(current) for target in found):
        found.update({f"{node}/": [] for node in names.nodes})
    return found


def _positional(command: str, before: Sequence[str], current: str, names: Names) -> Iterable[str]:
    if command in ("do", "submit"):
        known = _targets(names, before[0] if before else current) if command == "do" else _capabilities(names)
        if not before:
            return known
        given = {word.partition("=")[0] for word in before[1:]}
        return [f"{name}=" for name in known.get(before[0], []) if name not in given]
    if command in _TASKS and not before:
        return names.tasks
    if (command == "logs" and not before) or [command, *before] in (
        ["nodes", "remove"],
        ["card", "show"],
        ["card", "rescan"],
        ["nodes", "rename"],
    ):
        return names.nodes
    if command == "logs":
        return ()
    if command == "device" and before:
        if len(before) > 1:
            return ()
        return DEVICE_DRIVERS if before[0] == "add" else names.devices if before[0] in _ON_DEVICES else ()
    if command == "capability" and before:
        return _own_capability(before, names)
    once = command == "review" and len(before) == 1
    return _WORDS.get(command, ()) if once or (not before and command != "review") else ()


def _own_capability(before: Sequence[str], names: Names) -> Iterable[str]:
    if before[0] != "try":
        return ()
    if len(before) == 1:
        return names.capabilities
    given = {word.partition("=")[0] for word in before[2:]}
    return [f"{name}=" for name in _capabilities(names).get(before[1], []) if name not in given]


# around it


def known_names(given: str | None = None) -> tuple[Names, bool]:
    """The names of the site of the configuration, and whether they are old or missing."""
    import tomllib

    config: dict[str, Any] = {}
    path = config_path(given)
    if path is not None:
        with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
            config = tomllib.load(file)
    cached = read_json(names_path(str(_table(config, "site").get("name", "home"))))
    own = (list(_table(config, "devices")), list(_table(config, "capabilities")))
    old = path is not None and not 0 <= time.time() - cached.get("at", 0) < OLD
    return Names(cached.get("nodes", {}), cached.get("tasks", []), *own), old


def _table(config: dict[str, Any], name: str) -> dict[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def level_of(words: Sequence[str]) -> Level:
    """Where the words before the last one lead to."""
    path = os.path.join(cache_folder(), "options.json")
    kept = read_json(path)
    if kept.get("version") != __version__:
        kept = {"version": __version__, "commands": {}}
    name = words[0] if words else ""
    if name not in COMMANDS:
        return Level({}, [])
    if name not in kept["commands"]:
        kept["commands"][name] = _read_options(name)
        write_json(path, {key: kept[key] for key in ("version", "commands")})
    found: dict[str, dict[str, list[str]]] = kept["commands"][name]
    at = ""
    for word in (each for each in words[1:-1] if not each.startswith("-")):
        if f"{at} {word}".strip() not in found:
            break
        at = f"{at} {word}".strip()
    below = [each for each in found if each and each.rpartition(" ")[0] == at]
    default = next((each for each in ("show", "list") if each in below), at)
    return Level(found.get(at) or found.get(default, {}), [each.rpartition(" ")[2] for each in below])


def _read_options(name: str) -> dict[str, dict[str, list[str]]]:
    """By the subcommand's words: `user add`; those of the command itself are empty. A group has none."""
    import click

    from edgepanda.cli.app import LazyGroup

    group = LazyGroup("edgepanda")
    found: dict[str, dict[str, list[str]]] = {}
    todo = [("", group.get_command(click.Context(group), name))]
    while todo:
        at, command = todo.pop()
        if isinstance(command, click.Group):
            found[at] = {}
            todo += [(f"{at} {sub}".strip(), each) for sub, each in command.commands.items()]
        elif command is not None:
            found[at] = _options(command)
    return found


def _options(command: Any) -> dict[str, list[str]]:
    import click

    found: dict[str, list[str]] = {"--help": ["(flag)"]}
    for option in command.params:
        if isinstance(option, click.Option):
            values = list(option.type.choices) if isinstance(option.type, click.Choice) else []
            single = ["(flag)"] if option.is_flag or option.count else [str(value) for value in values]
            found |= {word: single for word in (*option.opts, *option.secondary_opts)}
    return found


def main(words: Sequence[str]) -> int:
    """Print what may come next, a word a line."""
    given = next((words[at + 1] for at, word in enumerate(words[:-2]) if word == "--config"), None)
    names, old = known_names(given)
    print("\n".join(complete(words, names, level_of(words))))
    sys.stdout.flush()
    if old:
        refresh(given)
    return 0


def refresh(given: str | None) -> None:
    """Have the names fetched by a process of its own, once a minute at most; nobody waits for it."""
    mark = os.path.join(cache_folder(), "asked")
    with contextlib.suppress(OSError):
        if os.path.exists(mark) and 0 <= time.time() - os.path.getmtime(mark) < ASK_EVERY:
            return
        os.makedirs(cache_folder(), mode=0o700, exist_ok=True)
        with open(mark, "w", encoding="utf-8"):
            os.utime(mark)
        import subprocess

        argv = [sys.executable, "-m", "edgepanda", "status", "--json", *(["--config", given] if given else [])]
        nothing = subprocess.DEVNULL
        subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
