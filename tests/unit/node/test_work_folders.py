"""Folders of ended attempts: bounded in number and bytes, the newest stay, and so does whatever is still needed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from edgepanda.node import work_folders
from edgepanda.node.work_folders import keep_tidy, tidy


def make(folder: Path, name: str, age: int, size: int = 10) -> None:
    (folder / name / "inner").mkdir(parents=True)
    (folder / name / "inner" / "output").write_bytes(b"x" * size)
    os.utime(folder / name, (1000 - age, 1000 - age))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for age in range(6):
        make(tmp_path, f"task-{age:04}.1", age)
    return tmp_path


def test_the_newest_stay_and_what_is_needed_does_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folders, "MOST_FOLDERS", 2)
    assert tidy(folder, {"task-0005.1", "task-0000.1"}) == 2
    assert names(folder) == ["task-0000.1", "task-0001.1", "task-0002.1", "task-0005.1"]


def test_bytes_are_bounded_and_the_newest_stays_in_any_case(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folders, "MOST_BYTES", 100_000)
    make(folder, "task-0002.2", 2, size=90_000)
    make(folder, "task-0009.1", -1, size=200_000)
    tidy(folder, ())
    assert names(folder) == ["task-0009.1"]
    (folder / "task-0009.1" / "inner" / "output").unlink()
    make(folder, "task-0010.1", -2)
    assert tidy(folder, ()) == 0


def test_what_is_no_attempts_folder_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folders, "MOST_FOLDERS", 0)
    elsewhere = folder / "precious"
    make(folder, "precious", 100)
    (folder / "task-0020.1").symlink_to(elsewhere)
    (folder / "task-0021.1").write_text("a file")
    tidy(folder, ())
    assert names(folder) == ["precious", "task-0000.1", "task-0020.1", "task-0021.1"]
    assert (elsewhere / "inner" / "output").exists()


async def test_a_folder_that_comes_later_is_looked_at_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folders, "MOST_FOLDERS", 1)
    monkeypatch.setattr(work_folders, "LOOK_EVERY", 0.01)
    kept = {"task-0005.1"}
    tidying = asyncio.create_task(keep_tidy(folder, lambda: kept))
    async with asyncio.timeout(10):
        while names(folder) != ["task-0000.1", "task-0005.1"]:  # noqa: ASYNC110 a file system tells nobody
            await asyncio.sleep(0.01)
        kept.clear()
        make(folder, "task-0009.1", -9)
        while names(folder) != ["task-0009.1"]:  # noqa: ASYNC110 a file system tells nobody
            await asyncio.sleep(0.01)
    tidying.cancel()


async def test_without_a_folder_there_is_nothing_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_folders, "LOOK_EVERY", 0.0)
    tidying = asyncio.create_task(keep_tidy(tmp_path / "none", lambda: ()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not tidying.done()
    tidying.cancel()
