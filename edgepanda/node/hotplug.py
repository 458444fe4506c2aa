"""What the kernel tells of hardware that comes and goes, so that nobody has to ask for a new scan."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable

log = logging.getLogger("edgepanda.node")

SETTLE = 1.5  # seconds without news before they count: udev makes links and gives groups after the kernel has spoken
MOST = 10.0  # seconds that news wait for that at most
KOBJECT_UEVENT, KERNEL_GROUP = 15, 1  # the netlink family, and its group in which the kernel itself speaks
LARGEST = 16 * 1024  # bytes of one message
SUBSYSTEMS = frozenset({"block", "gpio", "i2c", "i2c-dev", "net", "pwm", "sound", "spi", "tty", "usb", "video4linux"})


class Hotplug:
    """Listens; `on_change` is called once for many events that come together. Nothing here ends a node: where the
    kernel may not be listened to, hardware is found at the next scan.
    """

    def __init__(self, on_change: Callable[[], None], *, connect: Callable[[], socket.socket] | None = None) -> None:
        self._on_change, self._connect = on_change, connect or _kernel
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._first = 0.0

    def start(self) -> None:
        """Listen from now on, in the running loop."""
        try:
            self._socket = self._connect()
        except OSError as error:
            log.info("hardware that is plugged in is found by `edgepanda card rescan` only: %s", error)
            return
        asyncio.get_running_loop().add_reader(self._socket, self._read, self._socket)

    def close(self) -> None:
        """Listen no longer; may be called twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _read(self, events: socket.socket) -> None:
        while True:
            try:
                raw, sender = events.recvfrom(LARGEST)
            except BlockingIOError:
                return
            except OSError:  # more events than the kernel keeps for us
                self._news()
                return
            if concerns(raw) and not (isinstance(sender, tuple) and sender[0] != 0):  # 0: the kernel itself
                self._news()

    def _news(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._first = loop.time()
        else:
            self._timer.cancel()
        self._timer = loop.call_at(min(loop.time() + SETTLE, self._first + MOST), self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._on_change()


def concerns(raw: bytes) -> bool:
    """True for a kernel's message that real hardware of a kind that a scan lists has come or gone. Pure."""
    head, *pairs = raw.decode("utf-8", "replace").split("\0")
    facts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    if facts.get("ACTION") not in ("add", "remove") or facts.get("SUBSYSTEM") not in SUBSYSTEMS:
        return False
    if "@" not in head or facts.get("DEVPATH", "").startswith("/devices/virtual/"):
        return False
    if facts["SUBSYSTEM"] == "usb":  # one that no driver takes has nothing else to tell of it
        return facts.get("DEVTYPE") == "usb_device"
    return facts["SUBSYSTEM"] != "net" or facts.get("DEVTYPE") == "wlan"


def _kernel() -> socket.socket:
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, KOBJECT_UEVENT)
    try:
        events.bind((0, KERNEL_GROUP))
    except OSError:
        events.close()
        raise
    return events
