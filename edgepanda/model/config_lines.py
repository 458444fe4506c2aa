"""On which line of a TOML text a key stands; the parser of the standard library does not say."""

from __future__ import annotations

import functools
import re
import tomllib

Key = tuple[str, ...]

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*|\n|[\[\]{}]|[^\"'\#\n\[\]{}]+|.",
    re.DOTALL,
)
_PART = re.compile(r"""\s*("(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)\s*""")


class Lines:
    """The places of all keys in one text that is TOML. Inline tables and their keys stand on the line of their key."""

    def __init__(self, text: str) -> None:
        self._text = text

    @functools.cached_property
    def _lines(self) -> dict[Key, int]:
        """Found only when somebody asks: a right configuration needs none of it."""
        lines: dict[Key, int] = {(): 1}
        table: Key = ()
        for line, statement in _statements(self._text):
            if statement.startswith("["):
                table = key_of(statement.lstrip("["))
                place = table
            else:
                place = (*table, *key_of(statement))
            for depth in range(1, len(place) + 1):
                lines.setdefault(place[:depth], line)
        return lines

    def of(self, key: Key) -> int:
        """The line of the key, or of the nearest table around it; counted from 1."""
        while key not in self._lines:
            key = key[:-1]
        return self._lines[key]


def key_near(text: str, line: int) -> Key:
    """The key on a line of a text that is no TOML, with its table, as well as can be seen."""
    table: Key = ()
    place: Key = ()
    for each in text.splitlines()[:line]:
        if each.lstrip().startswith("["):
            table, place = key_of(each.strip().lstrip("[")), ()
        else:
            place = key_of(each)
    return (*table, *place)


def _statements(text: str) -> list[tuple[int, str]]:
    """Each header and each `key = value`, with the line where it begins."""
    found: list[tuple[int, str]] = []
    line, begun, depth, parts = 1, 1, 0, [""]
    for match in _TOKEN.finditer(text):
        piece = match[0]
        if piece == "\n" and depth == 0:
            found.append((begun, "".join(parts).strip()))
            parts = []
            begun = line + 1
        elif not piece.startswith("#"):
            depth += (piece in "[{") - (piece in "]}")
            parts.append(piece)
        line += piece.count("\n")
    found.append((begun, "".join(parts).strip()))
    return [(at, statement) for at, statement in found if statement]


def key_of(statement: str) -> Key:
    """The dotted key that a text begins with."""
    parts: list[str] = []
    at = 0
    while found := _PART.match(statement, at):
        parts.append(_plain(found[1]))
        at = found.end()
        if statement[at : at + 1] != ".":
            break
        at += 1
    return tuple(parts)


def _plain(part: str) -> str:
    if part[0] not in "\"'":
        return part
    try:
        return next(iter(tomllib.loads(f"{part} = 0")))
    except tomllib.TOMLDecodeError:
        return part.strip("\"'")
