"""Small documents that people may read and edit (peers, positions): TinyDB over a file that survives a power cut.

A file is replaced whole: temporary file, fsync, rename, fsync of the folder. The generation before is kept as
`FILE.previous`; only a good file ever takes its place. A damaged file is said so and the previous generation used; the
damaged one is put aside as `FILE.damaged` at the next write, never overwritten unseen. TinyDB gets a fresh copy of the
data at every call, since it changes what it is given.

The format is `{"format": 1, "tables": {table: {id: document}}}`, indented.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
from tinydb import TinyDB
from tinydb.storages import Storage
from tinydb.table import Document, Table

from edgepanda.storage import FileLock, StorageError, from_os_error, fsync_folder, make_folder, write_durably

__all__ = ["DocumentError", "DocumentFile", "Documents"]

FORMAT = 1
MAX_BYTES = 16 * 1024 * 1024

_log = logging.getLogger(__name__)

DocumentKey = Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]  # TinyDB looks them up as text
Tables = dict[str, dict[DocumentKey, dict[str, Any]]]


class _File(msgspec.Struct):
    """The members of a document file. Unknown members of a known format are not kept."""

    format: int
    tables: Tables


class _Version(msgspec.Struct):
    format: int


class DocumentError(StorageError):
    """A document cannot be used: `document_damaged`, `document_newer`, `document_unlocked`."""

    code = "document_damaged"


class DocumentFile(Storage):
    """The storage under TinyDB. `notice` says what was wrong at the last load, None if nothing was."""

    def __init__(self, path: Path | str, lock: FileLock | None = None) -> None:
        """Load the file; `lock`, if held, is the right to write it. Raises like `load`."""
        self.path = Path(path)
        self.previous = self.path.with_name(self.path.name + ".previous")
        self.damaged = self.path.with_name(self.path.name + ".damaged")
        self.lock = lock or FileLock(self.path)
        self.notice: DocumentError | None = None
        self._text: bytes | None = None  # what the data is, as it would be stored
        self.load()

    def load(self) -> bool:
        """Read the file again; true if the data differs from before.

        A file that is damaged leaves the data as it is, or at the first load as the previous generation has it, and
        `notice` says so. Raises `document_damaged` when there is neither, `document_newer`, and what `StorageError` has
        for files; then too the data stays as it is.
        """
        before = self._text
        self._text, self.notice = self._read_best()
        if self.notice is not None:
            _log.warning("%s [%s]", self.notice, self.notice.code, extra={"code": self.notice.code})
        return self._text != before

    def read(self) -> dict[str, dict[Any, Any]] | None:
        """A fresh copy of all tables; None before the first write."""
        return None if self._text is None else _parse(self._text, self.path)

    def write(self, data: Mapping[str, Mapping[Any, Any]]) -> None:
        """Replace all tables, durably; nothing is written if nothing changed.

        Raises `document_unlocked` without the lock, and what `StorageError` has for files; then nothing has changed.
        """
        if not self.lock.held:
            raise DocumentError(
                "this process may only read the document",
                code="document_unlocked",
                where=str(self.path),
                cure="take the right to write first, or ask the process that has it",
            )
        text = _format(data)
        if text == self._text and self.notice is None:
            return
        try:
            self._replace(text)
        except OSError as error:
            raise from_os_error(error, self.path, "write the document") from error
        self._text, self.notice = text, None

    def close(self) -> None:
        """Give the lock back."""
        self.lock.release()

    def _read_best(self) -> tuple[bytes | None, DocumentError | None]:
        current, fault = self._try(self.path)
        if current is not None:
            return current, None
        what = fault.message if fault else "the document is gone"
        if self._text is not None:
            return self._text, self._damage(f"{what}; what was read before stays in use", "correct it and reload")
        previous, previous_fault = self._try(self.previous)
        if previous is not None:
            return previous, self._damage(f"{what}; the generation before it is used", "look at what changed last")
        if fault is None and previous_fault is None:
            return None, None
        raise self._damage(f"{what}, and there is no whole generation before it", "put a good copy in its place")

    def _try(self, path: Path) -> tuple[bytes | None, DocumentError | None]:
        """The data of one generation as it would be stored; None if there is none, or with the reason."""
        try:
            raw = _read_limited(path)
        except FileNotFoundError:
            return None, None
        except OSError as error:
            raise from_os_error(error, path, "read the document") from error
        try:
            return _format(_parse(raw, path)), None
        except DocumentError as error:
            if error.code == "document_newer":
                raise
            return None, error

    def _damage(self, message: str, cure: str) -> DocumentError:
        return DocumentError(message, where=str(self.path), cure=cure)

    def _replace(self, text: bytes) -> None:
        temporary = self.path.with_name(self.path.name + ".new")
        try:
            write_durably(temporary, text, mode=0o600)
            self._rotate()
            temporary.replace(self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        fsync_folder(self.path.parent)

    def _rotate(self) -> None:
        """Make the present file the previous generation if it is good, else put it aside."""
        try:
            current, fault = self._try(self.path)
        except DocumentError:
            return  # newer than this program; it must not become the generation that we rely on
        if fault is not None:
            self.path.replace(self.damaged)
        elif current is not None:
            if current != self._text:
                _log.warning("%s was edited and not reloaded; the edit is in %s", self.path, self.previous)
            spare = self.previous.with_name(self.previous.name + ".new")
            spare.unlink(missing_ok=True)
            try:
                spare.hardlink_to(self.path)
            except OSError:  # a file system without hard links
                write_durably(spare, current, mode=0o600)
            spare.replace(self.previous)


class _FreshTable(Table):
    """A table that remembers nothing between calls.

    A cached query would hand out the same documents twice, and a remembered number could overwrite a document that
    somebody added by hand.
    """

    default_query_cache_capacity = 0

    def __init__(self, storage: Storage, name: str, cache_size: int = 0, persist_empty: bool = False) -> None:
        super().__init__(storage, name, cache_size=0, persist_empty=persist_empty)

    def insert(self, document: Mapping[str, Any]) -> int:
        self._next_id = None
        return super().insert(document)

    def insert_multiple(self, documents: Iterable[Mapping[str, Any]]) -> list[int]:
        self._next_id = None
        return super().insert_multiple(documents)


class _FreshTinyDB(TinyDB):
    table_class = _FreshTable


class Documents:
    """A document file with its tables. Open to read, or with the exclusive right to write.

    >>> with Documents("peers.json", exclusive=True) as documents:
    ...     documents.table("peers").insert({"name": "shed"})
    """

    def __init__(self, path: Path | str, *, exclusive: bool = False) -> None:
        """Open; with `exclusive` take the lock first (`storage_locked` names the process that has it).

        Raises `DocumentError` (`document_damaged`, `document_newer`) and `StorageError`.
        """
        path = Path(path)
        lock = FileLock(path)
        if exclusive:
            make_folder(path.parent)
            lock.acquire()
        try:
            self._file = DocumentFile(path, lock)
        except BaseException:
            lock.release()
            raise
        self._db = _FreshTinyDB(storage=lambda: self._file)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    @property
    def notice(self) -> DocumentError | None:
        """What was wrong with the file when it was last read, though the data could be had; for `doctor`."""
        return self._file.notice

    def table(self, name: str) -> Table:
        """A TinyDB table. What it gives belongs to the caller; what it is given it copies."""
        return self._db.table(name)

    def single(self, name: str) -> dict[str, Any] | None:
        """The document of a table that holds one, or None before there is any."""
        found = self.table(name).get(doc_id=1)
        return dict(found) if isinstance(found, Mapping) else None

    def keep_single(self, name: str, value: Mapping[str, Any]) -> None:
        """Put this in its place, whole; durable when the call returns. Raises like any write."""
        self.table(name).upsert(Document(dict(value), doc_id=1))

    def reload(self) -> bool:
        """Read what was edited by hand; true if the data changed. Raises like opening, and then keeps the old data."""
        return self._file.load()

    def close(self) -> None:
        """Give the lock back; may be called twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _parse(raw: bytes, path: Path) -> Tables:
    try:
        version = msgspec.json.decode(raw, type=_Version).format
        if version > FORMAT:
            raise DocumentError(
                f"the document has format {version}, this program knows up to {FORMAT}",
                code="document_newer",
                where=str(path),
                cure="update EdgePanda",
            )
        return msgspec.json.decode(raw, type=_File).tables
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            f"the document is damaged: {error or 'too deeply nested'}",
            where=str(path),
            cure="put a good copy in its place",
        ) from error


def _format(data: Mapping[str, Mapping[Any, Any]]) -> bytes:
    return msgspec.json.format(msgspec.json.encode({"format": FORMAT, "tables": data}), indent=2) + b"\n"


def _read_limited(path: Path) -> bytes:
    with path.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    return raw if len(raw) <= MAX_BYTES else b""  # no document of ours: damaged
