"""One lane to each device, shared by leased tasks and direct commands (docs/protocol.md, 'Lanes to a device')."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from edgepanda.errors import EdgePandaError
from edgepanda.model.card import OnBusy
from edgepanda.node.journal import Newest

MOST_QUEUED = 100  # calls that wait for one device
NONE = Newest()


class LaneError(EdgePandaError):
    """The device is not to be had: `busy`, or `superseded` by a newer command."""

    code = "busy"


class _Turn:
    __slots__ = ("granted", "lasting", "stop")

    def __init__(self, stop: Callable[[], None], *, lasting: bool = False) -> None:
        self.stop, self.lasting = stop, lasting  # a lasting one does not give way to newer commands
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Lane:
    """Who has the device now, and who waits for it."""

    def __init__(self, device: str, newest: Newest = NONE) -> None:
        self.device = device
        self.newest = newest  # command that was accepted, also by an earlier run
        self._holder: _Turn | None = None
        self._waiting: deque[_Turn] = deque()

    @property
    def idle(self) -> bool:
        """True while nobody has it or waits for it."""
        return self._holder is None

    def is_old(self, order: int, submitted_ms: int) -> bool:
        """True if a newer command for the device was accepted: by the site's order, or a direct one by our clock."""
        return order < self.newest.order or submitted_ms < self.newest.direct_ms

    def note_leased(self, order: int) -> None:
        """A command of the site was accepted."""
        self.newest = Newest(max(self.newest.order, order), self.newest.direct_ms)

    def note_direct(self, now_ms: int) -> None:
        """A direct command was accepted."""
        self.newest = Newest(self.newest.order, max(self.newest.direct_ms, now_ms))

    async def take(self, on_busy: OnBusy, stop: Callable[[], None]) -> _Turn:
        """Wait for one's turn. `stop` is called if a newer command wants the device; end soon then.

        Raises `LaneError`: `busy` (the action refuses to wait, or too many wait), `superseded`.
        """
        turn = _Turn(stop)
        if self._holder is None:
            self._holder = turn
            return turn
        if on_busy == "refuse":
            raise LaneError(f"{self.device} is busy", where=self.device, cure="try again when it is done")
        if len(self._waiting) >= MOST_QUEUED:
            raise LaneError(f"{MOST_QUEUED} calls wait for {self.device} already", where=self.device)
        if on_busy == "preempt":
            self._supersede()
        return await self._wait(turn)

    @asynccontextmanager
    async def free(self) -> AsyncIterator[None]:
        """Once all that had it or waited for it are done: it is nobody's, until this is left. No newer command can
        take the place of who waits here.
        """
        turn = _Turn(lambda: None, lasting=True)
        if self._holder is None:
            self._holder = turn
        else:
            await self._wait(turn)
        try:
            yield
        finally:
            self.give_back(turn)

    async def _wait(self, turn: _Turn) -> _Turn:
        self._waiting.append(turn)
        try:
            await turn.granted
        except asyncio.CancelledError:
            self._leave(turn)
            raise
        return turn

    def give_back(self, turn: _Turn) -> None:
        """The next one's turn."""
        if self._holder is not turn:
            return
        self._holder = None
        while self._waiting:
            following = self._waiting.popleft()
            if not following.granted.done():
                self._holder = following
                following.granted.set_result(None)
                return

    def _leave(self, turn: _Turn) -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        else:
            self.give_back(turn)

    def _supersede(self) -> None:
        for turn in self._waiting:
            if not turn.lasting and not turn.granted.done():
                turn.granted.set_exception(superseded(self.device))
        self._waiting = deque(turn for turn in self._waiting if turn.lasting)
        if self._holder is not None:
            self._holder.stop()


def superseded(device: str) -> LaneError:
    """The error of a command that a newer one has replaced."""
    return LaneError(f"a newer command for {device} was accepted", code="superseded", where=device)


class Arbiter:
    """The lanes of all devices of a node."""

    def __init__(self, newest: Mapping[str, Newest] | None = None) -> None:
        """`newest`: the commands that an earlier run accepted last."""
        self._lanes: dict[str, Lane] = {}
        self._before = newest or {}

    def lane(self, device: str) -> Lane:
        """The device's lane."""
        lane = self._lanes.get(device)
        if lane is None:
            lane = self._lanes[device] = Lane(device, self._before.get(device, NONE))
        return lane
