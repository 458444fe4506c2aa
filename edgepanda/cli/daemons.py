"""`node`, `coordinator`: each process alone, in the foreground."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, say
from edgepanda.cli.process import Frame, daemon_logging, serve
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded

RETURNS = "Exit codes: 0 ended by SIGTERM or Ctrl-C, 1 it could not start or go on, 2 the configuration cannot be used."


@command(
    "node",
    timeout_help="",
    returns=RETURNS,
    examples="edgepanda node\nedgepanda node --config /etc/edgepanda/edgepanda.toml -v",
)
@click.option(
    "--accept-ledger",
    metavar="ID",
    help="Obey the coordinator with this ledger from now on, though this node worked for another ledger before, or has "
    "seen more of this one. Say so only if you know why: after a new installation, or when a backup was brought back.",
)
def node_command(settings: Settings, accept_ledger: str | None) -> int:
    """Run this machine's node in the foreground.

    It says what it can do, claims work, drives the devices, and reports with evidence. Nothing that is missing ends it:
    it waits for broker and coordinator, and shows a driver's trouble on its card.
    """
    daemon_logging(settings)
    loaded = settings.load()

    async def run(frame: Frame) -> None:
        from edgepanda.client import site_key
        from edgepanda.node.daemon import NodeDaemon
        from edgepanda.node.logs import LogRing

        logs = LogRing()
        logging.getLogger().addHandler(logs)
        if accept_ledger:
            await _accept(loaded, accept_ledger)
        running = loaded
        while True:  # a node that was renamed begins anew
            daemon = NodeDaemon(running, site_key=site_key(running), on_ready=frame.ready, logs=logs)
            announce(settings, {"process": "node", "name": daemon.name}, f"node {daemon.name}")
            frame.on_hangup(daemon.hangup)
            await daemon.run()
            running = daemon.loaded

    return serve(run)


async def _accept(loaded: Loaded, ledger: str) -> None:
    from edgepanda.node.journal import Journal

    journal = Journal.open(loaded.state_dir / "journal.db")
    try:
        await journal.accept_ledger(ledger)
    finally:
        journal.close()
    say(f"this node obeys the ledger {ledger} from now on")


@command(
    "coordinator",
    timeout_help="",
    returns=RETURNS,
    examples="edgepanda coordinator\nedgepanda coordinator --config /etc/edgepanda/edgepanda.toml -v",
)
def coordinator_command(settings: Settings) -> int:
    """Run the site's coordinator in the foreground.

    It keeps the ledger, matches tasks with claims and gives leases. There is one at a site: a second one
    refuses to serve.
    """
    daemon_logging(settings)
    loaded = settings.load()

    async def run(frame: Frame) -> None:
        from edgepanda.coordinator.daemon import Coordinator, site_key_path

        if not site_key_path(loaded).exists():
            raise EdgePandaError(
                "this machine does not have the private key of a site",
                code="site_key_missing",
                where=str(site_key_path(loaded)),
                cure="`edgepanda init` makes a site; a machine that joins one runs `edgepanda node` only",
            )
        coordinator = Coordinator(loaded, on_ready=frame.ready)
        site = loaded.config.site.name
        announce(settings, {"process": "coordinator", "site": site}, f"coordinator of the site {site}")
        frame.on_hangup(coordinator.hangup)
        await coordinator.run()

    return serve(run)


def announce(settings: Settings, facts: dict[str, str], text: str) -> None:
    """Say which process runs."""
    if settings.json:
        emit(facts)
    else:
        say(text if "NOTIFY_SOCKET" in os.environ else f"{text}; Ctrl-C ends it")
