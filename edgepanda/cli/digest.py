"""`digest`: what `status` shows, in the one answer of the coordinator: short, and without the nodes' cards."""

from __future__ import annotations

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.out import emit
from edgepanda.cli.status import show_status


@command("digest", examples="edgepanda digest --json\nedgepanda digest")
def digest_command(settings: Settings) -> None:
    """The site in one answer of the coordinator, for programs; people rather look at `edgepanda status`."""
    found = ask(settings, lambda client: client.digest())
    if settings.json:
        emit(found)
    else:
        show_status(found)
