"""systemd's watchdog is fed by the loop itself, so a loop that is blocked starves it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from edgepanda import sdnotify


async def test_a_blocked_loop_stops_feeding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "20000")
        feeding = asyncio.create_task(sdnotify.feed_watchdog())
        for _ in range(3):
            assert await asyncio.get_running_loop().sock_recv(systemd, 100) == b"WATCHDOG=1"
        systemd.settimeout(0.2)  # this blocks the loop, for ten times what systemd would wait
        assert _fed(systemd) <= 2  # what was sent before, and at most what was on its way
        systemd.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(systemd, 100) == b"WATCHDOG=1"
        feeding.cancel()


async def test_who_is_not_watched_feeds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    await sdnotify.feed_watchdog()


def _fed(systemd: socket.socket) -> int:
    """How often somebody feeds it, until nobody does."""
    times = 0
    with contextlib.suppress(TimeoutError):
        while systemd.recv(100) == b"WATCHDOG=1":
            times += 1
    return times
