"""A driver for tests and benchmarks, found by its path: it writes down each time that it acts.

`note` may be repeated (`safe`), `mark` may not (`unsafe`); both append one line (task, attempt, seconds of the
monotonic clock) to the file of the device's configuration, so that a test can count what really ran.
"""

from __future__ import annotations

import os
import time
from typing import Annotated, Any

import msgspec

from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.context import Context
from edgepanda.drivers.contract import CallResult

Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


class RecorderConfig(msgspec.Struct, forbid_unknown_fields=True):
    """`file` to append to (empty: none), `sync` to disk after each line, `deaf` to cancels, to be killed for it."""

    file: str = ""
    sync: bool = False
    deaf: bool = False


class Recorder(Driver):
    """Records its calls."""

    name = "recorder"
    Config = RecorderConfig

    def open(self, known: dict[str, Any] | None) -> None:
        self._file = -1
        if self.config.file:
            self._file = os.open(self.config.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def safe(self) -> None:
        self.state(safe=True)

    @action(tier=1, replay="safe", on_busy="queue", units={"seconds": "s"})
    def note(self, ctx: Context, seconds: Seconds = 0.0, text: str = "") -> CallResult:
        """Appends a line; may be repeated"""
        return self._record(ctx, seconds, text)

    @action(tier=1, replay="unsafe", on_busy="queue", units={"seconds": "s"})
    def mark(self, ctx: Context, seconds: Seconds = 0.0, text: str = "") -> CallResult:
        """Appends a line; must not be repeated"""
        return self._record(ctx, seconds, text)

    def _record(self, ctx: Context, seconds: float, text: str) -> CallResult:
        line = f"{ctx.task} {ctx.attempt} {time.monotonic():.6f} {text}".rstrip() + "\n"
        if self._file >= 0:
            os.write(self._file, line.encode())
            if self.config.sync:
                os.fsync(self._file)
        if seconds and self.config.deaf:
            time.sleep(seconds)
        elif seconds:
            ctx.wait(seconds)
        return CallResult("succeeded", value=text, evidence=({"kind": "line", "line": line.rstrip()},))
