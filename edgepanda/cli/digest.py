"""`digest`: the site at a glance."""

from __future__ import annotations

from typing import Any

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.nodes import show_nodes
from edgepanda.cli.out import emit, fields, plain, say
from edgepanda.cli.tasks import show_tasks


@command("digest", examples="edgepanda digest\nedgepanda digest --json")
def digest_command(settings: Settings) -> None:
    """The site at a glance: who is there, what runs and waits, what needs a person."""
    found = ask(settings, lambda client: client.digest())
    if settings.json:
        emit(found)
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    head = found["head"]
    fields(
        [
            ("ledger", f"{head['height']} entries, epoch {found['epoch']}, {head['ledger']}"),
            ("tasks", plain(found["counts"]) or "none yet"),
            ("problem", plain(found["problem"]) if found["problem"] else ""),
        ],
        indent="",
    )
    for title, key in (("Needs a person", "needs_person"), ("Running", "running"), ("Queued", "queued")):
        if found[key]:
            say(f"\n{title}:")
            show_tasks(found[key])
    say("\nNodes:")
    show_nodes(found["nodes"])
