"""`card edit`: what people may say of this machine's node."""

from __future__ import annotations

import asyncio
import tomllib
from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.common import Settings, command, label_option, quiet
from edgepanda.cli.out import emit, plain, say

if TYPE_CHECKING:
    from pathlib import Path

    from edgepanda.config_edit import ConfigFile

KEYS = ("description", "labels")
"""The keys of [node] that are a person's word and no setting."""


@command(
    "edit",
    short_help="Say what this node is, and its labels",
    timeout_help="",
    examples="""
    edgepanda card edit
    edgepanda card edit --description "camera above the workbench"
    edgepanda card edit --label room=attic --no-label floor
    """,
    returns="Exit codes: 0 done or nothing to change; 1 the file cannot be written; 2 the configuration is wrong.",
)
@click.option("--description", metavar="TEXT", help="What this node is, for people; empty: nothing.")
@label_option("A label that tasks may ask for.")
@click.option("--no-label", "without", multiple=True, metavar="NAME", help="Take a label away. Repeatable.")
def edit_command(settings: Settings, description: str | None, labels: dict[str, str], without: tuple[str, ...]) -> None:
    """Edit what people say of this machine's node on its card: a description, and labels that tasks may ask for.

    Both stand in [node] of the configuration; its comments and everything else stay as they are. Without options your
    editor ($VISUAL or $EDITOR) gets the two. A running node takes the change up.
    """
    from edgepanda.cli.reload import option_of, take_up, tell
    from edgepanda.config_edit import ConfigFile

    quiet(settings)
    loaded = settings.load()
    node = loaded.require_node()
    file = ConfigFile(loaded.path)
    if description is None and not labels and not without:
        wanted = _by_editor(loaded.path, node.description, node.labels)
    else:
        kept = {name: value for name, value in {**node.labels, **labels}.items() if name not in without}
        wanted = {"description": node.description if description is None else description, "labels": kept}
    for name, value in wanted.items():
        _write(file, name, value)
    saved = file.save()
    taken = asyncio.run(take_up(loaded)) if saved else None
    if settings.json:
        emit({"config": str(loaded.path), "saved": saved, **wanted, "node": taken})
        return
    say(f"saved {loaded.path}" if saved else "nothing changed")
    say(f"description: {wanted['description'] or 'none'}; labels: {plain(wanted['labels']) or 'none'}")
    if taken is not None:
        tell(taken, option_of(settings, loaded))


def _write(file: ConfigFile, name: str, value: Any) -> None:
    """A key with its default is taken out, so that the file's comment on it stands alone again."""
    present: dict[str, Any] = file.get(("node",))
    if value:
        file.set(("node", name), value)
    elif name in present:
        file.remove(("node", name))


def _by_editor(path: Path, description: str, labels: dict[str, str]) -> dict[str, Any]:
    """What the person makes of both. Raises `ConfigError`; what was written is kept then, and its place told."""
    from edgepanda.cli.config_editor import edited
    from edgepanda.model.config import ConfigError
    from edgepanda.model.config_types import Node
    from edgepanda.model.config_words import fields_of, toml

    about = fields_of(Node)
    values = {"description": description, "labels": labels}
    lines = [f"# What people say of this node; all else stays as it is in {path}.", "[node]"]
    for name in KEYS:
        lines += [f"# {about[name].description}", f"{name} = {toml(values[name])}"]
    with edited(path, "\n".join(lines) + "\n") as text:
        found = tomllib.loads(text)
        more = [f"{table}.{name}" for table, rest in found.items() if table != "node" for name in rest or [""]]
        more += [f"node.{name}" for name in found.get("node", {}) if name not in KEYS]
        if more:
            raise ConfigError(
                "only description and labels of the node are edited here",
                code="config_key_unknown",
                where=f"{path}: {more[0]}",
                cure="`edgepanda config edit` changes all else",
            )
    node = found.get("node", {})
    return {"description": node.get("description", ""), "labels": node.get("labels", {})}
