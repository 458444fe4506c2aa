"""News of hardware: which of the kernel's messages count, and that many of them are one change."""

from __future__ import annotations

import asyncio
import socket

import pytest

from edgepanda.node import hotplug
from edgepanda.node.hotplug import Hotplug, concerns


def event(action: str = "add", path: str = "/devices/pci0000:00/usb1/1-1/1-1:1.0/tty/ttyACM0", **facts: str) -> bytes:
    """A message as the kernel writes it."""
    facts = {"SUBSYSTEM": "tty", **facts}
    lines = [f"{action}@{path}", f"ACTION={action}", f"DEVPATH={path}", *(f"{k}={v}" for k, v in facts.items())]
    return "\0".join(lines).encode() + b"\0"


@pytest.mark.parametrize(
    "raw",
    [
        event(),
        event("remove"),
        event(SUBSYSTEM="video4linux"),
        event(SUBSYSTEM="net", DEVTYPE="wlan"),
        event(SUBSYSTEM="usb", DEVTYPE="usb_device"),
    ],
)
def test_hardware_that_comes_or_goes(raw: bytes) -> None:
    assert concerns(raw)


@pytest.mark.parametrize(
    "raw",
    [
        event("change"),
        event("bind"),
        event(SUBSYSTEM="net"),
        event(SUBSYSTEM="usb", DEVTYPE="usb_interface"),
        event(SUBSYSTEM="power_supply"),
        event(path="/devices/virtual/block/loop0", SUBSYSTEM="block"),
        b"",
        b"\xff\0=\0SUBSYSTEM",
        b"libudev\0\xfe\xed\xca\xfe",
    ],
)
def test_all_else_is_passed_over(raw: bytes) -> None:
    assert not concerns(raw)


class Listening:
    """A listener whose kernel is the other end of a pair."""

    def __init__(self) -> None:
        self.kernel, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setblocking(False)
        self.changes = 0
        self.changed = asyncio.Event()
        self.hotplug = Hotplug(self._change, connect=lambda: ours)
        self.hotplug.start()

    def _change(self) -> None:
        self.changes += 1
        self.changed.set()

    def close(self) -> None:
        self.hotplug.close()
        self.kernel.close()


async def test_events_that_come_together_are_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotplug, "SETTLE", 0.0)
    here = Listening()
    for _ in range(20):
        here.kernel.send(event())
    here.kernel.send(event("change"))
    await here.changed.wait()
    assert here.changes == 1
    here.changed.clear()
    here.kernel.send(event("remove"))
    await here.changed.wait()
    assert here.changes == 2
    here.close()
    here.hotplug.close()


async def test_news_without_end_are_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotplug, "MOST", 0.0)
    here = Listening()
    here.kernel.send(event())
    await here.changed.wait()
    here.close()


async def test_a_kernel_that_may_not_be_listened_to_ends_nothing() -> None:
    def refused() -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    listener = Hotplug(lambda: None, connect=refused)
    listener.start()
    listener.close()


async def test_the_kernel_of_this_machine_may_be_listened_to() -> None:
    listener = Hotplug(lambda: None)
    listener.start()
    listener.close()
