"""Readiness and watchdog for systemd: datagrams to the socket that it names. Without systemd nothing happens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

ERROR = "X_EDGEPANDA_ERROR="  # and the error that ends a process, as JSON, for its supervisor


def notify(*lines: str) -> None:
    """Tell systemd, for example `READY=1`, `STOPPING=1`, `STATUS=...`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        sock.connect(address)
        sock.send("\n".join(lines).encode())


async def feed_watchdog() -> None:
    """Feed systemd's watchdog from this loop, as often as it wants; returns at once if it wants nothing."""
    every = int(os.environ.get("WATCHDOG_USEC", "0")) / 2_000_000
    while every > 0:
        notify("WATCHDOG=1")
        await asyncio.sleep(every)
