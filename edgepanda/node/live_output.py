"""Lines of running attempts, as they come: told in packets, within a rate. What is left out is in the report all the
same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from edgepanda.model.ids import new_id
from edgepanda.node.attempt import Attempt, Key
from edgepanda.wire import messages

EVERY = 0.1  # seconds between packets
MOST = 50  # lines in one packet


class LiveOutput:
    """Collects what drivers write, by attempt and stream."""

    def __init__(self, running: Mapping[Key, Attempt], send: Callable[[messages.Output], None]) -> None:
        self._running, self._send = running, send
        self._lines: dict[tuple[str, int, str], list[str]] = {}

    def take(self, task: str, attempt: int, stream: str, text: str) -> None:
        """A driver has passed on what an attempt wrote."""
        running = self._running.get((task, attempt))
        if running is None:
            return
        if not self._lines:
            asyncio.get_running_loop().call_later(EVERY, self.flush)
        self._lines.setdefault((task, attempt, stream), []).extend(running.output(text))

    def flush(self) -> None:
        """Tell what was collected, now: an attempt ends."""
        lines, self._lines = self._lines, {}
        for (task, attempt, stream), some in lines.items():
            shown = some[:MOST]
            if len(some) > MOST:
                shown.append(f"... {len(some) - MOST} more lines")
            self._send(messages.Output(id=new_id(), task=task, attempt=attempt, stream=stream, lines=tuple(shown)))
