"""The record of emergency stops: a flood of them, a release that had not seen all, a disk that is blocked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgepanda.model.stops import MOST_PLAIN
from edgepanda.stops_file import StopsFile


class Kept:
    """A file, and how often it has told."""

    def __init__(self, folder: Path) -> None:
        self.acted = self.changed = 0
        self.file = StopsFile(folder / "stops.json", on_stop=self._act, on_change=self._change)

    def _act(self) -> None:
        self.acted += 1

    def _change(self) -> None:
        self.changed += 1

    def ids(self) -> tuple[str, ...]:
        return tuple(each.id for each in self.file.stops.standing)


async def test_a_flood_of_plain_stops_costs_what_a_few_of_them_do(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for number in range(10_000):
        kept.file.stop(door="site", reason=f"flood {number}")
    assert (len(kept.ids()), kept.acted) == (MOST_PLAIN, MOST_PLAIN)
    await until(lambda: kept.changed)
    assert kept.changed == 1  # told together
    kept.file.stop(door="input", by="button")
    kept.file.stop(door="site", by="me", reason="in earnest", origin="o1")
    assert kept.acted == MOST_PLAIN + 2
    kept.file.close()
    again = Kept(tmp_path)
    assert again.ids() == kept.ids()
    again.file.close()


async def test_what_was_said_while_others_stood_stands_after_their_release(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.file.stop(door="site", reason="help")
    seen = kept.ids()
    kept.file.stop(door="site", reason="help")  # somebody means it again
    kept.file.release(seen, "me")
    assert kept.file.in_force
    assert not set(kept.ids()) & set(seen)
    kept.file.release(kept.ids(), "me")
    assert not kept.file.in_force
    kept.file.close()


async def test_a_released_stop_that_comes_again_does_not_count_as_said_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.file.stop(door="site", by="me", origin="o1")
    kept.file.stop(door="site", by="me", origin="o1")
    kept.file.release(kept.ids(), "me")
    kept.file.stop(door="site", by="me", origin="o1")
    assert not kept.file.in_force
    kept.file.close()


async def test_a_disk_that_is_blocked_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "stops.json.new")  # whoever opens it to write waits for a reader
    kept = Kept(tmp_path)
    kept.file.stop(door="site", reason="now")
    await until(lambda: kept.changed)  # the write has begun, and the loop goes on
    kept.file.stop(door="site", reason="and again")
    assert kept.acted == 2
    reading = asyncio.create_task(asyncio.to_thread(_read, tmp_path / "stops.json.new"))
    await asyncio.to_thread(kept.file.close)
    await reading
    again = Kept(tmp_path)
    assert [each.reason for each in again.file.stops.standing] == ["now", "and again"]
    again.file.close()


async def until(holds: Callable[[], Any]) -> None:
    while not holds():  # noqa: ASYNC110 a timer sets no event of ours
        await asyncio.sleep(0)


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        return file.read()
