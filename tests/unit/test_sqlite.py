"""One SQLite file: shared commits, whose failure is whose, what the disk refuses, whose the file is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.sqlite import Format, Store, put_rows
from edgepanda.storage import StorageError
from tests.rig.without_root import without_root

FORMAT = Format("test file", 0x74657374, ("CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB);",))
NEWER = Format("test file", 0x74657374, (*FORMAT.steps, "ALTER TABLE t ADD COLUMN w TEXT DEFAULT 'new';"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "t.db"


@contextlib.contextmanager
def opened(path: Path, file_format: Format = FORMAT) -> Iterator[Store]:
    store = Store.open(path, file_format)
    try:
        yield store
    finally:
        store.close()


def insert(number: int):
    return lambda connection: connection.execute("INSERT INTO t (n) VALUES (?)", (number,)).lastrowid


def numbers(store: Store) -> list[int]:
    return [row[0] for row in store.read("SELECT n FROM t ORDER BY rowid")]


def test_a_write_gives_its_result_and_is_read_and_found_again(path: Path) -> None:
    async def main(store: Store) -> None:
        assert await store.write(insert(7)) == 7
        assert numbers(store) == [7]

    with opened(path) as store:
        asyncio.run(main(store))
    with opened(path) as store:
        assert numbers(store) == [7]


class Recorder:
    """An applier that notes what was applied together, and holds the first batch until it is let go."""

    def __init__(self, release: asyncio.Event | None = None) -> None:
        self.batches: list[list[int]] = []
        self.commits = 0
        self.rollbacks = 0

    def apply(self, connection: sqlite3.Connection, items: list[int]) -> list[int]:
        self.batches.append(list(items))
        put_rows(connection, "INSERT INTO t (n) VALUES", [(item,) for item in items])
        return [item * 10 for item in items]

    def committed(self) -> None:
        self.commits += 1

    def rolled_back(self) -> None:
        self.rollbacks += 1


def test_writes_that_wait_share_a_commit_and_keep_their_order(path: Path) -> None:
    recorder = Recorder()

    async def main(store: Store) -> None:
        started = threading.Event()
        first = store.write(lambda _: started.wait(5))  # holds the writer while the others gather
        waiters = [store.submit(recorder, n) for n in (5, 3, 9, 1)]
        started.set()
        assert await first
        assert await asyncio.gather(*waiters) == [50, 30, 90, 10]

    with opened(path) as store:
        asyncio.run(main(store))
    assert recorder.batches == [[5, 3, 9, 1]]
    assert (recorder.commits, recorder.rollbacks) == (1, 0)


def test_a_write_that_fails_takes_nobody_with_it(path: Path) -> None:
    recorder = Recorder()

    async def main(store: Store) -> None:
        started = threading.Event()
        first = store.write(lambda _: started.wait(5))
        waiters = [store.submit(recorder, n) for n in (1, 2, 1, 3)]
        bad = store.write(lambda _: 1 / 0)
        started.set()
        await first
        results = await asyncio.gather(*waiters, bad, return_exceptions=True)
        assert [results[0], results[1], results[3]] == [10, 20, 30]
        assert isinstance(results[2], StorageError)
        assert results[2].code == "storage_refused"
        assert isinstance(results[4], ZeroDivisionError)
        assert await store.write(insert(4)) == 4

    with opened(path) as store:
        asyncio.run(main(store))
        assert numbers(store) == [1, 2, 3, 4]
    assert recorder.commits == 1
    assert recorder.rollbacks >= 2


def test_a_caller_that_gives_up_disturbs_nobody(path: Path) -> None:
    async def main(store: Store) -> None:
        waiter = store.write(insert(1))
        waiter.cancel()
        await store.write(insert(2))
        assert numbers(store) == [1, 2]

    with opened(path) as store:
        asyncio.run(main(store))


@given(st.lists(st.tuples(st.integers(0, 2**40), st.binary(max_size=5)), max_size=300))
def test_rows_are_put_whatever_their_number(rows: list[tuple[int, bytes]]) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (n INTEGER, v BLOB)")
    put_rows(connection, "INSERT INTO t VALUES", rows)
    assert connection.execute("SELECT n, v FROM t ORDER BY rowid").fetchall() == rows
    connection.close()


def test_files_are_private_and_closing_leaves_no_log(path: Path) -> None:
    with opened(path) as store:
        store.write_now(insert(1))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert set(modes) == {"t.db", "t.db-wal", "t.db-shm", "t.db.lock"}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {file.name for file in path.parent.iterdir()} == {"t.db", "t.db.lock"}
    store.close()
    with pytest.raises(StorageError, match="closed"):
        store.read("SELECT 1")
    with pytest.raises(StorageError, match="closed"):
        store.write_now(insert(2))


def test_a_second_writer_is_told_who_has_the_file(path: Path) -> None:
    with opened(path), pytest.raises(StorageError, match=str(os.getpid())) as caught:
        Store.open(path, FORMAT)
    assert caught.value.code == "storage_locked"
    with opened(path):
        pass


def test_looking_only_works_beside_the_writer_and_alone(path: Path) -> None:
    with opened(path) as store:
        store.write_now(insert(1))
        reader = Store.open_readonly(path, FORMAT)
        store.write_now(insert(2))
        assert numbers(reader) == [1, 2]
        with pytest.raises(StorageError) as caught:
            reader.write_now(insert(3))
        assert caught.value.code == "storage_readonly"
        reader.close()
    reader = Store.open_readonly(path, FORMAT)
    with reader.snapshot() as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)
    reader.close()
    with pytest.raises(StorageError) as caught:
        Store.open_readonly(path.with_name("none.db"), FORMAT)
    assert caught.value.code == "storage_missing"


def test_a_snapshot_does_not_change_under_its_reader(path: Path) -> None:
    with opened(path) as store:
        store.write_now(insert(1))
        with pytest.raises(StorageError):
            store.read("DELETE FROM t")
        with store.snapshot() as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
            store.write_now(insert(2))
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)
            with pytest.raises(sqlite3.OperationalError):
                connection.execute("DELETE FROM t")


def test_an_older_file_is_brought_up_to_date_and_a_copy_kept(path: Path) -> None:
    with opened(path) as store:
        store.write_now(insert(1))
    with pytest.raises(StorageError) as caught:
        Store.open_readonly(path, NEWER)
    assert caught.value.code == "storage_older"
    with opened(path, NEWER) as store:
        assert store.read("SELECT n, w FROM t") == [(1, "new")]
    copy = path.with_name("t.db.v1")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with opened(copy) as store:
        assert numbers(store) == [1]


def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    with opened(path, NEWER):
        pass
    before = path.read_bytes()
    for opener in (Store.open, Store.open_readonly):
        with pytest.raises(StorageError) as caught:
            opener(path, FORMAT)
        assert caught.value.code == "storage_newer"
    assert path.read_bytes() == before


def test_a_migration_that_fails_changes_nothing(path: Path) -> None:
    with opened(path) as store:
        store.write_now(insert(1))
    broken = Format("test file", 0x74657374, (*FORMAT.steps, "CREATE TABLE u (n); INSERT INTO nowhere VALUES (1);"))
    with pytest.raises(StorageError):
        Store.open(path, broken)
    with opened(path) as store:
        assert store.read("SELECT name FROM sqlite_master WHERE name = 'u'") == []


def test_a_file_of_something_else_is_refused(path: Path) -> None:
    path.parent.mkdir()
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE x (y)")
    foreign.close()
    with pytest.raises(StorageError) as caught:
        Store.open(path, FORMAT)
    assert caught.value.code == "storage_foreign"
    path.write_text("no database, but long enough to be looked at as one " * 20)
    with pytest.raises(StorageError) as caught:
        Store.open(path, FORMAT)
    assert caught.value.code == "storage_damaged"


def test_a_full_file_system_fails_that_commit_and_the_next_works(path: Path) -> None:
    async def main(store: Store) -> None:
        pages = (await store.write(lambda c: c.execute("PRAGMA page_count").fetchone()))[0]
        await store.write(lambda c: c.execute(f"PRAGMA max_page_count={pages + 1}").fetchone())
        started = threading.Event()
        first = store.write(lambda _: started.wait(5))
        large = store.write(lambda c: c.execute("INSERT INTO t VALUES (1, zeroblob(100000))"))
        small = store.write(insert(2))
        started.set()
        for error in await asyncio.gather(first, large, small, return_exceptions=True):
            assert isinstance(error, StorageError)
            assert (error.code, error.where) == ("storage_full", str(path))
            assert error.cure
        assert numbers(store) == []
        await store.write(insert(3))
        assert numbers(store) == [3]

    with opened(path) as store:
        asyncio.run(main(store))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this user or container may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(store: Store, kept: list[int]) -> None:
    for number in range(100):
        store.write_now(lambda c, n=number: c.execute("INSERT INTO t VALUES (?, zeroblob(30000))", (n,)))
        kept.append(number)


def test_a_disk_that_fills_up_keeps_what_it_has_and_goes_on_with_room(tiny_disk: Path) -> None:
    path = tiny_disk / "t.db"
    with opened(path) as store:
        kept: list[int] = []
        with pytest.raises(StorageError) as caught:
            fill(store, kept)
        assert caught.value.code == "storage_full"
        assert numbers(store) == kept
    with opened(path) as store:  # closing has folded the log into the file, so there is room again
        assert numbers(store) == kept
        store.write_now(insert(1000))
        assert numbers(store) == [*kept, 1000]


LIMITED = """
import asyncio, resource, sys
from edgepanda.sqlite import Format, Store
from edgepanda.storage import StorageError
from tests.rig.without_root import without_root
store = Store.open(sys.argv[1], Format("test file", 0x74657374, ("CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB);",)))
put = lambda n, size: store.write_now(lambda c: c.execute("INSERT INTO t VALUES (?, zeroblob(?))", (n, size)))
put(1, 10)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    put(2, 500_000)
except StorageError as error:
    print(error.code)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
put(3, 10)
print(store.read("SELECT n FROM t"))
store.close()
"""


def test_a_write_that_the_system_refuses_fails_and_the_next_works(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["storage_unwritable", "[(1,), (3,)]"]


def test_a_read_only_folder_is_said_and_can_be_looked_at() -> None:
    with without_root() as folder:
        path = folder / "t.db"
        with opened(path) as store:
            store.write_now(insert(1))
        path.chmod(0o400)
        path.with_name("t.db.lock").unlink()
        folder.chmod(0o500)
        with pytest.raises(StorageError) as caught:
            Store.open(path, FORMAT)
        assert caught.value.code == "storage_readonly"
        reader = Store.open_readonly(path, FORMAT)
        assert numbers(reader) == [1]
        reader.close()
        folder.chmod(0o700)


KILLED = """
import asyncio, os, sys
from edgepanda.sqlite import Format, Store
store = Store.open(sys.argv[1], Format("test file", 0x74657374, ("CREATE TABLE t (n INTEGER PRIMARY KEY, v BLOB);",)))
async def writer(start):
    for n in range(start, 10**6, 8):
        await store.write(lambda c: c.execute("INSERT INTO t VALUES (?, zeroblob(300))", (n,)))
        os.write(1, b"%d\\n" % n)
async def main():
    await asyncio.gather(*[writer(n) for n in range(8)])
asyncio.run(main())
"""


def test_whatever_was_acknowledged_survives_a_kill(path: Path) -> None:
    for _ in range(2):  # the second round starts from what the first left behind
        path.unlink(missing_ok=True)
        child = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        acknowledged = [int(child.stdout.readline()) for _ in range(400)]
        child.kill()
        acknowledged += [int(line) for line in child.stdout.read().split(b"\n")[:-1]]
        child.wait()
        child.stdout.close()
        with opened(path) as store:
            assert set(acknowledged) <= set(numbers(store))


def test_a_queue_without_end_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepanda.sqlite.MAX_QUEUE", 3)

    async def main(store: Store) -> None:
        running, release = threading.Event(), threading.Event()
        first = store.write(lambda _: running.set() or release.wait(5))
        running.wait(5)
        waiters = [store.write(insert(n)) for n in range(3)]
        with pytest.raises(StorageError) as caught:
            store.write(insert(4))
        assert caught.value.code == "storage_busy"
        release.set()
        await asyncio.gather(first, *waiters)
        assert numbers(store) == [0, 1, 2]

    with opened(path) as store:
        asyncio.run(main(store))


def test_closing_finishes_what_is_queued(path: Path) -> None:
    async def main() -> None:
        store = Store.open(path, FORMAT)
        waiters = [store.write(insert(n)) for n in range(50)]
        store.close()
        assert await asyncio.gather(*waiters) == list(range(50))

    asyncio.run(main())
    with opened(path) as store:
        assert len(numbers(store)) == 50


def test_an_idle_file_is_not_written(path: Path) -> None:
    with opened(path) as store:
        store.write_now(insert(1))
        before = {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()}
        size = path.with_name("t.db-wal").stat().st_size
        store.write_now(lambda connection: connection.execute("DELETE FROM t WHERE n = 99").rowcount)
        numbers(store)
        assert path.with_name("t.db-wal").stat().st_size == size
        assert {file.name: file.stat().st_mtime_ns for file in path.parent.iterdir()} == before


def test_an_emptied_file_is_damaged_and_not_taken_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store.open(path, FORMAT).close()
    path.write_bytes(b"")
    with pytest.raises(StorageError) as caught:
        Store.open(path, FORMAT)
    assert caught.value.code == "storage_damaged"
    assert path.read_bytes() == b""
