"""Opening a SQLite file: whose it is, which format version it has, how it is brought up to date, what errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from edgepanda.storage import StorageError, from_os_error, fsync_folder, storage_error

AUTOCHECKPOINT_PAGES = 2000  # 8 MiB of log between checkpoints: fewer rewrites of the same pages on an SD card
BUSY_SECONDS = 10.0
_MAGIC, _HEAD = b"SQLite format 3\0", 100  # how each file of SQLite begins, and the bytes of its header

_CODES = {
    sqlite3.SQLITE_FULL: "storage_full",
    sqlite3.SQLITE_READONLY: "storage_readonly",
    sqlite3.SQLITE_PERM: "storage_readonly",
    sqlite3.SQLITE_CORRUPT: "storage_damaged",
    sqlite3.SQLITE_NOTADB: "storage_damaged",
    sqlite3.SQLITE_BUSY: "storage_locked",
    sqlite3.SQLITE_LOCKED: "storage_locked",
    sqlite3.SQLITE_IOERR: "storage_unwritable",
    sqlite3.SQLITE_CANTOPEN: "storage_unwritable",
}


@dataclass(frozen=True)
class Format:
    """What a kind of file contains. Step n, a script of SQL, takes a file from version n to n + 1.

    The version of the program is the number of its steps. A released step never changes; a new version adds one.
    `cache_kib` bounds the memory for pages, for each of the two connections.
    """

    name: str
    application_id: int
    steps: tuple[str, ...]
    cache_kib: int = 2000

    @property
    def version(self) -> int:
        """The version that files have after opening."""
        return len(self.steps)


def translate(error: sqlite3.Error, path: Path, doing: str) -> StorageError:
    """The storage error for what SQLite answered; what is no fault of the disk has the code `storage_refused`."""
    code = _CODES.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "storage_refused")
    return storage_error(code, path, f"cannot {doing}: {error}")


def connect(path: Path, *, query_only: bool = False, cache_kib: int = 2000) -> sqlite3.Connection:
    """A connection with the settings that every connection of a writing process has."""
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size={-cache_kib}")
    connection.execute(f"PRAGMA wal_autocheckpoint={AUTOCHECKPOINT_PAGES}")
    if query_only:
        connection.execute("PRAGMA query_only=ON")
    return connection


def prepare(path: Path, file_format: Format) -> sqlite3.Connection:
    """Open for writing, create what is missing, and bring an older file to the present version after copying it.

    A file that is there and empty has lost its content: a new one in its place would hide that.
    """
    _check_whole(path)
    _create_private(path)
    try:
        connection = connect(path, cache_kib=file_format.cache_kib)
    except sqlite3.Error as error:
        raise translate(error, path, f"open the {file_format.name}") from error
    try:
        version = _check(connection, path, file_format)
        connection.execute("PRAGMA journal_mode=WAL")
        if 0 < version < file_format.version:
            _keep_copy(connection, path, version)
        _migrate(connection, file_format, version)
    except sqlite3.Error as error:
        connection.close()
        raise translate(error, path, f"open the {file_format.name}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def connect_readonly(path: Path, file_format: Format | None) -> sqlite3.Connection:
    """A connection that can change nothing; checks the format unless that was done before (None)."""
    if not path.is_file():
        raise storage_error("storage_missing", path, "there is no such file")
    _check_whole(path)
    try:
        connection = sqlite3.connect(
            _readonly_uri(path), uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise translate(error, path, "open the file") from error
    try:
        connection.execute("PRAGMA query_only=ON")
        if file_format is not None and _check(connection, path, file_format) != file_format.version:
            raise storage_error("storage_older", path, "the file has an older format")
    except sqlite3.Error as error:
        connection.close()
        raise translate(error, path, "open the file") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _readonly_uri(path: Path) -> str:
    # Reading beside a log needs a shared-memory file. Where none can be made and there is no log, nobody is writing.
    log = path.with_name(path.name + "-wal")
    idle = not log.exists() or log.stat().st_size == 0
    frozen = idle and not os.access(path.parent, os.W_OK, effective_ids=True)
    return f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if frozen else ''}"


def _check_whole(path: Path) -> None:
    """SQLite takes a byte for an empty file, and what is missing of the last page for zeros: so it is looked at here.

    Beside a log that has something in it the file may end anywhere: the log has what is missing.
    """
    if not path.is_file():
        return
    size = path.stat().st_size
    if size == 0:
        raise storage_error("storage_damaged", path, "the file is empty (if it was never used, remove it)")
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size > 0:
        return
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise from_os_error(error, path, "read the file") from error
    page = int.from_bytes(head[16:18], "big")
    page = 65_536 if page == 1 else page
    if len(head) < _HEAD or (head.startswith(_MAGIC) and page and size % page):
        raise storage_error("storage_damaged", path, f"the file is cut off after {size} bytes")


def _create_private(path: Path) -> None:
    new = not path.exists()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.close(descriptor)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        if new:
            fsync_folder(path.parent)
    except OSError as error:
        raise from_os_error(error, path, "open the file for writing") from error


def _check(connection: sqlite3.Connection, path: Path, file_format: Format) -> int:
    """The version of the file; 0 for an empty one. Raises `storage_foreign`, `storage_newer`."""
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if application_id != file_format.application_id and not (empty and application_id == 0 and version == 0):
        raise storage_error("storage_foreign", path, f"this file is not an EdgePanda {file_format.name}")
    if version > file_format.version:
        raise storage_error(
            "storage_newer",
            path,
            f"the {file_format.name} has format {version}, this program knows up to {file_format.version}",
        )
    return version


def _migrate(connection: sqlite3.Connection, file_format: Format, version: int) -> None:
    if version == file_format.version:
        return
    script = "\n".join(file_format.steps[version:])
    marks = f"PRAGMA application_id={file_format.application_id};PRAGMA user_version={file_format.version};"
    connection.executescript(f"BEGIN IMMEDIATE;\n{script}\n;{marks}COMMIT;")


def _keep_copy(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Copy the whole file, durably, to `FILE.vN` before its format changes."""
    temporary = path.with_name(f"{path.name}.v{version}.new")
    try:
        temporary.unlink(missing_ok=True)
        _create_private(temporary)
        copy = sqlite3.connect(temporary)
        try:
            copy.execute("PRAGMA synchronous=FULL")
            connection.backup(copy)
        finally:
            copy.close()
        temporary.replace(path.with_name(f"{path.name}.v{version}"))
        fsync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise from_os_error(error, path, "keep a copy before changing the format") from error
