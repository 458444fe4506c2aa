"""Ledger and journal, cut at the bytes of their last transaction and reopened: the state is the one before or the one
after, the chain holds, and what cannot be used is said and left as it is.

A power cut leaves any prefix of what was being written, or a part of it as rubbish. By default some bytes are tried;
`EDGEPANDA_EVERY_BYTE=1 pytest -n0 tests/unit/test_cut_files.py` tries all of them (half an hour).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgepanda.coordinator.ledger import Event, Ledger, TaskRow
from edgepanda.node.journal import AttemptRow, Journal, OutboxItem
from edgepanda.storage import StorageError

EVERY = bool(os.environ.get("EDGEPANDA_EVERY_BYTE"))
TRIED = 40  # cuts of a kind, unless every byte is tried
Image = tuple[bytes, bytes]  # the file and its write-ahead log


class LedgerFile:
    """A ledger, and all that can be known of it."""

    async def write(self, path: Path, number: int) -> None:
        ledger = self.opened = getattr(self, "opened", None) or Ledger.open(path, clock=lambda: 1000.0)
        task = f"task-{number:04}"
        row = TaskRow(task, "queued", "a.b", None, 1.0, 2.0, "d" * 64, b"{}")
        await ledger.append(
            [Event("submitted", task, None, b'{"n":%d}' % number)], tasks=[row], counters=[("k", number, 1)]
        )

    def close(self) -> None:
        self.opened.close()

    def state(self, path: Path) -> Any:
        """Raises `StorageError`."""
        ledger = Ledger.open(path)
        try:
            proof = ledger.verify()
            assert proof.ok, proof
            return ledger.id, ledger.head, ledger.live_tasks(), ledger.events(), ledger.counts(), ledger.counter("k")
        finally:
            ledger.close()


class JournalFile:
    """A journal, and all that can be known of it but the number of its starts."""

    async def write(self, path: Path, number: int) -> None:
        journal = self.opened = getattr(self, "opened", None) or Journal.open(path, clock=lambda: 1000.0)
        row = AttemptRow(
            task=f"task-{number:04}",
            attempt=1,
            state="began",
            capability="a.b",
            device=None,
            action="b",
            replay="unsafe",
            lease=b"{}",
        )
        await journal.record(row, outbox=[OutboxItem(f"report-{number}", "t", b"{}")])

    def close(self) -> None:
        self.opened.close()

    def state(self, path: Path) -> Any:
        """Raises `StorageError`."""
        journal = Journal.open(path)
        try:
            return journal.open_attempts(), journal.outbox(), journal.waiting
        finally:
            journal.close()


FILES = {"ledger": LedgerFile, "journal": JournalFile}


class Cuts:
    """A file before and after its last transaction, and a place where its damaged copies are opened."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, FILES[kind]()
        source = folder / "source.db"
        asyncio.run(self._make(source))
        self.old, self.new = self.state(self.before), self.state(self.after)
        assert self.old != self.new

    async def _make(self, path: Path) -> None:
        for number in range(3):
            await self.kind.write(path, number)
        self.before = image(path)
        await self.kind.write(path, 3)
        self.after = image(path)
        self.kind.close()
        self.closed = image(path)

    def put(self, cut: Image) -> Path:
        path = self.folder / "cut.db"
        for end in ("", "-wal", "-shm", ".lock"):
            path.with_name(path.name + end).unlink(missing_ok=True)
        path.write_bytes(cut[0])
        if cut[1]:
            path.with_name(path.name + "-wal").write_bytes(cut[1])
        return path

    def state(self, cut: Image) -> Any:
        return self.kind.state(self.put(cut))


def image(path: Path) -> Image:
    """Both files as they are on disk now."""
    log = path.with_name(path.name + "-wal")
    return path.read_bytes(), log.read_bytes() if log.exists() else b""


def places(start: int, end: int) -> Iterator[int]:
    """Some of these, with both ends and their neighbours; or all."""
    step = 1 if EVERY else max(1, (end - start) // TRIED)
    yield from sorted({*range(start, end + 1, step), start, start + 1, end - 1, end})


@pytest.fixture(params=list(FILES))
def cuts(request: pytest.FixtureRequest, tmp_path: Path) -> Cuts:
    return Cuts(tmp_path, request.param)


def test_a_log_that_ends_anywhere_in_the_last_transaction_gives_the_state_before_or_after(cuts: Cuts) -> None:
    file, log = cuts.after
    seen = []
    for end in places(len(cuts.before[1]), len(log)):
        state = cuts.state((file, log[:end]))
        assert state in (cuts.old, cuts.new), end
        seen.append(state == cuts.new)
    assert seen == sorted(seen)  # once it is there, it stays
    assert (seen[0], seen[-1]) == (False, True)


@pytest.mark.parametrize("filler", [b"\0", b"\xff"])
def test_a_log_whose_last_transaction_became_rubbish_gives_the_state_before_or_after(cuts: Cuts, filler: bytes) -> None:
    file, log = cuts.after
    for end in places(len(cuts.before[1]), len(log) - 1):
        state = cuts.state((file, log[:end] + filler * (len(log) - end)))
        assert state in (cuts.old, cuts.new), end


def test_folding_the_log_into_the_file_may_stop_at_any_byte(cuts: Cuts) -> None:
    file, log = cuts.after
    whole = cuts.closed[0]
    for end in places(0, len(whole)):
        assert cuts.state((whole[:end] + file[end:], log)) == cuts.new, end


def test_a_file_that_is_cut_itself_is_said_to_be_damaged_and_left_as_it_is(cuts: Cuts) -> None:
    whole = cuts.closed[0]
    for end in places(0, len(whole) - 1):
        path = cuts.put((whole[:end], b""))
        with pytest.raises(StorageError) as caught:
            cuts.kind.state(path)
        assert caught.value.code in ("storage_damaged", "storage_foreign"), end
        assert (caught.value.where, bool(caught.value.cure)) == (str(path), True)
        assert path.read_bytes() == whole[:end]
