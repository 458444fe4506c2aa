"""What a configuration comes to: every value in effect, and where it is from; its keys as JSON Schema."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import msgspec

from edgepanda.model.config import Loaded
from edgepanda.model.config_lines import Key, Lines
from edgepanda.model.config_types import ENTRIES, TABLES, Capability, Config
from edgepanda.model.config_words import Field, dotted, fields_of
from edgepanda.redact import redact_value


class Value(msgspec.Struct, frozen=True):
    """One value in effect. `line` is 0 for a default. Secrets are not shown."""

    key: str
    value: Any
    line: int
    unit: str = ""
    restart: bool = True

    @property
    def origin(self) -> str:
        """Where it is from, for people."""
        return f"line {self.line}" if self.line else "default"


def effective(loaded: Loaded, text: str) -> list[Value]:
    """All values, in the order of the types; a table that is absent has one, which is None. `text` is the file's."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    data, lines = tomllib.loads(text), Lines(text)
    state = Field("state_dir", str, str(loaded.state_dir))
    values = [_value(state, {**data, "state_dir": str(loaded.state_dir)} if "state_dir" in data else {}, (), lines)]
    for name in TABLES:
        if getattr(loaded.config, name) is None:
            values.append(Value(name, None, 0))
        else:
            values += _table(fields_of(TABLES[name]), data.get(name, {}), (name,), lines)
    for name in ENTRIES:
        fields = fields_of(Capability) if name == "capabilities" else {}
        for entry, given in data.get(name, {}).items():
            values += _table(fields, given, (name, entry), lines)
    return values


def _table(fields: dict[str, Field], given: dict[str, Any], at: Key, lines: Lines) -> Iterator[Value]:
    own = {name: Field(name, Any, None, restart=False) for name in given if name not in fields}
    for field in {**fields, **own}.values():
        yield _value(field, given, at, lines)


def _value(field: Field, given: dict[str, Any], at: Key, lines: Lines) -> Value:
    key = (*at, field.name)
    line = lines.of(key) if field.name in given else 0
    value = redact_value(given.get(field.name, field.default), field.name)
    return Value(dotted(key), value, line, field.unit, field.restart)


def schema() -> dict[str, Any]:
    """The configuration as JSON Schema, with `unit` and `restart` beside the usual members."""
    (root, *_), parts = msgspec.json.schema_components([Config, *ENTRIES.values()], ref_template="#/$defs/{name}")
    name = root["$ref"].rpartition("/")[2]
    whole = parts.pop(name)
    for table, kind in ENTRIES.items():
        whole["properties"][table]["additionalProperties"] = {"$ref": f"#/$defs/{kind.__name__}"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": parts}
