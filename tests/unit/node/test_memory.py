"""Positions: believed only when written at rest, never after an interrupted move."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from edgepanda.node import memory as memory_module
from edgepanda.node.memory import Memory
from edgepanda.storage import StorageError


def opened(folder: Path) -> Memory:
    return Memory(folder / "positions.json")


def again(memory: Memory, folder: Path) -> Memory:
    """Killed: nothing more is written."""
    memory._documents.close()
    return opened(folder)


async def moved(memory: Memory, angle: float) -> None:
    memory.before_move("pan")
    memory.state("pan", {"angle": angle})
    memory.at_rest("pan")
    await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "REST", 0.0)


async def test_a_position_is_known_after_it_came_to_rest(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    assert memory.known("pan") is None
    await moved(memory, 30.0)
    assert memory.known("pan") == {"angle": 30.0}
    memory = again(memory, tmp_path)
    assert memory.known("pan") == {"angle": 30.0}
    memory.close()


async def test_a_move_that_was_cut_short_leaves_nothing_known(tmp_path: Path) -> None:
    memory = opened(tmp_path)
    await moved(memory, 30.0)
    memory.before_move("pan")
    memory.state("pan", {"angle": 45.0})
    memory = again(memory, tmp_path)
    assert memory.known("pan") is None
    memory.close()


async def test_a_device_that_moves_by_itself_is_written_anew(tmp_path: Path) -> None:
    """To its safe state when the node ends: the old position must not be believed at the next start."""
    memory = opened(tmp_path)
    await moved(memory, 30.0)
    memory.state("pan", {"angle": 0.0})
    memory.close()
    memory = opened(tmp_path)
    assert memory.known("pan") == {"angle": 0.0}
    memory.state("pan", {"angle": 12.0})
    memory = again(memory, tmp_path)
    assert memory.known("pan") is None
    memory.close()


async def test_what_is_said_again_or_of_what_nobody_keeps_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = opened(tmp_path)
    await moved(memory, 30.0)
    written: list[str] = []
    monkeypatch.setattr(memory, "_write", lambda device, row: written.append(device))
    memory.state("pan", {"angle": 30.0})
    memory.state("lamp", {"on": True})
    memory.close()
    assert written == []


async def test_one_mark_is_enough_for_moves_that_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "REST", 60.0)
    memory = opened(tmp_path)
    written: list[object] = []
    write = memory._write
    monkeypatch.setattr(memory, "_write", lambda device, row: (written.append(row), write(device, row)))
    for angle in range(5):
        memory.before_move("pan")
        memory.state("pan", {"angle": angle})
        memory.at_rest("pan")
    assert written == [{"moving": True}]
    memory.close()
    memory = opened(tmp_path)
    assert memory.known("pan") == {"angle": 4}
    memory.close()


async def test_a_disk_that_refuses_is_no_reason_not_to_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = opened(tmp_path)

    class Full:
        def all(self) -> list[object]:
            return []

        def upsert(self, _row: object) -> None:
            raise StorageError("full", code="storage_full", where="here")

    monkeypatch.setattr(memory._documents, "table", lambda _name: Full())
    await moved(memory, 30.0)
    memory.close()
