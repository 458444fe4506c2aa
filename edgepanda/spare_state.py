"""Where a node goes on that cannot write its state folder: a folder in memory, until the disk takes something again.

What it needs of its state is copied there once. What changes there is brought back before the state folder is used
again, by the same process or the next; a restart of the machine loses it, which is why nothing `unsafe` is begun.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from edgepanda.spare_folder import spare_folder
from edgepanda.sqlite_file import Format, prepare, translate
from edgepanda.storage import FileLock, StorageError, from_os_error, replace_file, storage_error, write_durably

log = logging.getLogger("edgepanda.node")

UNWRITABLE = frozenset({"storage_readonly", "storage_full", "storage_unwritable"})
ROOM = 1024 * 1024  # bytes that a disk must take before it counts as writable again
_KEY = "keys/node.key"  # whose the folder is: a new site in the same place has another
_DOCUMENTS = ("node-peers.json", "stops.json", "positions.json", "hardware.json")


def fill(home: Path, name: str) -> Path:
    """The folder in memory, with a copy of the store `name` and the documents, unless an earlier run left it.

    Raises `storage_locked` where a process works with the state folder itself, and what files can raise.
    """
    folder = spare_folder(home)
    _check_unused(home / name)
    try:
        if _ours(folder) and _of_this_node(folder, home):
            return folder
        fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
        fresh.mkdir(mode=0o700)
        for each in (name, f"{name}-wal", *_generations()):
            with contextlib.suppress(FileNotFoundError):
                write_durably(fresh / each, (home / each).read_bytes())
        write_durably(fresh / "owner", _owner(home))
        fresh.replace(folder)
    except OSError as error:
        raise from_os_error(error, folder, "work in memory") from error
    return folder


def bring_back(home: Path, name: str, file_format: Format) -> None:
    """What an earlier run kept in memory goes to the state folder, and the folder in memory away; nothing if none did.

    Interrupted anywhere it is done again the next time. Raises what files can raise, and then nothing is lost.
    """
    folder = spare_folder(home)
    try:
        if not (_ours(folder) and _of_this_node(folder, home)):
            return
    except OSError:
        return  # a stranger's, who must not keep a node from its own disk
    with _locked(folder / name), _locked(home / name):
        for each in _generations():
            kept, there = _read(folder / each), _read(home / each)
            if kept is not None and kept != there:
                replace_file(home / each, kept)
        _copy_store(folder / name, home / name, file_format)
        shutil.rmtree(folder, ignore_errors=True)
    log.info("what was kept in memory is in %s again", home)


def writable(home: Path) -> bool:
    """Whether the folder takes something, with a little room beside. It waits for the disk."""
    probe = home / ".room"
    try:
        write_durably(probe, bytes(ROOM))
    except OSError:
        return False
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return True


def _generations() -> Iterator[str]:
    for name in _DOCUMENTS:
        yield name
        yield f"{name}.previous"


def _ours(folder: Path) -> bool:
    """Whether it is there. Raises `OSError` where a stranger, or a link, has taken its name."""
    try:
        seen = os.lstat(folder)
    except FileNotFoundError:
        return False
    if seen.st_uid != os.geteuid() or seen.st_mode & 0o170077 != 0o040000:
        raise PermissionError(errno.EPERM, "another user has taken this name")
    return True


def _owner(home: Path) -> bytes:
    return hashlib.sha256(_read(home / _KEY) or b"").hexdigest().encode()


def _of_this_node(folder: Path, home: Path) -> bool:
    """Whether it was filled for the key that is here; what was kept for another is put aside, and used by nobody."""
    if _read(folder / "owner") == _owner(home):
        return True
    aside = folder.with_name(f"{folder.name}.aside")
    shutil.rmtree(aside, ignore_errors=True)
    folder.replace(aside)
    log.warning("what was kept in memory for another node in the place of this one is in %s", aside)
    return False


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os_error(error, path, "read the file") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_unused(path: Path) -> None:
    """Raises `storage_locked` where a process has the store open: a disk went read-only under it."""
    try:
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise storage_error("storage_locked", path, "another process has this file open") from None
    finally:
        os.close(descriptor)


def _copy_store(source: Path, target: Path, file_format: Format) -> None:
    """In one transaction of the target: a power cut leaves it as it was."""
    if not source.exists():
        return
    connection = prepare(target, file_format)
    try:
        with contextlib.closing(sqlite3.connect(source)) as kept:
            kept.backup(connection)
    except sqlite3.Error as error:
        raise translate(error, target, "bring back what was kept in memory") from error
    finally:
        connection.close()


def said(problem: StorageError, home: Path) -> StorageError:
    """What a node says of itself while it works in memory."""
    return StorageError(
        f"the state folder cannot be written, so only what is safe to repeat is done, and reports are kept in memory: "
        f"{problem.message}",
        code=problem.code,
        where=str(home),
    )
