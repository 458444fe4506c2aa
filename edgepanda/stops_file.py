"""`stops.json`: the emergency stops in force, on disk, of a node or of the coordinator.

A record of stops that cannot be read is a stop itself: whatever was in force may be so still.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from edgepanda.documents import Documents
from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.model.stops import LONGEST_REASON, Door, Stop, Stops, released, stopped

log = logging.getLogger("edgepanda.stops")


WRITE_AGAIN = 1.0
"""Seconds between two writes of further stops; the first one in force, and a release, are written at once."""

AFTERWARDS = 0.002
"""Seconds after which a change is written and told: what `on_stop` has begun goes first."""

UNSEEN = 60.0
"""Seconds before a release within which a plain stop that added nothing counts: whoever releases may not know of it."""

LONGEST_NAME = 64


class StopsFile:
    """The value of `model.stops`, kept. `on_stop` is called at each new stop before it is written: nothing is faster
    than to act; `on_change` soon after changes. Written on a thread of its own: a blocked disk holds up nothing.

    Whoever may publish can say as many stops as he likes. All of them hold, and few of them cost something: of those
    that add nothing only the newest is remembered, and stands by itself once a release has ended the others.
    """

    def __init__(self, path: Path, *, on_stop: Callable[[], None], on_change: Callable[[], None]) -> None:
        self._path, self._on_stop, self._on_change = path, on_stop, on_change
        self.stops = Stops()
        self.problem: EdgePandaError | None = None  # why it cannot be kept
        self._documents: Documents | None = None
        self._unseen: tuple[float, Stop] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._written_at = float("-inf")
        self._settled = asyncio.Event()
        self._settled.set()
        try:
            self._documents = Documents(path, exclusive=True)
            self.stops = msgspec.convert(self._documents.single("stops") or {}, Stops)
        except (EdgePandaError, msgspec.ValidationError) as error:
            log.error("the record of emergency stops cannot be read, so this counts as one: %s", error)
            unread = f"the record of stops cannot be read: {error}"[:LONGEST_REASON]
            self.stops = Stops(standing=(Stop(id=new_id(), at=time.time(), door="file", reason=unread),))
        self._kept = self.stops  # as it is on disk

    @property
    def in_force(self) -> bool:
        """True while nothing may actuate."""
        return self.stops.in_force

    def stop(self, *, door: Door, by: str = "", reason: str = "", origin: str = "") -> None:
        """One more stop, unless it stands, or was released before."""
        new = Stop(
            id=new_id(),
            at=time.time(),
            door=door,
            by=by[:LONGEST_NAME],
            reason=_clean(reason)[:LONGEST_REASON],
            origin=origin[:LONGEST_NAME],
        )
        after = stopped(self.stops, new)
        if after is not self.stops:
            self.stops = after
            self._on_stop()
            log.error("EMERGENCY STOP by %s (%s): %s", new.by or "somebody", door, new.reason or "no reason given")
            self._changed()
        elif not origin:
            self._unseen = (time.monotonic(), new)

    def take(self, standing: tuple[Stop, ...]) -> None:
        """Stops that the site has in force: those that are not known here."""
        for each in standing:
            self.stop(door="site", by=each.by, reason=each.reason, origin=each.origin or each.id)

    def release(self, ids: tuple[str, ...], by: str) -> None:
        """These end. Who may say so is checked before (`trust.release`)."""
        after = released(self.stops, ids)
        if after.standing != self.stops.standing and self._unseen is not None:
            said, unseen = self._unseen
            if time.monotonic() - said < UNSEEN:
                after = stopped(after, unseen)
            if not after.in_force or unseen in after.standing:
                self._unseen = None
        if after != self.stops:
            was, self.stops = self.stops.in_force, after
            if was:
                log.warning("released by %s: %d stops still in force", by, len(after.standing))
            self._changed()

    async def kept(self, within: float = 1.0) -> None:
        """Returns once it is on disk whether anything is in force; at a blocked disk after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._settled.wait()

    def close(self) -> None:
        """Write what is not written, and give up the right to."""
        for timer in (self._timer, self._telling):
            if timer is not None:
                timer.cancel()
        if self._thread is not None:
            self._thread.shutdown()
        if self.stops != self._kept:
            self._store(self.stops)
        if self._documents is not None:
            self._documents.close()

    def _changed(self) -> None:
        self._write_soon()
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(AFTERWARDS, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._on_change()

    def _write_soon(self) -> None:
        if self._writing or self.stops == self._kept:
            return
        loop = asyncio.get_running_loop()
        more = self._kept.in_force and self.stops.released == self._kept.released
        due = self._written_at + WRITE_AGAIN if more else 0.0
        if not more:
            self._settled.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(max(due, loop.time() + AFTERWARDS), self._write)

    def _write(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer, self._writing = None, True
        self._thread = self._thread or ThreadPoolExecutor(1, "edgepanda-stops")
        loop.run_in_executor(self._thread, self._store, self.stops).add_done_callback(self._was_written)

    def _was_written(self, done: asyncio.Future[None]) -> None:
        self._writing = False
        self._settled.set()
        if not done.cancelled() and done.exception() is not None:
            log.error("the stops in force cannot be kept over a restart", exc_info=done.exception())
            return
        self._written_at = asyncio.get_running_loop().time()
        if self.problem is None:
            self._write_soon()

    def _store(self, stops: Stops) -> None:
        if self._documents is None:
            return
        try:
            self._documents.keep_single("stops", msgspec.to_builtins(stops))
            self._kept, self.problem = stops, None
        except EdgePandaError as error:
            if self.problem is None or self.problem.code != error.code:
                log.error("the stops in force cannot be kept over a restart: %s [%s]", error, error.code)
            self.problem = error


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text).strip()
