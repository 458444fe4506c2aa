"""What every file that the product keeps has in common: its errors, its lock, its folder and its permissions.

A file belongs to one writing process, which holds an exclusive `flock` on `FILE.lock` for as long as it writes. The
lock vanishes with the process, so a crash leaves nothing to clean up. Files are 0600 and new folders 0700.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from edgepanda.errors import EdgePandaError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_READONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class StorageError(EdgePandaError):
    """A file cannot be opened, read or written; the code says which kind, `where` is the file."""

    code = "storage_unwritable"


def storage_error(code: str, where: Path | str, message: str) -> StorageError:
    """The storage error of this code for a file."""
    return StorageError(message, code=code, where=str(where))


def from_os_error(error: OSError, where: Path | str, doing: str) -> StorageError:
    """The storage error for what the operating system answered while `doing` (as in 'write the journal')."""
    code = "storage_unwritable"
    if error.errno in _FULL:
        code = "storage_full"
    elif error.errno in _READONLY:
        code = "storage_readonly"
    return storage_error(code, where, f"cannot {doing}: {error.strerror or error}")


def make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it, 0700, durably; a folder that exists keeps its permissions."""
    if folder.is_dir():
        return
    try:
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        fsync_folder(folder.parent)
    except OSError as error:
        raise from_os_error(error, folder, "make the folder") from error


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a rename survives a power cut only after this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None) -> None:
    """Write a file and wait until the disk has it. It is made with mode 0600; `mode` and `owner` (user, group) are set
    where they are given: FAT, where a card is set up, refuses to. Raises `OSError`.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def swap_file(path: Path, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None) -> None:
    """Put `data` in a file's place, whole or not at all, through a power cut too: temporary file, fsync, rename, fsync
    of the folder. Modes and owners as in `write_durably`. Raises `OSError`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_durably(temporary, data, mode=mode, owner=owner)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """`swap_file` with mode 0600. Raises `StorageError`."""
    try:
        swap_file(path, data)
    except OSError as error:
        raise from_os_error(error, path, "write the file") from error


class FileLock:
    """The exclusive right to write one file, held until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.guarded = path
        self.path = path.with_name(path.name + ".lock")
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock or raise `storage_locked`, which names the process that has it; never waits."""
        if self._descriptor is not None:
            return
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise from_os_error(error, self.path, "lock the file") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write_owner(descriptor)
        except BlockingIOError:
            owner = _owner(descriptor)
            os.close(descriptor)
            locked = storage_error("storage_locked", self.guarded, f"process {owner} has this file open")
            locked.details["pid"] = owner
            raise locked from None
        except OSError as error:
            os.close(descriptor)
            raise from_os_error(error, self.path, "lock the file") from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; may be called twice. The lock file stays, because removing it would race."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @staticmethod
    def _write_owner(descriptor: int) -> None:
        # The number only serves the message of whoever finds the file locked: a full disk must not prevent the lock.
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, f"{os.getpid():<10}\n".encode(), 0)


def _owner(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return text or "of an unknown number"
