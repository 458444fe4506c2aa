"""`stops.json`: the emergency stops in force, on disk, of a node or of the coordinator.

A record of stops that cannot be read is a stop itself: whatever was in force may be so still.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from tinydb.table import Document

from edgepanda.documents import Documents
from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.model.stops import LONGEST_REASON, Door, Stop, Stops, released, stopped

log = logging.getLogger("edgepanda.stops")


class StopsFile:
    """The value of `model.stops`, kept. `on_stop` is called at each new stop before it is written: nothing is faster
    than to act; `on_change` after each change.
    """

    def __init__(self, path: Path, *, on_stop: Callable[[], None], on_change: Callable[[], None]) -> None:
        self._path, self._on_stop, self._on_change = path, on_stop, on_change
        self.stops = Stops()
        self.problem: EdgePandaError | None = None  # why it cannot be kept
        self._documents: Documents | None = None
        self._writing: asyncio.Handle | None = None
        try:
            self._documents = Documents(path, exclusive=True)
            row = self._documents.table("stops").get(doc_id=1)
            self.stops = msgspec.convert(dict(row), Stops) if isinstance(row, dict) else Stops()
        except (EdgePandaError, msgspec.ValidationError) as error:
            log.error("the record of emergency stops cannot be read, so this counts as one: %s", error)
            unread = f"the record of stops cannot be read: {error}"[:LONGEST_REASON]
            self.stops = Stops(standing=(Stop(id=new_id(), at=time.time(), door="file", reason=unread),))

    @property
    def in_force(self) -> bool:
        """True while nothing may actuate."""
        return self.stops.in_force

    def stop(self, *, door: Door, by: str = "", reason: str = "", origin: str = "") -> None:
        """One more stop, unless it stands, or was released before."""
        new = Stop(id=new_id(), at=time.time(), door=door, by=by, reason=_clean(reason)[:LONGEST_REASON], origin=origin)
        after = stopped(self.stops, new)
        if after is not self.stops:
            self.stops = after
            log.error("EMERGENCY STOP by %s (%s): %s", by or "somebody", door, new.reason or "no reason given")
            self._on_stop()
            self._changed()

    def take(self, standing: tuple[Stop, ...]) -> None:
        """Stops that the site has in force: those that are not known here."""
        for each in standing:
            self.stop(door="site", by=each.by, reason=each.reason, origin=each.origin or each.id)

    def release(self, ids: tuple[str, ...], by: str) -> None:
        """These end. Who may say so is checked before (`trust.release`)."""
        after = released(self.stops, ids)
        if after != self.stops:
            was, self.stops = self.stops.in_force, after
            if was:
                log.warning("released by %s: %d stops still in force", by, len(after.standing))
            self._changed()

    def close(self) -> None:
        """Write what is not written, and give up the right to."""
        if self._writing is not None:
            self._write()
        if self._documents is not None:
            self._documents.close()

    def _changed(self) -> None:
        if self._writing is None:  # after what `on_stop` has begun: a write takes longer than a stop may
            self._writing = asyncio.get_running_loop().call_soon(self._write)
        self._on_change()

    def _write(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
        self._writing = None
        if self._documents is None:
            return
        try:
            self._documents.table("stops").upsert(Document(msgspec.to_builtins(self.stops), doc_id=1))
            self.problem = None
        except EdgePandaError as error:
            self.problem = error
            log.error("the stops in force cannot be kept over a restart: %s [%s]", error, error.code)


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).strip()
