"""The hardware on the card: one revision while facts are stable, what is missing stays, a hanging scan ends nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.model.hardware import Hardware, SerialPort
from edgepanda.node import inventory
from edgepanda.node.inventory import Inventory

BARE = Hardware(board="a board", cpus=4)
ARDUINO = SerialPort(name="usb-Arduino", device="/dev/ttyACM0")
WHOLE = Hardware(board="a board", cpus=4, serial=(ARDUINO,))


class Machine:
    """What each scan finds, one after the other; the last one stays."""

    def __init__(self, folder: Path, *found: Hardware) -> None:
        self.path, self.found, self.changes = folder / "hardware.json", list(found), 0
        self.inventory = self.opened()

    def opened(self) -> Inventory:
        return Inventory(self.path, on_change=self._changed, scan=self._scan)

    def restart(self) -> None:
        self.inventory.close()
        self.inventory = self.opened()

    def ports(self) -> list[dict[str, Any]]:
        return list(self.inventory.hardware.get("serial", []))

    def _changed(self) -> None:
        self.changes += 1

    def _scan(self) -> Hardware:
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]


async def test_a_change_is_told_and_the_same_again_is_not(tmp_path: Path) -> None:
    machine = Machine(tmp_path, WHOLE)
    assert machine.inventory.hardware == {}
    await machine.inventory.rescan()
    await machine.inventory.rescan()
    assert machine.changes == 1
    assert machine.inventory.hardware["board"] == "a board"
    written = machine.path.stat().st_mtime_ns
    machine.restart()
    assert machine.ports()[0]["name"] == "usb-Arduino"
    await machine.inventory.rescan()
    assert machine.changes == 1
    assert machine.path.stat().st_mtime_ns == written


async def test_what_is_missing_is_unavailable_also_after_a_restart(tmp_path: Path) -> None:
    machine = Machine(tmp_path, WHOLE, BARE)
    await machine.inventory.rescan()
    machine.restart()
    await machine.inventory.rescan()
    (port,) = machine.ports()
    assert (port["state"], port["why"]) == ("unavailable", "gone")
    machine.restart()
    await machine.inventory.rescan()
    assert machine.ports() == [port]
    assert machine.changes == 2


async def test_a_person_may_say_that_it_is_gone_for_good(tmp_path: Path) -> None:
    machine = Machine(tmp_path, WHOLE, BARE)
    await machine.inventory.rescan()
    await machine.inventory.rescan()
    assert machine.ports()
    await machine.inventory.rescan(forget=True)
    assert machine.ports() == []


@pytest.mark.parametrize("text", ["{", '{"format": 1, "tables": {"hardware": {"1": {"facts": {"cpus": "many"}}}}}'])
async def test_a_damaged_document_is_no_reason_not_to_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "hardware.json").write_text(text)
    machine = Machine(tmp_path, WHOLE)
    await machine.inventory.rescan()
    assert machine.ports()
    machine.inventory.close()


async def test_a_scan_that_hangs_leaves_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, WHOLE)
    await machine.inventory.rescan()
    machine.restart()
    held = threading.Event()
    monkeypatch.setattr(machine.inventory, "_scan", lambda: held.wait() and BARE)
    monkeypatch.setattr(inventory, "WITHIN", 0.01)
    with pytest.raises(EdgePandaError, match="has not ended") as caught:
        await machine.inventory.rescan()
    assert caught.value.code == "timeout"
    assert machine.ports()
    await machine.inventory.look()
    held.set()


async def test_a_scan_that_fails_leaves_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, WHOLE)
    await machine.inventory.rescan()

    def broken() -> Hardware:
        raise ZeroDivisionError

    monkeypatch.setattr(machine.inventory, "_scan", broken)
    await machine.inventory.look()
    assert machine.ports()


async def test_two_that_ask_at_once_share_one_scan(tmp_path: Path) -> None:
    machine = Machine(tmp_path, WHOLE, BARE)
    await asyncio.gather(machine.inventory.rescan(), machine.inventory.rescan())
    assert machine.found == [BARE]
    assert machine.changes == 1
