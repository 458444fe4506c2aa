"""The node's state folder, or where it cannot be written the folder in memory in its place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from edgepanda.node.journal import Journal
from edgepanda.node.journal_rows import FORMAT
from edgepanda.spare_state import UNWRITABLE, bring_back, fill, said, writable
from edgepanda.storage import StorageError

log = logging.getLogger("edgepanda.node")

JOURNAL = "journal.db"
LOOK_EVERY = 30.0  # seconds between looks at a disk that could not be written


class WritableAgain(Exception):
    """The state folder can be written again."""


class State(msgspec.Struct, frozen=True):
    """`folder` is what is used, with its open journal; `problem` says why it is not `home`."""

    home: Path
    folder: Path
    journal: Journal
    problem: StorageError | None = None


def open_state(home: Path) -> State:
    """Open the journal in the state folder or, where that cannot be written, in memory.

    Raises `StorageError`: `storage_locked`, what a damaged file raises, and the disk's own where memory does not do.
    """
    try:
        bring_back(home, JOURNAL, FORMAT)
        return State(home, home, Journal.open(home / JOURNAL))
    except StorageError as error:
        if error.code not in UNWRITABLE:
            raise
        problem = said(error, home)
    folder = fill(home, JOURNAL)
    journal = Journal.open(folder / JOURNAL)
    log.error("%s [%s]", problem, problem.code)
    return State(home, folder, journal, problem)


async def until_writable(state: State, idle: Callable[[], bool]) -> None:
    """Raises `WritableAgain` when the state folder takes something again and nothing runs; returns if it always did."""
    while state.problem is not None:
        await asyncio.sleep(LOOK_EVERY)
        if idle() and await asyncio.to_thread(writable, state.home) and idle():
            raise WritableAgain
