"""From a typed class to its description; contexts; finding a driver; lines."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.context import Context
from edgepanda.drivers.contract import ActionSpec, CallParams, CallResult, DriverError, error_from_data
from edgepanda.drivers.loading import load
from edgepanda.drivers.rpc import LineBuffer


class Colour(msgspec.Struct):
    red: int
    green: int = 0


class Lamp(Driver):
    name = "lamp"

    @action(tier=1, replay="safe", timeout=3, units={"level": "percent"}, spoken=("dim {device} to {level}",))
    def dim(
        self,
        ctx: Context,
        level: Annotated[float, msgspec.Meta(ge=0, le=100)],
        mode: Literal["fast", "slow"] = "fast",
        colour: Colour | None = None,
    ) -> Colour:
        """Dims the lamp.

        And more that is not for the card.
        """
        return Colour(1)

    @action(tier=0, replay="safe", on_busy="queue")
    def look(self, ctx: Context) -> CallResult:
        """Looks"""
        return CallResult("succeeded")


def test_describe_is_made_from_the_methods() -> None:
    found = Lamp.describe()
    dim = found.actions["dim"]
    assert (dim.description, dim.tier, dim.replay, dim.timeout) == ("Dims the lamp.", 1, "safe", 3)
    assert dim.args["properties"]["level"] == {"type": "number", "minimum": 0, "maximum": 100, "unit": "percent"}
    assert dim.args["properties"]["mode"]["enum"] == ["fast", "slow"]
    assert (dim.args["required"], dim.args["additionalProperties"]) == (["level"], False)
    assert dim.returns is not None
    assert dim.returns["properties"]["red"] == {"type": "integer"}
    assert found.actions["look"] == ActionSpec("Looks", 0, "safe", found.actions["look"].args, "queue")
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"level": "9"},
        {"level": 101},
        {"level": None},
        {"level": True},
        {"level": 1, "x": 1},
        {"level": 1, "mode": "off"},
    ],
)
def test_arguments_are_checked_by_their_types(args: dict[str, Any]) -> None:
    with pytest.raises(DriverError) as caught:
        Lamp._bound["dim"].check(args)
    assert caught.value.code == "invalid_args"


def test_defaults_and_structs_are_filled_in() -> None:
    given_args = {"level": 5, "colour": {"red": 7}}
    assert Lamp._bound["dim"].check(given_args) == {"level": 5.0, "mode": "fast", "colour": Colour(7)}


def test_a_method_without_types_or_with_a_unit_for_nothing_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="no annotation"):

        class Untyped(Driver):
            name = "untyped"

            @action(tier=0, replay="safe")
            def look(self, ctx: Context, where) -> None:  # type: ignore[no-untyped-def]
                """Looks"""

    with pytest.raises(TypeError, match="no argument"):

        class Unit(Driver):
            name = "unit"

            @action(tier=0, replay="safe", units={"angle": "degree"})
            def look(self, ctx: Context) -> None:
                """Looks"""


def context(seconds: float, sent: list[Any] | None = None) -> Context:
    send = (sent if sent is not None else []).append
    return Context(5, CallParams("a", "x", int(seconds * 1000)), 1.5, send)


def test_a_cancel_is_answered_when_the_code_takes_notice() -> None:
    sent: list[Any] = []
    call = context(10, sent)
    assert call.begin()
    assert not call.stop("cancel", 8)
    assert sent == []  # the thread that reads lines does not answer on the driver's behalf
    with pytest.raises(DriverError) as caught:
        call.wait(5)
    assert (caught.value.code, caught.value.details) == ("cancelled", {"reason": "cancel"})
    assert [(answer.id, answer.result.known, answer.result.within_ms) for answer in sent] == [(8, True, 1500)]
    call.stop("cancel", 9)
    assert sent[1].id == 9  # noticed already: answered at once


def test_a_call_that_ends_without_noticing_answers_its_cancels_too() -> None:
    sent: list[Any] = []
    call = context(10, sent)
    call.begin()
    call.stop("cancel", 8)
    call.finish(msgspec.Raw(b"1"))  # type: ignore[arg-type]
    assert sent[0].id == 8
    assert len(sent) == 2


def test_a_call_that_has_not_begun_never_does() -> None:
    sent: list[Any] = []
    call = context(10, sent)
    assert call.stop("cancel", 8)
    assert not call.begin()
    assert sorted(answer.id for answer in sent) == [5, 8]


def test_a_stop_outranks_a_cancel() -> None:
    call = context(10)
    call.begin()
    call.stop("cancel")
    call.stop("safe")
    call.stop("cancel")
    assert call.stop_reason() == "safe"


def test_a_wait_ends_by_a_cancel_or_the_deadline() -> None:
    call = context(0.02)
    call.begin()
    with pytest.raises(DriverError) as caught:
        call.wait(60)
    assert caught.value.code == "timeout"
    call = context(60)
    call.begin()
    threading.Timer(0.02, call.stop, ("cancel",)).start()
    began = time.monotonic()
    with pytest.raises(DriverError):
        call.wait(60)
    assert time.monotonic() - began < 5


def test_errors_keep_to_the_fixed_codes() -> None:
    error = error_from_data("text", {"code": "made_up", "message": "m", "details": 7})
    assert (error.code, error.message, error.details) == ("io", "m", {})
    assert error_from_data("text", ["nonsense"]).message == "text"
    told = DriverError("m", code="limit", where="angle", cure="c", details={"a": 1})
    again = error_from_data("", told.as_dict())
    assert again.as_dict() == told.as_dict()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.py", None, "no such file"),
        ("a.py", "x = (", "SyntaxError"),
        ("a.py", "1 / 0", "ZeroDivisionError"),
        ("a.py", "x = 1", "0 driver classes"),
        ("a.py", "from edgepanda.drivers.base import Driver\nclass A(Driver): pass", "subclass"),
        ("os", None, "cannot be imported"),
        ("../servo", None, "no name"),
        ("base", None, "classes"),
    ],
)
def test_what_is_no_driver_is_said(tmp_path: Path, name: str, text: str | None, reason: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(DriverError) as caught:
        load(str(path) if name.endswith(".py") else name)
    assert caught.value.code == "unavailable"
    assert reason in str(caught.value)


@given(st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b), max_size=8), st.integers(1, 7))
def test_lines_are_found_however_they_are_cut(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    buffer, found = LineBuffer(20), []
    for start in range(0, len(stream), size):
        found += buffer.feed(stream[start : start + size])
    assert found == [line for line in lines if line.strip() and len(line) < 20]
    assert buffer.overlong == sum(len(line) >= 20 for line in lines)
