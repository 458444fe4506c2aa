"""A daemon reads its configuration again: what it takes up, what waits for a restart, what is said about it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded, load_config
from edgepanda.model.config_changes import Changes, changes, taken_up


class Edited(msgspec.Struct, frozen=True):
    """The file as it is now, what differs from what the daemon runs with, and what it runs with from now on."""

    new: Loaded
    changes: Changes
    in_effect: Loaded


def read_again(running: Loaded, tables: tuple[str, ...]) -> Edited:
    """Read and check the file of a running daemon that reads these tables. Raises `ConfigError`."""
    new = load_config(running.path)
    return Edited(new, changes(running, new, tables), taken_up(running, new, tables))


def log_changes(log: logging.Logger, edited: Edited) -> None:
    """Say what was taken up, and what was not."""
    found = edited.changes
    if found.taken:
        log.info("taken up from %s: %s", edited.new.path, ", ".join(found.taken))
    if found.restart:
        log.warning("only a restart takes up from %s: %s", edited.new.path, ", ".join(found.restart))
    if not found.taken and not found.restart:
        log.info("nothing that concerns this process has changed in %s", edited.new.path)


async def on_hangup(log: logging.Logger, reload: Callable[[], Awaitable[object]]) -> None:
    """Reload as SIGHUP asks for it; an invalid file changes nothing, and the log says all that is wrong with it."""
    try:
        await reload()
    except EdgePandaError as error:
        for line in error.lines():
            log.error("%s [%s]", line, error.code)
        log.error("the configuration in use stays as it was")
