"""The frame of a process in the foreground: logging, signals, readiness and watchdog, the end of its supervisor."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from edgepanda import sdnotify
from edgepanda.cli.common import Settings, discreet_logging

SUPERVISOR = "EDGEPANDA_SUPERVISOR"  # process id of the `edgepanda up` that started this process
_PR_SET_PDEATHSIG = 1

log = logging.getLogger("edgepanda")

Ready = Callable[..., None]


def daemon_logging(settings: Settings) -> None:
    """Log to standard error; with the time where nobody else adds it."""
    timed = "JOURNAL_STREAM" not in os.environ and SUPERVISOR not in os.environ
    form = ("%(asctime)s " if timed else "") + "%(levelname)s %(name)s: %(message)s"
    level = logging.DEBUG if settings.verbose else logging.INFO
    discreet_logging(level, form)


def serve(run: Callable[[Ready], Coroutine[Any, Any, None]]) -> int:
    """Run a daemon until SIGTERM, SIGINT or SIGHUP, then let it end in its own time; gives the exit code.

    `run` gets a function to call once it serves; lines that it is given go to the supervisor with `READY=1`.
    """
    return asyncio.run(_serve(run))


async def _serve(run: Callable[[Ready], Coroutine[Any, Any, None]]) -> int:
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

    for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(sign, stop)
    die_with_supervisor()
    dog = asyncio.create_task(sdnotify.feed_watchdog())
    try:
        await run(lambda *lines: sdnotify.notify("READY=1", *lines))
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
