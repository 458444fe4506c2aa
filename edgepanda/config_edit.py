"""Changing the configuration file: comments and order stay, nothing invalid is saved, a crash leaves old or new."""

from __future__ import annotations

import contextlib
import copy
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Item, Table

from edgepanda.model.config import ConfigError, load_text, read_text
from edgepanda.model.config_lines import Lines
from edgepanda.model.config_types import ENTRIES
from edgepanda.storage import swap_file

Key = tuple[str, ...]


class ConfigFile:
    """One configuration file that is open for changes; `save` writes them, and nothing is written before.

    A key is a tuple: `("node", "slots")`, `("devices", "pan")`, `("capabilities", "disk.free", "tier")`.
    """

    def __init__(self, path: Path) -> None:
        """Read it. Raises `ConfigError`: `config_missing`, `config_unreadable`, `config_invalid` (no TOML)."""
        self.path = path
        self._before = read_text(path)
        try:
            self._document = tomlkit.parse(self._before)
            self._wanted = tomllib.loads(self._before.replace("\r\n", "\n"))
        except (TOMLKitError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(
                f"not TOML: {error}", where=str(path), cure="`edgepanda config check` shows more"
            ) from error

    @property
    def text(self) -> str:
        """The text as it would be saved."""
        return tomlkit.dumps(self._document)

    def get(self, key: Key) -> Any:
        """The value as plain data; a table is a dict. Raises `ConfigError` (`config_key_unknown`)."""
        value = self._container(key[:-1], key)
        if key[-1] not in value:
            raise self._unknown(key)
        found = value[key[-1]]
        return found.unwrap() if hasattr(found, "unwrap") else found

    def set(self, key: Key, value: Any) -> None:
        """Write a value or, with a dict, a whole table. What the table has already keeps its comments and its place.

        Tables on the way are made. Raises `ConfigError` (`config_key_unknown`) when the way leads through a value.
        """
        table: Any = self._document
        for depth, part in enumerate(key[:-1]):
            if part not in table:
                table[part] = tomlkit.table(is_super_table=depth < len(key) - 2 or isinstance(value, Mapping))
            table = table[part]
            if not isinstance(table, Mapping):
                raise self._unknown(key)
        _put(table, key[-1], value)
        wanted = self._wanted
        for part in key[:-1]:
            wanted = wanted.setdefault(part, {})
        wanted[key[-1]] = copy.deepcopy(value)

    def remove(self, key: Key) -> None:
        """Take a key or a table out; comments behind a blank line below it stay, for they belong to what follows.
        Raises `ConfigError` (`config_key_unknown`) when it is not there.
        """
        table = self._container(key[:-1], key)
        if key[-1] not in table:
            raise self._unknown(key)
        before, start = self.text, self._place(key)
        del table[key[-1]]
        self._document = tomlkit.parse(_with_what_follows(before, self.text, start))
        wanted = self._wanted
        for part in key[:-1]:
            wanted = wanted[part]
        del wanted[key[-1]]

    def save(self) -> bool:
        """Write the changes, checked first; False when there are none. Mode and owner stay, a link stays a link.

        Raises:
            ConfigError: `config_invalid`: the changes would make it so; `config_changed`: someone else changed the
                file meanwhile; `config_form`: the file is written in a way that cannot be changed here;
                `config_unwritable`. The file is as it was, then.
        """
        text = self.text
        if text == self._before:
            return False
        self._check_form(text)
        save_text(self.path, text, before=self._before)
        self._before = text
        return True

    def _check_form(self, text: str) -> None:
        """Refuse a text that does not say what was wanted: tomlkit puts a new table between dotted keys."""
        try:
            made = tomllib.loads(text.replace("\r\n", "\n"))
        except tomllib.TOMLDecodeError:
            made = {}
        if _without_empty(made) != _without_empty(self._wanted):
            raise ConfigError(
                "the file's form does not let a command change this",
                code="config_form",
                where=str(self.path),
                cure="give keys like `devices.pan.pin = 1` a header [devices.pan], or use `edgepanda config edit`",
            )

    def _place(self, key: Key) -> int:
        """Where the line of a key begins."""
        line = Lines(self.text).of(key)
        return sum(len(each) + 1 for each in self.text.split("\n")[: line - 1])

    def _container(self, way: Key, key: Key) -> Any:
        table: Any = self._document
        for part in way:
            table = table.get(part) if isinstance(table, Mapping) else None
        if not isinstance(table, Mapping):
            raise self._unknown(key)
        return table

    def _unknown(self, key: Key) -> ConfigError:
        return ConfigError(
            "there is no such key",
            code="config_key_unknown",
            where=f"{self.path}: {'.'.join(key)}",
            cure=f"what is there stands in {self.path}",
        )


def _without_empty(data: dict[str, Any]) -> dict[str, Any]:
    """Without `devices` and `capabilities` that have nothing in them, which is the same as none."""
    return {name: value for name, value in data.items() if value or name not in ENTRIES}


def _with_what_follows(before: str, after: str, start: int) -> str:
    """The text `after` a table was removed that began at `start`, with the comments below it that are not its own.

    tomlkit counts all comments up to the next table to the one before.
    """
    end = start + len(before) - len(after)
    if before[:start] + before[end:] != after:
        return after  # it stood in several places
    lines = [f"{line}\n" for line in before[start:end].removesuffix("\n").split("\n")]
    tail = len(lines)
    while tail and (not lines[tail - 1].strip() or lines[tail - 1].lstrip().startswith("#")):
        tail -= 1
    blank = next((at for at, line in enumerate(lines[tail:], tail) if not line.strip()), len(lines))
    kept = "".join(lines[blank:]) if any(line.strip() for line in lines[blank:]) else ""
    if not kept:
        return after
    head = before[:start]
    return (head[:-1] if head.endswith("\n\n") else head) + kept + before[end:]


def _put(table: Any, key: str, value: Any) -> None:
    old: Any = table.get(key)
    if isinstance(value, Mapping) and isinstance(old, MutableMapping):
        for name in [name for name in old if name not in value]:
            del old[name]
        for name, item in value.items():
            _put(old, name, item)
    elif old != value or type(old) is bool or type(value) is bool:
        inline = isinstance(table, InlineTable) or (isinstance(table, Table) and not table.is_super_table())
        with _before_trailing_comments(table):
            table[key] = _item(value, inline=inline)


@contextlib.contextmanager
def _before_trailing_comments(table: Any) -> Iterator[None]:
    """What is added stands behind the last key, above comments that follow: those may be about what comes next."""
    tail: list[Any] = []
    body = table.value.body if isinstance(table, Table) and not table.is_super_table() else []
    while body and body[-1][0] is None:
        tail.insert(0, body.pop())
    yield
    body.extend(tail)


def _item(value: Any, *, inline: bool) -> Item:
    """A table within a table is written on one line: `labels = {room = "attic"}`."""
    if not isinstance(value, Mapping):
        plain: Item = tomlkit.item(value)
        return plain
    made: Table | InlineTable = tomlkit.inline_table() if inline else tomlkit.table()
    for name, item in value.items():
        made[name] = _item(item, inline=True)
    return made


def save_text(path: Path, text: str, *, before: str) -> None:
    """Replace the file with this text if it is right and the file still is as it was `before`. Raises `ConfigError`
    as `ConfigFile.save` does.
    """
    load_text(text, path)
    if read_text(path) != before:
        raise ConfigError("the file was changed meanwhile", code="config_changed", where=str(path), cure="do it again")
    replace_text(path, text)


def replace_text(path: Path, text: str) -> None:
    """Replace a file whole: temporary file, fsync, rename, fsync of the folder. Raises `ConfigError`
    (`config_unwritable`).
    """
    target = path.resolve()  # a link stays, and what it points at is replaced
    try:
        before = target.stat()
        foreign = (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid())
        owner = (before.st_uid, before.st_gid) if foreign else None
        swap_file(target, text.encode(), mode=stat.S_IMODE(before.st_mode), owner=owner)
    except OSError as error:
        raise ConfigError(
            f"cannot write it: {error.strerror}",
            code="config_unwritable",
            where=str(path),
            cure="the file is as it was; make room, or use the account that owns it",
        ) from error
