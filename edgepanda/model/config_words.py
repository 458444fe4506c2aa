"""The configuration's types and values in the words of a person: what was found, what is allowed."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

_LONGEST = 60


class Field(msgspec.Struct, frozen=True):
    """One key of a table: its type, its default (`NODEFAULT`: required), and what its annotation says."""

    name: str
    type: Any
    default: Any
    description: str = ""
    unit: str = ""
    allowed: str = ""
    example: Any = None
    restart: bool = True
    limits: tuple[float | None, float | None, float | None] = (None, None, None)  # ge, gt, le

    @property
    def required(self) -> bool:
        """True if the table cannot be without it."""
        return self.default is msgspec.NODEFAULT


@functools.cache
def fields_of(kind: type[msgspec.Struct]) -> dict[str, Field]:
    """The keys of a table, in the order of the file."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _field(field, hints[field.name]) for field in msgspec.structs.fields(kind)}


def _field(field: msgspec.structs.FieldInfo, hint: Any) -> Field:
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    meta = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, msgspec.Meta)), None)
    if meta is None:
        return Field(field.name, hint, default)
    extra = meta.extra_json_schema or {}
    return Field(
        name=field.name,
        type=hint,
        default=default,
        description=meta.description or "",
        unit=extra.get("unit", ""),
        allowed=extra.get("allowed", ""),
        example=next(iter(extra.get("examples", ())), None),
        restart=extra.get("restart", True),
        limits=(meta.ge, meta.gt, meta.le),
    )


def plain_type(hint: Any) -> Any:
    """The type below `Annotated` and `| None`."""
    while hasattr(hint, "__metadata__"):
        hint = hint.__origin__
    inner = [each for each in get_args(hint) if each is not type(None)]
    return plain_type(inner[0]) if len(inner) == 1 and type(None) in get_args(hint) else hint


def allowed(field: Field) -> str:
    """What may stand there: `a whole number from 1 to 1000`."""
    if field.allowed:
        return field.allowed
    kind = plain_type(field.type)
    words = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}.get(kind)
    if words is None:
        return _structure(kind)
    ge, gt, le = field.limits
    low = f" from {ge:g}" if ge is not None else f" above {gt:g}" if gt is not None else ""
    high = "" if le is None else f" to {le:g}" if ge is not None and le < 1e6 else f" up to {int(le)}"
    return f"{words}{low}{high}{f' ({field.unit})' if field.unit else ''}"


def _structure(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "a table"
    inner = get_args(kind)
    if get_origin(kind) is list:
        return "a list of texts"
    if get_origin(kind) is dict:
        return "a table of texts" if inner[1] is str else "a table of tables"
    return " or ".join(json.dumps(each) for each in inner)


def found(value: Any) -> str:
    """A value as a complaint names it; a password in a URL is not shown."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, str):
        from edgepanda.redact import redact  # not needed where nothing is wrong

        value = redact(value)
        return json.dumps(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}...", ensure_ascii=False)
    return toml(value)


def toml(value: Any) -> str:
    """A value as it stands in the file."""
    if isinstance(value, dict):
        inner = ", ".join(f"{toml_key(name)} = {toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, bool | str):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def toml_key(name: str) -> str:
    """One part of a key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def dotted(key: tuple[str, ...]) -> str:
    """A key as a person writes it: `devices.pan.pin`, `capabilities."disk.free".tier`."""
    return ".".join(map(toml_key, key))
