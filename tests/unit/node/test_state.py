"""A node whose state folder cannot be written: it goes on in memory, and brings back what it kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepanda import spare_folder, spare_state
from edgepanda.cli.local import LocalNode
from edgepanda.model.config import Config, Loaded, Site
from edgepanda.model.task import Task
from edgepanda.node import state as states
from edgepanda.node.attempt import new_row
from edgepanda.node.journal import Journal, OutboxItem
from edgepanda.node.state import WritableAgain, open_state, until_writable
from edgepanda.storage import StorageError
from tests.rig.without_root import without_root


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with without_root() as folder:
        (folder / "memory").mkdir()
        monkeypatch.setattr(spare_folder, "MEMORY", folder / "memory")
        (folder / "state").mkdir()
        try:
            yield folder / "state"
        finally:
            (folder / "state").chmod(0o700)


def used(home: Path) -> int:
    """A node has worked here; how many starts it counted."""
    journal = Journal.open(home / "journal.db")
    asyncio.run(_work(journal, "task-0001"))
    journal.close()
    (home / "stops.json").write_text("as it was")
    return journal.incarnation


async def _work(journal: Journal, task: str) -> None:
    row = new_row(Task(id=task, capability="a.b"), 1, None, "run", "began")
    await journal.record(row, outbox=[OutboxItem(f"report-{task}", "t", b"{}")])


@contextlib.contextmanager
def read_only(home: Path, *, files: bool) -> Iterator[None]:
    for path in home.iterdir() if files else ():
        path.chmod(0o400)
    home.chmod(0o500)
    try:
        yield
    finally:
        home.chmod(0o700)
        for path in home.iterdir():
            path.chmod(0o600)


@pytest.mark.parametrize("files", [True, False], ids=["all", "folder"])
def test_what_was_known_goes_on_in_memory_and_what_came_is_brought_back(home: Path, files: bool) -> None:
    starts = used(home)
    with read_only(home, files=files):
        state = open_state(home)
        assert state.problem is not None
        assert (state.problem.code in spare_state.UNWRITABLE, state.problem.where) == (True, str(home))
        assert [row.task for row in state.journal.open_attempts()] == ["task-0001"]
        assert state.journal.incarnation == starts + 1
        asyncio.run(_work(state.journal, "task-0002"))
        (state.folder / "stops.json").write_text("one more")
        state.journal.close()
        again = open_state(home)  # the process was killed and started anew, and the disk is as it was
        assert (again.journal.incarnation, len(again.journal.open_attempts())) == (starts + 2, 2)
        again.journal.close()
        assert (home / "stops.json").read_text() == "as it was"
    state = open_state(home)
    assert (state.problem, state.folder) == (None, home)
    assert [item.id for item in state.journal.outbox()] == ["report-task-0001", "report-task-0002"]
    assert (state.journal.incarnation, (home / "stops.json").read_text()) == (starts + 3, "one more")
    assert not spare_folder.spare_folder(home).exists()
    state.journal.close()


def test_what_is_brought_back_waits_for_a_disk_that_takes_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used(home)
    with read_only(home, files=True):
        state = open_state(home)
        asyncio.run(_work(state.journal, "task-0002"))
        state.journal.close()

    def full(*_: object) -> None:
        raise StorageError("full", code="storage_full", where=str(home))

    with monkeypatch.context() as patch:
        patch.setattr(spare_state, "_copy_store", full)
        state = open_state(home)
        assert (state.problem is not None, len(state.journal.open_attempts())) == (True, 2)
        state.journal.close()
    state = open_state(home)
    assert (state.problem, len(state.journal.open_attempts())) == (None, 2)
    state.journal.close()


def test_damage_is_no_reason_to_work_in_memory(home: Path) -> None:
    used(home)
    (home / "journal.db").write_bytes(b"SQLite format 3\0 and then rubbish" * 200)
    with pytest.raises(StorageError) as caught:
        open_state(home)
    assert caught.value.code == "storage_damaged"
    assert not spare_folder.spare_folder(home).exists()


def test_a_process_that_has_the_state_open_keeps_it(home: Path) -> None:
    used(home)
    first = open_state(home)
    with read_only(home, files=True), pytest.raises(StorageError) as caught:
        open_state(home)
    assert caught.value.code == "storage_locked"
    first.journal.close()


def test_what_was_kept_for_another_node_in_the_same_place_is_put_aside(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used(home)
    with read_only(home, files=True):
        open_state(home).journal.close()
    (home / "journal.db").unlink()
    (home / "keys").mkdir()
    (home / "keys" / "node.key").write_text("a new one")
    state = open_state(home)
    assert (state.problem, state.journal.open_attempts(), state.journal.incarnation) == (None, [], 1)
    assert "another node" in caplog.text
    assert not spare_folder.spare_folder(home).exists()
    state.journal.close()


def test_a_folder_that_a_stranger_has_made_in_memory_is_not_used(home: Path) -> None:
    used(home)
    spare_folder.spare_folder(home).symlink_to(home.parent)
    with read_only(home, files=True), pytest.raises(StorageError) as caught:
        open_state(home)
    assert caught.value.code == "storage_readonly"
    assert str(spare_folder.MEMORY) in str(caught.value.where)
    state = open_state(home)  # and with the disk in order it is nobody's business
    assert state.problem is None
    state.journal.close()


async def test_a_node_begins_anew_when_its_disk_is_back_and_nothing_runs(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "LOOK_EVERY", 0.01)
    state = await asyncio.to_thread(open_state, home)
    await until_writable(state, lambda: True)
    state.journal.close()
    with read_only(home, files=True):
        state = open_state(home)
    busy = [True, False]
    with pytest.raises(WritableAgain):
        await until_writable(state, lambda: not (busy and busy.pop(0)))
    state.journal.close()


def test_the_command_line_finds_the_socket_in_memory(home: Path) -> None:
    loaded = Loaded(Config(site=Site(name="home")), home / "edgepanda.toml", home)
    assert LocalNode.of(loaded).path == home / "run" / "node.sock"
    found = spare_folder.spare_folder(home) / "run" / "node.sock"
    found.parent.mkdir(parents=True)
    found.touch()
    assert LocalNode.of(loaded).path == found
