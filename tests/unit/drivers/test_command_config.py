"""Capabilities of the user's own: placeholders, typed arguments, schemas."""

from __future__ import annotations

from typing import Any

import fastjsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.drivers.command_config import CommandConfig, action_spec, check_args, fill, split
from edgepanda.drivers.contract import DriverError


def config(**members: Any) -> CommandConfig:
    return msgspec.convert({"argv": ["prog"], "tier": 1, "replay": "safe"} | members, CommandConfig)


TEXT = {"name": {"type": "string"}}


@pytest.mark.parametrize(
    ("element", "parts"),
    [
        ("plain", [("plain", None)]),
        ("{name}", [("", "name"), ("", None)]),
        ("--x={name}.txt", [("--x=", "name"), (".txt", None)]),
        ("{{name}}", [("{name}", None)]),
        ('{"a": {"b": 1}}', [('{"a": {"b": 1}}', None)]),
        ("${1} {} { name }", [("${1} {} { name }", None)]),
    ],
)
def test_only_a_name_in_braces_is_a_placeholder(element: str, parts: list[tuple[str, str | None]]) -> None:
    assert split(element) == parts


@given(st.text(alphabet=st.characters(exclude_characters="\0"), max_size=40))
def test_a_value_stays_one_element_whatever_it_holds(value: str) -> None:
    args = {"name": {"type": "string", "allow_dash": True}}
    command = config(argv=["prog", "{name}", "--to={name}"], args=args)
    assert fill(command, check_args(command, {"name": value})) == ["prog", value, f"--to={value}"]


def test_numbers_and_booleans_are_written_plainly() -> None:
    args = {"n": {"type": "integer"}, "x": {"type": "number", "default": 1.5}, "b": {"type": "boolean"}}
    command = config(argv=["prog", "{n}", "{x}", "{b}"], args=args)
    assert fill(command, check_args(command, {"n": -3, "b": True})) == ["prog", "-3", "1.5", "true"]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ({"type": "string"}, "-rf"),
        ({"type": "string"}, "a\0b"),
        ({"type": "string"}, 7),
        ({"type": "string", "max_length": 3}, "abcd"),
        ({"type": "string", "pattern": "[a-z]+"}, "abc1"),
        ({"type": "string", "pattern": "[a-z]+"}, "abc\n"),
        ({"type": "string", "enum": ["a", "b"]}, "c"),
        ({"type": "integer"}, 1.5),
        ({"type": "integer"}, True),
        ({"type": "integer", "minimum": 1}, 0),
        ({"type": "number", "maximum": 1}, 1.01),
        ({"type": "boolean"}, 1),
        ({"type": "string"}, None),
    ],
)
def test_a_wrong_value_is_refused_by_name(argument: dict[str, Any], value: Any) -> None:
    command = config(argv=["prog", "{name}"], args={"name": argument})
    with pytest.raises(DriverError) as caught:
        check_args(command, {"name": value})
    assert (caught.value.code, caught.value.where) == ("invalid_args", "name")


def test_missing_and_unknown_arguments_are_refused() -> None:
    command = config(argv=["prog", "{name}"], args=TEXT)
    for given_args in ({}, {"name": "a", "other": 1}):
        with pytest.raises(DriverError):
            check_args(command, given_args)


@pytest.mark.parametrize(
    "members",
    [
        {"tier": 3},
        {"replay": "maybe"},
        {"argv": []},
        {"argv": [""]},
        {"argv": ["{name}"], "args": TEXT},
        {"argv": ["prog", "{nam}"], "args": TEXT},
        {"args": {"a b": {"type": "string"}}},
        {"args": {"a": {"type": "string", "default": "-x"}}},
        {"args": {"a": {"type": "string", "pattern": "("}}},
        {"env": ["PATH"]},
        {"env": ["EDGEPANDA_TASK"]},
        {"required_outputs": ["../x"]},
        {"grace": 0},
        {"shell": True},
    ],
)
def test_a_wrong_capability_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        config(**members)


@pytest.mark.parametrize("missing", ["tier", "replay", "argv"])
def test_tier_and_replay_must_be_declared(missing: str) -> None:
    members = {"argv": ["prog"], "tier": 1, "replay": "safe"}
    del members[missing]
    with pytest.raises(msgspec.ValidationError, match=missing):
        msgspec.convert(members, CommandConfig)


def test_the_schema_on_the_card_says_the_same_as_the_check() -> None:
    args = {
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "s": {"type": "string", "pattern": "a+", "default": "a"},
    }
    command = config(argv=["prog", "{n}", "{s}"], args=args, timeout=7)
    spec = action_spec(command)
    assert (spec.tier, spec.replay, spec.timeout) == (1, "safe", 7)
    check = fastjsonschema.compile(spec.args)
    for value in ({"n": 1}, {"n": 9, "s": "aa"}):
        check(value)
        check_args(command, value)
    for value in ({}, {"n": 0}, {"n": 10}, {"n": 1, "s": "b"}, {"n": 1, "x": 1}):
        with pytest.raises(fastjsonschema.JsonSchemaException):
            check(value)
        with pytest.raises(DriverError):
            check_args(command, value)
