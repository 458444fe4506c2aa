"""One SQLite file with one writer thread whose commits are shared by everything that waits at that moment.

A write is queued when it is asked for and runs in that order. The thread takes all that is queued, runs it in one
transaction, commits (WAL, `synchronous=FULL`: one fsync), and wakes each event loop once. While a commit is under way
the next batch gathers, so the price of the fsync is spread over more work the more there is to do.

A write that fails takes nobody with it: the transaction is rolled back and run again with a savepoint for each write.
What the disk refuses (full, read-only, damaged) fails every write of that commit, and the next one tries afresh.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as ThreadFuture
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeVar

from edgepanda.sqlite_file import Format, connect, connect_readonly, prepare, translate
from edgepanda.storage import FileLock, make_folder, storage_error

__all__ = ["Applier", "Format", "Store", "put_rows"]

MAX_BATCH = 1024  # writes in one transaction: bounds what one commit can delay
MAX_QUEUE = 65_536  # writes that wait; more are refused with `storage_busy`
_CHUNKS = (64, 32, 16, 8, 4, 2, 1)

T = TypeVar("T")
Row = tuple[Any, ...]


class Applier(Protocol):
    """Runs writes of one kind on the writer thread, several at once, within the transaction of the moment.

    `apply` gets what was given to `Store.submit`, in order, and gives one result for each. It may be called again with
    the same items after a rollback, so it keeps nothing of its own that `rolled_back` does not forget. It neither
    begins nor commits.
    """

    def apply(self, connection: sqlite3.Connection, items: Sequence[Any]) -> Sequence[Any]:
        """Do the items in order; one result each."""

    def committed(self) -> None:
        """What was applied since the last call is on disk."""

    def rolled_back(self) -> None:
        """Some of what was applied since the last commit is undone: whatever was kept must be read again."""


class _Calls:
    """The applier behind `Store.write`: each item is a function of the connection."""

    def apply(self, connection: sqlite3.Connection, items: Sequence[Callable[[sqlite3.Connection], Any]]) -> list[Any]:
        return [function(connection) for function in items]

    def committed(self) -> None:
        pass

    def rolled_back(self) -> None:
        pass


class _Job:
    """One queued write, its outcome, and who waits for it."""

    __slots__ = ("applier", "error", "item", "loop", "result", "waiter")

    def __init__(self, applier: Applier, item: Any, waiter: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.applier = applier
        self.item = item
        self.waiter = waiter
        self.loop = loop
        self.result: Any = None
        self.error: BaseException | None = None


class Store:
    """An open SQLite file: group-committed writes, fast reads. Made by `Store.open` or `Store.open_readonly`."""

    def __init__(self, path: Path, writer: sqlite3.Connection | None, reader: sqlite3.Connection) -> None:
        self.path = path
        self.writable = writer is not None
        self._writer = writer
        self._reader = reader
        self._lock: FileLock | None = None
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._calls = _Calls()
        self._closed = False
        self._thread: threading.Thread | None = None

    @classmethod
    def open(cls, path: Path | str, file_format: Format) -> Store:
        """Open or create for writing; this process is then the only one that may.

        Raises `StorageError`: `storage_locked`, `storage_newer`, `storage_foreign`, `storage_damaged`,
        `storage_readonly`, `storage_full`, `storage_unwritable`.
        """
        path = Path(path)
        make_folder(path.parent)
        lock = FileLock(path)
        lock.acquire()
        try:
            writer = prepare(path, file_format)
            store = cls(path, writer, connect(path, query_only=True, cache_kib=file_format.cache_kib))
        except BaseException:
            lock.release()
            raise
        store._lock = lock
        store._thread = threading.Thread(target=store._run, name=f"store-{path.name}", daemon=True)
        store._thread.start()
        return store

    @classmethod
    def open_readonly(cls, path: Path | str, file_format: Format) -> Store:
        """Open to look only, also beside the process that writes it. Raises like `open`, without `storage_locked`."""
        path = Path(path)
        return cls(path, None, connect_readonly(path, file_format))

    def submit(self, applier: Applier, item: Any) -> asyncio.Future[Any]:
        """Queue one item for an applier; the future gets its result after the commit.

        The order of calls is the order of work, whether they are awaited or not. Cancelling the future does not take
        the write back. Raises `storage_closed`, `storage_readonly`, `storage_busy` at once.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Any] = loop.create_future()
        self._enqueue(_Job(applier, item, waiter, loop))
        return waiter

    def submit_now(self, applier: Applier, item: Any, timeout: float = 60.0) -> Any:
        """Like `submit` for a thread without an event loop: waits up to `timeout` seconds for the commit."""
        waiter: ThreadFuture[Any] = ThreadFuture()
        self._enqueue(_Job(applier, item, waiter, None))
        return waiter.result(timeout)

    def write(self, function: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run a function within the next shared transaction; the future gets its result after the commit.

        The function runs on the writer thread, neither begins nor commits, and may be run a second time after a
        rollback, so it changes nothing but the database. Order and errors are those of `submit`.
        """
        return self.submit(self._calls, function)

    def write_now(self, function: Callable[[sqlite3.Connection], T], timeout: float = 60.0) -> T:
        """Like `write` for a thread without an event loop: waits up to `timeout` seconds for the commit."""
        result: T = self.submit_now(self._calls, function, timeout)
        return result

    def read(self, sql: str, args: Sequence[Any] = ()) -> list[Row]:
        """The rows that a query gives of what is committed. For one thread, and for look-ups that an index answers."""
        if self._closed:
            raise storage_error("storage_closed", self.path, "the file is closed")
        try:
            return self._reader.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            raise translate(error, self.path, "read") from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own that sees one unchanging state, for long reads on any thread."""
        connection = connect(self.path, query_only=True) if self.writable else connect_readonly(self.path, None)
        try:
            connection.execute("BEGIN")
            yield connection
        except sqlite3.Error as error:
            raise translate(error, self.path, "read") from error
        finally:
            connection.close()

    def close(self) -> None:
        """Finish what is queued, fold the write-ahead log into the file, let go of the lock; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._reader.close()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        if self._writer is not None:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._writer.close()
        if self._lock is not None:
            self._lock.release()

    def _enqueue(self, job: _Job) -> None:
        if self._closed:
            raise storage_error("storage_closed", self.path, "the file is closed")
        if not self.writable:
            raise storage_error("storage_readonly", self.path, "the file was opened to look only")
        if self._queue.qsize() >= MAX_QUEUE:
            raise storage_error("storage_busy", self.path, f"{MAX_QUEUE} writes are waiting already")
        self._queue.put(job)

    # The writer thread.

    def _run(self) -> None:
        last = False
        while not last:
            batch, last = self._gather()
            if batch:
                self._commit(batch)
                _deliver(batch)

    def _gather(self) -> tuple[list[_Job], bool]:
        job = self._queue.get()
        batch: list[_Job] = []
        while job is not None:
            batch.append(job)
            if len(batch) >= MAX_BATCH:
                return batch, False
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: list[_Job]) -> None:
        try:
            self._together(batch)
        except BaseException as error:  # whatever it is, somebody waits for it, and the thread goes on
            self._rollback(batch)
            if _is_disk(error):
                self._fail(batch, error)
            elif len(batch) == 1:
                batch[0].error = self._readable(error)
            else:
                self._commit_singly(batch)

    def _together(self, batch: list[_Job]) -> None:
        assert self._writer is not None  # noqa: S101 - only a writable store has a writer thread
        self._writer.execute("BEGIN IMMEDIATE")
        for applier, group in groupby(batch, key=lambda job: job.applier):
            jobs = list(group)
            results = applier.apply(self._writer, [job.item for job in jobs])
            for job, result in zip(jobs, results, strict=True):
                job.result = result
        self._writer.execute("COMMIT")
        for applier in _appliers(batch):
            applier.committed()

    def _commit_singly(self, batch: list[_Job]) -> None:
        try:
            self._one_by_one(batch)
        except BaseException as error:
            self._rollback(batch)
            self._fail(batch, error)

    def _one_by_one(self, batch: list[_Job]) -> None:
        assert self._writer is not None  # noqa: S101
        self._writer.execute("BEGIN IMMEDIATE")
        for job in batch:
            self._writer.execute("SAVEPOINT job")
            try:
                job.result = job.applier.apply(self._writer, [job.item])[0]
            except BaseException as error:
                if _is_disk(error):
                    raise
                job.error = self._readable(error)
                self._writer.execute("ROLLBACK TO job")
                job.applier.rolled_back()
            self._writer.execute("RELEASE job")
        self._writer.execute("COMMIT")
        for applier in _appliers(batch):
            applier.committed()

    def _rollback(self, batch: list[_Job]) -> None:
        assert self._writer is not None  # noqa: S101
        if self._writer.in_transaction:  # some disk errors have rolled back already
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")
        for applier in _appliers(batch):
            applier.rolled_back()

    def _fail(self, batch: list[_Job], error: BaseException) -> None:
        for job in batch:  # an error object each: one that is raised in many places gathers all their tracebacks
            job.error = self._readable(error)

    def _readable(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error):
            return error
        readable = translate(error, self.path, "write")
        readable.__cause__ = error
        return readable


def put_rows(connection: sqlite3.Connection, head: str, rows: Sequence[Row], tail: str = "") -> None:
    """Insert rows with few statements: `head` is `INSERT INTO table(columns) VALUES`, `tail` an `ON CONFLICT` clause.

    A statement releases and takes back the interpreter's lock, and beside a busy event loop that costs far more than
    the rows do. Chunks are powers of two, so there are few distinct statements and all of them stay prepared.
    """
    start = 0
    while start < len(rows):
        size = next(size for size in _CHUNKS if size <= len(rows) - start)
        one = f"({','.join('?' * len(rows[0]))})"
        values = [value for row in rows[start : start + size] for value in row]
        connection.execute(f"{head} {','.join([one] * size)} {tail}", values)
        start += size


def _appliers(batch: list[_Job]) -> list[Applier]:
    return list({id(job.applier): job.applier for job in batch}.values())


def _is_disk(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    disk = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT)
    return code & 0xFF in (*disk, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN)


def _deliver(batch: list[_Job]) -> None:
    for loop, group in groupby(batch, key=lambda job: job.loop):
        jobs = list(group)
        if loop is None:
            _settle(jobs)
            continue
        with contextlib.suppress(RuntimeError):  # a loop that is closed has nobody left who waits
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.waiter.done():
            continue
        if job.error is not None:
            job.waiter.set_exception(job.error)
        else:
            job.waiter.set_result(job.result)
