"""Checks a configuration: everything that is wrong with it at once, each with its place and what to do."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import parse_broker, parse_listen
from edgepanda.model.config_broker import contradictions
from edgepanda.model.config_lines import Key, Lines, key_near
from edgepanda.model.config_types import DRIVERS, ENTRIES, TABLES, Broker, Capability, Config
from edgepanda.model.config_words import Field, allowed, dotted, fields_of, found, plain_type, toml
from edgepanda.model.ids import is_capability, is_name
from edgepanda.model.nearest import did_you_mean

SYNTAX, UNKNOWN, MISSING, TYPE, VALUE = (
    "config_syntax",
    "config_key_unknown",
    "config_key_missing",
    "config_type",
    "config_value",
)
_AT = re.compile(r"(?P<what>.*?)\s*\(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL)
_MOST_SYNTAX = 50  # lines that are no TOML which are told at once


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `str()` is the line that a person reads."""

    file: str
    line: int
    key: str
    found: str
    allowed: str
    cure: str
    code: str

    @property
    def where(self) -> str:
        """File, line and key."""
        return f"{self.file}:{self.line}: {self.key}"

    @property
    def message(self) -> str:
        """What was found and what is allowed."""
        return f"found {self.found}, allowed is {self.allowed}"

    def __str__(self) -> str:
        return f"{self.where}: {self.message}; {self.cure} [{self.code}]"


def check_text(text: str, path: Path) -> tuple[Config | None, list[Problem]]:
    """The configuration, or all that is wrong with it, in the order of the lines. `path` is only named, not read."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")  # as editors on Windows write it
    data, rest, problems = _parse(text, path)
    if data is not None:
        walk = _Walk(path, Lines(rest), {problem.key for problem in problems})
        walk.table(Config, data, ())
        walk.broker(data.get("broker"))
        problems = sorted([*problems, *walk.problems], key=lambda problem: problem.line)
    return (None if problems else msgspec.convert(data, Config)), problems


def what_is_right(text: str, path: Path) -> tuple[Config | None, list[Problem]]:
    """The configuration without what is wrong in it, for looking at the rest only; None if too little is left."""
    config, problems = check_text(text, path)
    if config is not None:
        return config, problems
    data, _, _ = _parse(text.removeprefix("\ufeff").replace("\r\n", "\n"), path)
    if data is None:
        return None, problems
    for problem in problems:
        _remove(data, problem.key)
    try:
        return msgspec.convert(data, Config), problems
    except msgspec.ValidationError:
        return None, problems


def _remove(data: dict[str, Any], key: str) -> None:
    """Take a dotted key away; the table around it where the key is missing, for it cannot be without."""
    try:
        at = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return
    parts: list[str] = []
    while isinstance(at, dict):
        (part,) = at
        parts.append(part)
        at = at[part]
    tables = [data]
    for part in parts[:-1]:
        inner = tables[-1].get(part)
        if not isinstance(inner, dict):
            return
        tables.append(inner)
    if parts[-1] in tables[-1]:
        del tables[-1][parts[-1]]
    elif len(parts) > 1:
        tables[-2].pop(parts[-2], None)


def _parse(text: str, path: Path) -> tuple[dict[str, Any] | None, str, list[Problem]]:
    """The data, the text without the lines that are no TOML, and what is wrong with those."""
    problems: list[Problem] = []
    while True:
        try:
            return tomllib.loads(text), text, problems
        except RecursionError:
            told = "hundreds of brackets within each other"
            problem = Problem(str(path), 1, "(file)", told, "a few", "remove them", SYNTAX)
            return None, text, [*problems, problem]
        except tomllib.TOMLDecodeError as error:
            at = _AT.fullmatch(str(error))
            lines = text.split("\n")
            number = int(at["line"]) if at and at["line"] else len(lines)
            if at and number > 1 and "after a value" not in at["what"] and not lines[number - 1].strip():
                number -= 1
            problems.append(_no_toml(at["what"] if at else str(error), lines, number, path))
            line = lines[number - 1].strip()
            if not line or line.startswith("[") or "=" not in line or len(problems) == _MOST_SYNTAX:
                return None, text, problems  # what follows would be taken for something else
            lines[number - 1] = ""
            text = "\n".join(lines)


def _no_toml(what: str, lines: list[str], number: int, path: Path) -> Problem:
    key = key_near("\n".join(lines), number)
    value = lines[number - 1].partition("=")[2].partition("#")[0].strip()
    if "Cannot declare" in what or "Cannot overwrite" in what or "twice" in what:
        told, may, cure = "it a second time", "one of each", "remove one of them, or join the two"
    elif re.fullmatch(r"(?i:true|yes|on|false|no|off)", value):
        told, may = value, "true or false"
        cure = f"write {'true' if value.lower() in ('true', 'yes', 'on') else 'false'}"
    elif re.fullmatch(r"[A-Za-z_./~][^\"'\[\]{}]*", value):
        told, may, cure = "text without quotes", 'text in quotes, as in "text"', "put quotes around it"
    else:
        told, may, cure = f"what is no TOML ({what})", "one `key = value` or `[table]` on a line", "correct the line"
    return Problem(str(path), number, dotted(key) or "(file)", told, may, cure, SYNTAX)


class _Walk:
    """Goes through the data along the types and collects what does not fit."""

    def __init__(self, path: Path, lines: Lines, told: set[str]) -> None:
        self.problems: list[Problem] = []
        self._path, self._lines, self._told = path, lines, told

    def table(self, kind: type[msgspec.Struct], data: Any, at: Key) -> None:
        if not isinstance(data, dict):
            head = f"[{dotted(at)}]"
            self._add(at, found(data), f"a table {head}", f"write {head} on a line of its own, its keys below", TYPE)
            return
        fields = fields_of(kind)
        for name, value in data.items():
            if name in fields:
                self._value(fields[name], value, (*at, name))
            elif kind.__struct_config__.forbid_unknown_fields:
                self._unknown(name, fields, (*at, name))
        for field in fields.values():
            if field.required and field.name not in data and dotted((*at, field.name)) not in self._told:
                self._missing(field, kind, data, at)

    def broker(self, data: Any) -> None:
        """What its keys must be together, once each of them is right."""
        if isinstance(data, dict) and not any(problem.key.startswith("broker.") for problem in self.problems):
            for wrong in contradictions(msgspec.convert(data, Broker)):
                self._add(("broker", wrong.key), wrong.found, wrong.allowed, wrong.cure, VALUE)

    def _value(self, field: Field, value: Any, at: Key) -> None:
        kind = plain_type(field.type)
        if at[:1] == at and field.name in ENTRIES:
            self._entries(field, value, at)
        elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            self.table(kind, value, at)
        elif get_origin(kind) is dict and isinstance(value, dict):
            inner, example = get_args(kind)[1], next(iter((field.example or {}).values()), "text")
            for name, item in value.items():
                self._leaf(Field(name, inner, msgspec.NODEFAULT, example=example), item, (*at, name))
        else:
            self._leaf(field, value, at)

    def _leaf(self, field: Field, value: Any, at: Key) -> None:
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            right = _has_type(plain_type(field.type), value)
            self._add(at, found(value), allowed(field), _cure(field, value, at), VALUE if right else TYPE)
            return
        rule = _RULES.get(at)
        if rule is not None and (told := rule(value)):
            self._add(at, found(value), allowed(field), told, VALUE)

    def _entries(self, field: Field, value: Any, at: Key) -> None:
        if not isinstance(value, dict):
            self._add(at, found(value), f"tables [{field.name}.NAME]", f"write [{field.name}.NAME]", TYPE)
            return
        for name, entry in value.items():
            place = (*at, name)
            if field.name == "devices" and not is_name(name):
                self._add(place, found(name), "a name of 1 to 32 of a-z, 0-9 and '-'", _slug(name), VALUE)
            elif field.name == "capabilities" and not is_capability(name):
                may = "2 to 4 words of a-z, 0-9, '_' and '-', with dots between"
                cure = (
                    f'write [capabilities."{name}.{next(iter(entry))}"], in quotes'
                    if _is_split(entry)
                    else 'such as "build.heavy"'
                )
                self._add(place, found(name), may, cure, VALUE)
                if _is_split(entry):
                    continue
            self.table(ENTRIES[field.name], entry, place)
            if field.name == "devices" and isinstance(entry, dict):
                self._driver(entry, place)

    def _driver(self, entry: dict[str, Any], at: Key) -> None:
        driver, command = entry.get("driver"), entry.get("command")
        if command == []:
            may = "a list of words, the program first"
            self._add((*at, "command"), "an empty list", may, 'as in ["./dimmer"]', VALUE)
        if not isinstance(driver, str) or not driver or command is not None:
            return
        if driver in DRIVERS or driver.endswith(".py"):
            return
        near = difflib.get_close_matches(driver, DRIVERS, n=1, cutoff=0.5)
        may = f"{', '.join(DRIVERS)}, the path of a .py file, or any name with `command`"
        cure = f"did you mean {found(near[0])}?" if near else "a driver of your own needs its .py file or `command`"
        self._add((*at, "driver"), found(driver), may, cure, VALUE)

    def _unknown(self, name: str, fields: dict[str, Field], at: Key) -> None:
        home = [table for table, kind in TABLES.items() if name in fields_of(kind)]
        otherwise = f"it belongs into [{home[0]}]" if home else "remove it, or see `edgepanda config schema`"
        cure = did_you_mean(name, fields, otherwise)
        self._add(at, f"an unknown key {name!r}", ", ".join(fields), cure, UNKNOWN)

    def _missing(self, field: Field, kind: type[msgspec.Struct], data: dict[str, Any], at: Key) -> None:
        others = [name for name in data if name not in fields_of(kind)]
        near = difflib.get_close_matches(field.name, others, n=1)
        wanted = f"for example {field.name} = {toml(field.example)}"
        cure = f"did you mean {field.name!r} where {near[0]!r} stands?" if near else f"add it, {wanted}"
        self._add((*at, field.name), "nothing", allowed(field), cure, MISSING)

    def _add(self, at: Key, told: str, may: str, cure: str, code: str) -> None:
        self.problems.append(Problem(str(self._path), self._lines.of(at), dotted(at), told, may, cure, code))


def _has_type(kind: Any, value: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    choices: Iterable[Any] = get_args(kind)
    return isinstance(value, kind) if isinstance(kind, type) else type(value) in {type(each) for each in choices}


def _cure(field: Field, value: Any, at: Key) -> str:
    """What to write instead: the same value in the right form, the nearest one, or an example."""
    kind, name = plain_type(field.type), dotted(at[-1:])
    if kind in (int, float) and isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?", value):
        return f"write it without quotes: {name} = {value}"
    if kind is str and isinstance(value, int | float):
        return f"write it in quotes: {name} = {found(str(toml(value)))}"
    if get_origin(kind) is list and isinstance(value, str):
        return f"write it in brackets: {name} = [{found(value)}]"
    if isinstance(value, str) and "Literal" in str(kind):
        near = difflib.get_close_matches(value, [str(each) for each in get_args(kind)], n=1)
        if near:
            return f"did you mean {found(near[0])}?"
    if isinstance(value, str) and "-z" in field.allowed and is_name(_slugged(value)):
        return _slug(value)
    example = field.example if field.example is not None else field.default
    return "remove it" if example in ("", msgspec.NODEFAULT) else f"for example {name} = {toml(example)}"


def _slugged(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:32]


def _slug(name: str) -> str:
    return f"for example {_slugged(name) or 'pan'!r}"


def _is_split(entry: Any) -> bool:
    """True for `[capabilities.disk.free]`: its dots were taken for tables."""
    known = fields_of(Capability)
    return (
        isinstance(entry, dict)
        and bool(entry)
        and all(isinstance(value, dict) and name not in known for name, value in entry.items())
    )


def _url(url: str) -> str:
    try:
        if url:
            parse_broker(url)
    except EdgePandaError as error:
        return error.message.partition(": ")[2]
    return ""


def _listen(listen: str) -> str:
    return "" if parse_listen(listen) else 'write it like "127.0.0.1:1883"'


_RULES: dict[Key, Callable[[str], str]] = {("broker", "url"): _url, ("broker", "listen"): _listen}
