"""What the types say of the keys: nothing without a description, and nothing that the drivers see differently."""

from __future__ import annotations

import importlib
import pkgutil

import msgspec
import pytest

import edgepanda.drivers
from edgepanda.drivers.base import Driver
from edgepanda.drivers.command_config import CommandConfig
from edgepanda.model.config_lines import Lines
from edgepanda.model.config_types import DRIVERS, ENTRIES, TABLES, Capability, Config
from edgepanda.model.config_words import allowed, fields_of, toml
from edgepanda.redact import redact_value


@pytest.mark.parametrize("kind", [*TABLES.values(), *ENTRIES.values()], ids=lambda kind: kind.__name__)
def test_every_key_says_what_it_is_for_and_what_is_allowed(kind: type[msgspec.Struct]) -> None:
    for field in fields_of(kind).values():
        assert field.description.endswith("."), field.name
        assert allowed(field), field.name


def test_the_keys_of_a_capability_are_those_of_its_driver() -> None:
    mine, drivers = fields_of(Capability), {field.name: field for field in msgspec.structs.fields(CommandConfig)}
    assert set(mine) - {"labels"} == set(drivers)
    for name, field in drivers.items():
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        assert mine[name].default == default, name


def test_the_built_in_drivers_are_known_by_name() -> None:
    found = set()
    for module in pkgutil.iter_modules(edgepanda.drivers.__path__):
        values = vars(importlib.import_module(f"edgepanda.drivers.{module.name}"))
        drivers = [v for v in values.values() if isinstance(v, type) and issubclass(v, Driver) and v is not Driver]
        if any(driver.__module__.endswith(f".{module.name}") for driver in drivers):
            found.add(module.name)
    assert found == set(DRIVERS)


def test_the_tables_are_those_of_the_file() -> None:
    assert [*TABLES, *ENTRIES, "state_dir"] == list(fields_of(Config))


def test_lines_of_keys() -> None:
    text = """\
# [node]
a.b = 1
[x."y.z"]  # [no]
list = [
  "]",  # ]
  { c = 1 },
]
text = '''
[node]
'''
'q q' = "#"
[x.w]
"""
    lines = Lines(text)
    places = [
        ("a", "b"),
        ("x",),
        ("x", "y.z", "list"),
        ("x", "y.z", "text"),
        ("x", "y.z", "q q"),
        ("x", "w"),
        ("node",),
    ]
    assert [lines.of(place) for place in places] == [2, 3, 4, 8, 11, 12, 1]


def test_secrets_are_not_shown() -> None:
    shown = redact_value({"url": "mqtt://me:secret@x", "api_key": "k", "password_file": "f", "a": ["http://a:b@c"]})
    assert shown == {"url": "mqtt://me:***@x", "api_key": "***", "password_file": "f", "a": ["http://a:***@c"]}


def test_values_as_they_stand_in_the_file() -> None:
    assert toml({"a b": [1, "x", True], "c": {}}) == '{ "a b" = [1, "x", true], c = {} }'
