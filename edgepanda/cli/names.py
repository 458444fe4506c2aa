"""The site's names in a small file, so that completion asks nobody. Imports nothing large.

Written by the commands that see the nodes' cards anyway. What is in it may be old: it helps typing and decides nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

FORMAT = 1
MOST_TASKS = 50
UNCHANGED = 60.0  # seconds for which the same names are not written again
FILE_NAME, SYSTEM_FILE = "edgepanda.toml", "/etc/edgepanda/edgepanda.toml"


def cache_folder() -> str:
    """`$XDG_CACHE_HOME/edgepanda`, or in the user's `.cache`."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "edgepanda")


def names_path(site: str) -> str:
    """Where the names of a site are."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in site)
    return os.path.join(cache_folder(), f"names-{safe}.json")


def config_path(given: str | None = None) -> str | None:
    """The configuration as `find_config` finds it, without its imports; None where there is none."""
    named = given or os.environ.get("EDGEPANDA_CONFIG")
    user = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = [named] if named else [FILE_NAME, os.path.join(user, "edgepanda", FILE_NAME), SYSTEM_FILE]
    return next((place for place in places if os.path.exists(place)), None)


def read_json(path: str) -> dict[str, Any]:
    """A document of this format; empty where it is missing, broken or of another format."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("format") == FORMAT else {}


def write_json(path: str, document: dict[str, Any]) -> None:
    """Replace the document; whoever reads sees the old or the new one. Nothing where that cannot be: it is a cache."""
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        beside = f"{path}.{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, **document}, file, separators=(",", ":"))
        os.replace(beside, path)


def remember_nodes(site: str, nodes: Sequence[dict[str, Any]], *, all_of_them: bool) -> None:
    """Keep what these nodes (as `node.get` gives them) offer, in the place of what was known of them, or of all."""
    told = {node["name"]: node_names(node.get("card") or {}) for node in nodes}
    known = read_json(names_path(site))
    merged = told if all_of_them else {**known.get("nodes", {}), **told}
    fresh = 0 <= time.time() - known.get("at", 0) < UNCHANGED
    if not (fresh and merged == known.get("nodes")):
        at = time.time() if all_of_them else known.get("at", 0)
        write_json(names_path(site), {"at": at, "nodes": merged, "tasks": known.get("tasks", [])})


def remember_tasks(site: str, tasks: Iterable[str]) -> None:
    """Keep the ids of tasks that were seen, the newest first."""
    known = read_json(names_path(site))
    before = known.get("tasks", [])
    ids = sorted({*tasks, *before}, reverse=True)[:MOST_TASKS]
    if ids != before:
        write_json(names_path(site), {"at": known.get("at", 0), "nodes": known.get("nodes", {}), "tasks": ids})


def node_names(card: dict[str, Any]) -> dict[str, Any]:
    """What can be typed of one card: targets and capabilities with the names of their arguments. Pure."""
    targets: dict[str, list[str]] = {}
    capabilities: dict[str, list[str]] = {}
    drivers = card.get("drivers", {})
    for name, device in card.get("devices", {}).items():
        for action, about in drivers.get(device.get("driver"), {}).get("actions", {}).items():
            arguments = list(about.get("args", {}).get("properties", {}))
            targets[f"{name}.{action}"] = capabilities[f"{device['driver']}.{action}"] = arguments
    for name, own in card.get("capabilities", {}).items():
        arguments = list(own.get("action", {}).get("args", {}).get("properties", {}))
        targets[name] = capabilities[name] = arguments
    labels = [f"{key}={value}" for key, value in card.get("labels", {}).items()]
    return {
        "devices": list(card.get("devices", {})),
        "targets": targets,
        "capabilities": capabilities,
        "labels": labels,
    }
