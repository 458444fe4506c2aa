"""The dead-man's switch: a device whose commander has been out of reach for longer than its `link_loss` goes to its
safe state. Pure, but for what is told to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Lane = Literal["site", "local"]  # who gave a device its last command: a leased task, or somebody at this machine


class DeadMan:
    """Knows who commanded each device last, and since when that commander cannot be heard."""

    def __init__(self) -> None:
        self._commander: dict[str, Lane] = {}
        self._lost_at: float | None = None

    def commanded(self, device: str, lane: Lane) -> None:
        """A command begins; a device that is commanded again is watched again."""
        self._commander[device] = lane

    def look(self, now: float, *, in_touch: bool, limits: Mapping[str, float]) -> list[str]:
        """The devices that must go to their safe state now, each once until its next command.

        `in_touch`: broker and coordinator are there. `limits`: `link_loss` in seconds of the devices that have one.
        `now` is in seconds of a clock that also counts while the machine sleeps.
        """
        if in_touch:
            self._lost_at = None
            return []
        if self._lost_at is None:
            self._lost_at = now
        gone = now - self._lost_at
        over = [name for name, limit in limits.items() if self._commander.get(name) == "site" and gone >= limit]
        for name in over:
            del self._commander[name]
        return over
