"""The frame of a process in the foreground: logging, signals, readiness and watchdog, the end of its supervisor."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from edgepanda import sdnotify
from edgepanda.cli.common import Settings, discreet_logging

SUPERVISOR = "EDGEPANDA_SUPERVISOR"  # process id of the `edgepanda up` that started this process
_PR_SET_PDEATHSIG = 1

log = logging.getLogger("edgepanda")


class Frame:
    """What a running daemon and its process have to say to each other."""

    def __init__(self) -> None:
        self._reload: Callable[[], Coroutine[Any, Any, None]] | None = None

    def ready(self, *lines: str) -> None:
        """It serves. The lines go to the supervisor with `READY=1`."""
        sdnotify.notify("READY=1", *lines)

    def on_hangup(self, reload: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What to do when a person asks for the configuration to be read again, with SIGHUP or `systemctl reload`."""
        self._reload = reload

    async def hangup(self) -> None:
        """SIGHUP has come."""
        if self._reload is None:
            log.info("SIGHUP: this process has nothing to read again")
            return
        sdnotify.notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        await self._reload()
        sdnotify.notify("READY=1")


Run = Callable[[Frame], Coroutine[Any, Any, None]]


def daemon_logging(settings: Settings) -> None:
    """Log to standard error; with the time where nobody else adds it."""
    timed = "JOURNAL_STREAM" not in os.environ and SUPERVISOR not in os.environ
    form = ("%(asctime)s " if timed else "") + "%(levelname)s %(name)s: %(message)s"
    level = logging.DEBUG if settings.verbose else logging.INFO
    discreet_logging(level, form)


def at_terminal() -> bool:
    """True if a SIGHUP means that the terminal has gone: then it ends a process, which otherwise reloads."""
    return sys.stdin is not None and sys.stdin.isatty()


def serve(run: Run) -> int:
    """Run a daemon until SIGTERM or SIGINT, or the end of its terminal, then let it end in its own time; gives the
    exit code. SIGHUP without a terminal makes it read its configuration again.
    """
    return asyncio.run(_serve(run))


async def _serve(run: Run) -> int:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 a coroutine always runs in one
    stopping = False

    def stop() -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            sdnotify.notify("STOPPING=1")
            log.info("ending")
            task.cancel()

    frame, hangups = Frame(), set[asyncio.Task[None]]()

    def hangup() -> None:
        if at_terminal():
            stop()
        elif not stopping:
            hangups.add(reading := asyncio.create_task(frame.hangup()))
            reading.add_done_callback(hangups.discard)

    loop = asyncio.get_running_loop()
    for sign, handler in ((signal.SIGTERM, stop), (signal.SIGINT, stop), (signal.SIGHUP, hangup)):
        loop.add_signal_handler(sign, handler)
    die_with_supervisor()
    dog = asyncio.create_task(sdnotify.feed_watchdog())
    try:
        await run(frame)
    except asyncio.CancelledError:
        if not stopping:
            raise
    finally:
        dog.cancel()
    return 0


def die_with_supervisor() -> None:
    """Ask the kernel for a SIGTERM when the `edgepanda up` that started this process dies, even by SIGKILL."""
    supervisor = os.environ.pop(SUPERVISOR, "")
    if not supervisor:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(supervisor):  # it died before we asked
        os.kill(os.getpid(), signal.SIGTERM)
