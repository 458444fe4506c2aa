"""The folders that ended attempts leave below `work/`: as many as an SD card has room for, the newest first.

What a report tells of is kept until the coordinator has the report, and what still runs keeps its folder, whatever the
bounds. Age does not count: a clock that jumps by a year would remove everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from edgepanda.model.ids import is_task_id

log = logging.getLogger("edgepanda.node")

MOST_FOLDERS = 500  # of ended attempts
MOST_BYTES = 256 * 1024 * 1024  # on disk, of these together; the newest is kept in any case
LOOK_EVERY = 60.0  # seconds between looks, which remove something only where a folder has come since the last


def tidy(folder: Path, kept: Collection[str]) -> int:
    """Remove what is beyond the bounds, oldest first; how many went. It may take seconds.

    `kept` are names (`TASK.ATTEMPT`) that stay and do not count. What cannot be removed stays, and is said.
    """
    removed = count = size = 0
    for _, path in sorted(_ended(folder, kept), reverse=True):
        count, size = count + 1, size + (used := _bytes(path))
        if count > 1 and (count > MOST_FOLDERS or size > MOST_BYTES):
            try:
                shutil.rmtree(path)
            except OSError as error:
                log.warning("%s cannot be removed: %s; `sudo rm -r %s` does it", path, error.strerror or error, path)
                continue
            removed += 1
            size -= used
    return removed


async def keep_tidy(folder: Path, kept: Callable[[], Collection[str]]) -> None:
    """Tidy now and, where folders have come since, at each `LOOK_EVERY`; until cancelled."""
    seen: int | None = None
    while True:
        changed = _changed(folder)
        if changed not in (None, seen):
            removed = await asyncio.to_thread(tidy, folder, frozenset(kept()))
            seen = changed  # as it was before: what came meanwhile is seen at the next look
            if removed:
                log.info("%d folders of ended attempts were removed from %s", removed, folder)
        await asyncio.sleep(LOOK_EVERY)


def _changed(folder: Path) -> int | None:
    """When a folder last came or went; None before any attempt had one."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None


def _ended(folder: Path, kept: Collection[str]) -> Iterator[tuple[int, Path]]:
    """When each folder of an ended attempt was last changed, and where it is; what is nobody's attempt is not ours."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            task, _, number = entry.name.rpartition(".")
            if (
                entry.name not in kept
                and number.isdecimal()
                and is_task_id(task)
                and entry.is_dir(follow_symlinks=False)
            ):
                yield entry.stat(follow_symlinks=False).st_mtime_ns, Path(entry.path)


def _bytes(folder: Path) -> int:
    """What a folder takes on disk; what cannot be looked at counts nothing."""
    return sum(
        os.lstat(os.path.join(place, name)).st_blocks * 512
        for place, _, names in os.walk(folder)
        for name in names
        if os.path.lexists(os.path.join(place, name))
    )
