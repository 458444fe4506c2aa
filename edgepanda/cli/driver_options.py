"""Options made from a driver's schema: `--pin 12`, `--speed 90deg/s`, `pin=12`, as values that the file takes. Pure."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from edgepanda.drivers.gpio import MARK
from edgepanda.errors import EdgePandaError

Schema = dict[str, Any]

_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*(\S.*)?")
_UNITS: dict[str, dict[str, float]] = {
    "s": {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400},
    "ms": {"us": 1e-3, "ms": 1, "s": 1e3, "min": 60e3},
    "us": {"us": 1, "ms": 1e3, "s": 1e6},
    "degree": {"degree": 1, "degrees": 1, "deg": 1, "°": 1},
    "degree/s": {"degree/s": 1, "degrees/s": 1, "deg/s": 1, "°/s": 1},
    "byte": {"byte": 1, "bytes": 1, "b": 1, "kb": 1e3, "mb": 1e6, "kib": 1024, "mib": 1024**2},
    "hz": {"hz": 1, "khz": 1e3, "mhz": 1e6},
}
"""How units may be written, and what one of each is in the schema's unit."""


class OptionError(EdgePandaError):
    """What was typed does not suit the schema; `where` is the option."""

    code = "invalid_args"


class Option(NamedTuple):
    """One key of the configuration, for a person."""

    name: str
    allowed: str
    text: str
    unit: str
    default: Any
    required: bool

    @property
    def flag(self) -> str:
        """As it is typed."""
        return f"--{self.name.replace('_', '-')}"


def options_of(schema: Schema) -> list[Option]:
    """The options of a schema, those that are needed first."""
    required = schema.get("required", [])
    found = [
        Option(
            name=name,
            allowed=allowed(about, schema),
            text=str(about.get("description", "")),
            unit=unit_of(about, schema),
            default=about.get("default"),
            required=name in required,
        )
        for name, about in schema.get("properties", {}).items()
    ]
    return sorted(found, key=lambda option: not option.required)


def read_words(words: Sequence[str], schema: Schema) -> dict[str, Any]:
    """The values of `--KEY VALUE`, `--KEY=VALUE`, `--FLAG`, `--no-FLAG` and `KEY=VALUE`.

    Raises:
        OptionError: names the option, what is allowed, and the nearest that there is.
    """
    values: dict[str, Any] = {}
    for option, key, text in _pairs(list(words), schema):
        about = resolved(schema.get("properties", {}).get(key, {}), schema)
        if about.get("type") == "array" and not text.startswith("["):
            values.setdefault(key, []).append(_value(text, about.get("items", {}), schema, option))
        elif key in values:
            raise OptionError("it is given twice", where=option, cure="give it once")
        else:
            values[key] = _value(text, about, schema, option)
    return values


def require(values: dict[str, Any], schema: Schema) -> None:
    """Raises `OptionError` for the first key that is needed and not there."""
    for option in options_of(schema):
        if option.required and option.name not in values:
            unit = f" ({option.unit})" if option.unit else ""
            raise OptionError(
                f"it is needed: {option.text or option.name}",
                where=option.flag,
                cure=f"add {option.flag} with {option.allowed}{unit}",
            )


def _pairs(words: list[str], schema: Schema) -> Iterator[tuple[str, str, str]]:
    """Option as typed, key, text."""
    while words:
        word = words.pop(0)
        name, equals, text = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            if not equals:
                raise OptionError(
                    f"{word!r} is one word too many",
                    code="usage",
                    where="[--KEY VALUE]",
                    cure="write --KEY VALUE or KEY=VALUE",
                )
            yield word.partition("=")[0], _key(name, schema, word.partition("=")[0]), text
            continue
        option = f"--{name}"
        if not equals and name.startswith("no-") and _is_flag(_snake(name[3:]), schema):
            yield option, _snake(name[3:]), "false"
            continue
        key = _key(name, schema, option)
        if not equals:
            if _is_flag(key, schema) and not (words and words[0].lower() in _TRUTH):
                text = "true"
            elif words:
                text = words.pop(0)
            else:
                raise OptionError("its value is missing", where=option, cure=f"it takes {_allowed_at(key, schema)}")
        yield option, key, text


def _snake(name: str) -> str:
    return name.replace("-", "_")


def _key(name: str, schema: Schema, option: str) -> str:
    known: dict[str, Any] = schema.get("properties", {})
    for each in (name, _snake(name)):
        if each in known:
            return each
    if schema.get("additionalProperties", True) is not False:
        return _snake(name)
    near = difflib.get_close_matches(_snake(name), known, n=1, cutoff=0.5)
    as_typed = "--" if option.startswith("--") else ""
    there = ", ".join(as_typed + (each.replace("_", "-") if as_typed else each) for each in known) or "none"
    cure = (
        f"did you mean {as_typed}{near[0].replace('_', '-') if as_typed else near[0]}?" if near else f"it has {there}"
    )
    raise OptionError("the driver has no such option", where=option, cure=cure)


def _is_flag(key: str, schema: Schema) -> bool:
    about = resolved(schema.get("properties", {}).get(key, {}), schema)
    return about.get("type") == "boolean"


def _allowed_at(key: str, schema: Schema) -> str:
    return allowed(schema.get("properties", {}).get(key, {}), schema)


def resolved(about: Schema, schema: Schema) -> Schema:
    """A property with its reference followed."""
    name = str(about.get("$ref", "")).rpartition("/")[2]
    found = schema.get("$defs", {}).get(name)
    return about if found is None else {**found, **{key: value for key, value in about.items() if key != "$ref"}}


def _branches(about: Schema, schema: Schema) -> list[Schema]:
    """What it may be, without null; marks and unit go along."""
    about = resolved(about, schema)
    parts = [*about.get("anyOf", []), *about.get("oneOf", [])]
    if not parts:
        return [about]
    return [branch for part in parts if part.get("type") != "null" for branch in _branches(part, schema)]


def unit_of(about: Schema, schema: Schema) -> str:
    """The unit of a property, or of what it may be."""
    units = [about.get("unit"), *(branch.get("unit") for branch in _branches(about, schema))]
    return next((str(unit) for unit in units if unit), "")


def allowed(about: Schema, schema: Schema) -> str:
    """What a value may be, in words: `a whole number 0 to 63, or { chip, line }`."""
    return ", or ".join(dict.fromkeys(_allowed(branch) for branch in _branches(about, schema)))


def _allowed(about: Schema) -> str:
    if "enum" in about:
        return " or ".join(str(each) for each in about["enum"])
    kind = about.get("type")
    if kind in ("integer", "number"):
        low, above = about.get("minimum"), about.get("exclusiveMinimum")
        words = "a whole number" if kind == "integer" else "a number"
        words += f" {_plain(low)}" if low is not None else f" above {_plain(above)}" if above is not None else ""
        high = about.get("maximum")
        if high is not None:
            words += f" {'up ' if low is None and above is None else ''}to {_plain(high)}"
        return words
    if kind == "object":
        members = ", ".join(f"{name} = ..." for name in about.get("properties", {}))
        return f"{{ {members} }}" if members else "a table { key = value }"
    if kind == "array":
        return "a list; give it several times"
    return {"boolean": "true or false", "string": "text"}.get(str(kind), "a value")


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _value(text: str, about: Schema, schema: Schema, option: str) -> Any:
    if about.get(MARK):
        text = pin_text(text)
    wrong = ""
    for branch in _branches(about, schema):
        try:
            return _read(text, branch)
        except ValueError as error:
            wrong = wrong or str(error)
    may = allowed(about, schema)
    unit = unit_of(about, schema)
    join = " " if option.startswith("--") else "="
    raise OptionError(
        wrong if wrong.startswith("the unit") else f"found {text!r}, allowed is {may}{f' ({unit})' if unit else ''}",
        where=option,
        cure=f"for example {option}{join}{_example(about, schema)}",
    )


def _example(about: Schema, schema: Schema) -> str:
    """A value that is allowed, as it is typed."""
    first = _branches(about, schema)[0]
    if about.get(MARK):
        return "12, or gpiochip0:12"
    value = about.get("default")
    if value is None:
        value = first.get("enum", [None])[0]
    if value is None:
        value = {"string": "text", "boolean": "true", "object": "'{ key = 1 }'"}.get(str(first.get("type")))
    if value is None:
        value = max(first.get("minimum", 1), first.get("exclusiveMinimum", 0) + 1)
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def pin_text(text: str) -> str:
    """`gpiochip1:7` and `GPIO12` as the file has them."""
    if found := re.fullmatch(r"(gpiochip\d+)[:/](\d+)", text):
        return f'{{chip = "{found[1]}", line = {int(found[2])}}}'
    found = re.fullmatch(r"(?i:gpio|bcm)(\d+)", text)
    return found[1] if found else text


def _read(text: str, about: Schema) -> Any:
    """Raises `ValueError`."""
    if "enum" in about:
        return next(each for each in about["enum"] if str(each) == text) if text in map(str, about["enum"]) else _no()
    match about.get("type"):
        case "integer" | "number" as kind:
            return _within(_number(text, kind, str(about.get("unit", ""))), about)
        case "boolean":
            return _TRUTH[text.lower()] if text.lower() in _TRUTH else _no()
        case "array" | "object" as kind:
            value = _structure(text)
            return value if isinstance(value, list if kind == "array" else dict) else _no()
        case "string":
            pattern = about.get("pattern")
            return text if pattern is None or re.search(pattern, text) else _no()
        case None:
            return _guess(text)
    return _no()


def _no() -> Any:
    raise ValueError


def _number(text: str, kind: str, unit: str) -> int | float:
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise ValueError
    number, told = float(found[1]), (found[2] or "").replace("µ", "u").replace("μ", "u").strip().lower()
    if told and told != unit.lower():
        known = _UNITS.get(unit.lower(), {})
        if told not in known:
            raise ValueError(f"the unit is {unit}, and {found[2]!r} is another" if unit else "the unit: it has none")
        number = round(number * known[told], 12)
    if number.is_integer() and abs(number) < 2**53 and (kind == "integer" or "." not in found[1]):
        return int(number)
    if kind == "integer":
        raise ValueError
    return number


def _within(number: int | float, about: Schema) -> int | float:
    low, high = about.get("minimum", number), about.get("maximum", number)
    if not low <= number <= high or number <= about.get("exclusiveMinimum", number - 1):
        raise ValueError
    return number


def _structure(text: str) -> Any:
    """Raises `ValueError`."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return json.loads(text)


def _guess(text: str) -> Any:
    try:
        return _structure(text)
    except ValueError:
        return text
