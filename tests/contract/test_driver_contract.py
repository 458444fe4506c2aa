"""What every driver keeps: the built-in ones, the rig's, and the two of the document."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fastjsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepanda.drivers.contract import CANCEL_WITHIN, EXIT_WITHIN, MAX_LINE, CallResult, Description, Probe
from tests.rig.driver_wire import Wire, from_document, python_host

RECORDER = Path(__file__).parents[1] / "rig" / "recorder.py"
RESULT = '{"outcome": "succeeded"}'


class Case(NamedTuple):
    """A driver with two devices, a call that works at once, one that lasts (if it has one), and one out of range."""

    argv: list[str]
    configs: list[dict[str, Any]]
    quick: tuple[str, dict[str, Any]]
    long: tuple[str, dict[str, Any]] | None
    wrong: tuple[str, dict[str, Any]]


def make(name: str, folder: Path) -> Case:
    run_dir = folder / "run"
    files = [folder / "a", folder / "b"]
    for file in files:
        file.write_text("0")
    brightness = [{"file": str(file)} for file in files]
    if name == "servo":
        pins = [{"pin": pin, "simulate": True, "start": 0, "speed": 30} for pin in (17, 18)]
        return Case(
            python_host("servo", run_dir),
            pins,
            ("move", {"angle": 0}),
            ("move", {"angle": 90}),
            ("move", {"angle": 91}),
        )
    if name == "command":
        script = f"echo began; sleep {{seconds}}; echo '{RESULT}' > $EDGEPANDA_RESULT"
        number = {"type": "number", "minimum": 0, "default": 0}
        config = {"argv": ["sh", "-c", script], "tier": 1, "replay": "safe", "args": {"seconds": number}, "grace": 0.2}
        host = python_host("command", run_dir)
        return Case(host, [config, config], ("run", {}), ("run", {"seconds": 30}), ("run", {"seconds": -1}))
    if name == "recorder":
        host = python_host(str(RECORDER), run_dir)
        return Case(host, brightness, ("note", {}), ("note", {"seconds": 30}), ("note", {"seconds": -1}))
    if name == "dimmer":
        host = python_host(str(from_document("dimmer.py", folder)), run_dir)
        return Case(host, brightness, ("fade", {"to": 9}), ("fade", {"to": 9, "seconds": 30}), ("fade", {"to": 256}))
    host = ["bash", str(from_document("relay.sh", folder))]
    return Case(host, brightness, ("set", {"on": True}), None, ("set", {"on": 7}))


DRIVERS = ("servo", "command", "recorder", "dimmer", "relay")
PYTHON = DRIVERS[:-1]


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return make(request.param, tmp_path)


@pytest.fixture
def wire(case: Case) -> Iterator[Wire]:
    with Wire(case.argv) as started:
        yield started


def every(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", names, indirect=True)


def call(wire: Wire, tmp_path: Path, device: str, what: tuple[str, dict[str, Any]], attempt: int = 1) -> int:
    work = tmp_path / f"work-{device}-{attempt}"
    action, args = what
    return wire.send(
        "call", device=device, action=action, deadline_ms=20000, args=args, task="t", attempt=attempt, work=str(work)
    )


def begun(wire: Wire, device: str) -> None:
    """Waits until a long call surely runs: the driver said something, or answered a later request."""
    wire.until(lambda m: m.get("method") in ("state", "progress", "output", "event"), 5)


@every(*DRIVERS)
def test_describe_is_valid(case: Case, wire: Wire) -> None:
    found = msgspec.convert(wire.ask("describe"), Description)
    assert found.contract == 1
    assert found.actions
    fastjsonschema.compile(found.device)
    for spec in found.actions.values():
        assert spec.description
        fastjsonschema.compile(spec.args)
        assert spec.args["type"] == "object"


@every(*DRIVERS)
def test_probe_open_call_close(case: Case, wire: Wire, tmp_path: Path) -> None:
    assert msgspec.convert(wire.ask("probe", config=case.configs[0]), Probe).usable
    wire.ask("open", device="a", config=case.configs[0], known=None)
    result = msgspec.convert(wire.answer(call(wire, tmp_path, "a", case.quick))["result"], CallResult)
    assert result.outcome == "succeeded"
    assert result.evidence
    wire.ask("close", device="a")
    assert wire.answer(call(wire, tmp_path, "a", case.quick, 2))["error"]["data"]["code"] == "unavailable"


@every(*DRIVERS)
def test_wrong_arguments_are_refused(case: Case, wire: Wire, tmp_path: Path) -> None:
    wire.ask("open", device="a", config=case.configs[0], known=None)
    action, args = case.quick
    for attempt, what in enumerate([case.wrong, ("nonsense", {}), (action, args | {next(iter(args), "x"): [1]})]):
        error = wire.answer(call(wire, tmp_path, "a", what, attempt))["error"]
        assert error["data"]["code"] in ("invalid_args", "limit"), what
        assert error["data"]["message"]


@every(*PYTHON)
def test_unusable_configurations_are_said(case: Case, wire: Wire) -> None:
    assert wire.error("probe", config={"nonsense": 1})["data"]["code"] == "invalid_args"
    assert wire.error("open", device="a", config={"nonsense": 1})["data"]["code"] == "invalid_args"


@every(*PYTHON)
def test_cancel_is_answered_in_time(case: Case, wire: Wire, tmp_path: Path) -> None:
    assert case.long
    wire.ask("open", device="a", config=case.configs[0], known=None)
    wire.heard.clear()
    running = call(wire, tmp_path, "a", case.long)
    if case.argv[3] in ("servo", "command"):
        begun(wire, "a")
    began = time.monotonic()
    cancel = wire.answer(wire.send("cancel", call=running), CANCEL_WITHIN + 1)["result"]
    assert time.monotonic() - began < CANCEL_WITHIN
    assert cancel["known"]
    error = wire.answer(running, cancel["within_ms"] / 1000)["error"]
    assert error["data"]["code"] == "cancelled"


@every(*DRIVERS)
def test_cancel_of_what_does_not_run_is_answered(case: Case, wire: Wire) -> None:
    wire.ask("describe")
    assert wire.ask("cancel", call=12345)["known"] is False


@every(*PYTHON)
def test_safe_stops_a_call_in_time(case: Case, wire: Wire, tmp_path: Path) -> None:
    assert case.long
    wire.ask("open", device="a", config=case.configs[0], known=None)
    running = call(wire, tmp_path, "a", case.long)
    began = time.monotonic()
    assert "result" in wire.answer(wire.send("safe", device=None), CANCEL_WITHIN + 1)
    assert time.monotonic() - began < CANCEL_WITHIN
    assert wire.answer(running)["error"]["data"]["code"] == "cancelled"


@every(*PYTHON)
def test_devices_work_in_parallel(case: Case, wire: Wire, tmp_path: Path) -> None:
    assert case.long
    for device, config in zip("ab", case.configs, strict=True):
        wire.ask("open", device=device, config=config, known=None)
    running = call(wire, tmp_path, "a", case.long)
    assert wire.answer(call(wire, tmp_path, "b", case.quick), 5)["result"]["outcome"] == "succeeded"
    wire.answer(wire.send("cancel", call=running))
    wire.answer(running)


@every(*PYTHON)
def test_a_deadline_ends_a_call(case: Case, wire: Wire, tmp_path: Path) -> None:
    assert case.long
    wire.ask("open", device="a", config=case.configs[0], known=None)
    action, args = case.long
    params = {"device": "a", "action": action, "args": args, "work": str(tmp_path / "w"), "deadline_ms": 300}
    error = wire.answer(wire.send("call", **params), 5)["error"]
    assert error["data"]["code"] in ("timeout", "limit")  # a servo knows beforehand that the way is too long


BAD_LINES = (
    b"no json",
    b"\xff\xfe\x00",
    b"[]",
    b"42",
    b'"text"',
    b"{}",
    b'{"id":{},"method":"describe"}',
    b'{"id":1e400,"method":"describe"}',
    b'{"id":' + b"9" * 400 + b',"method":"describe"}',
    b'{"id":901,"method":5}',
    b'{"id":902,"method":"no_such_method","params":{}}',
    b'{"id":903,"method":"call","params":{"device":"a","action":"x","deadline_ms":NaN}}',
    b'{"id":904,"method":"call","params":[1,2]}',
    b'{"id":905,"method":"open","params":{"device":7,"config":null}}',
    b'{"id":906,"method":"cancel","params":{"call":"x"}}',
    b"[" * 100000,
    b'{"id":907,"method":"call","params":{"device":"a","action":"x","deadline_ms":1,"args":' + b"[" * 50000 + b"}}",
)


@every(*DRIVERS)
def test_bad_lines_end_nothing(case: Case, wire: Wire) -> None:
    for line in BAD_LINES:
        wire.write(line + b"\n")
    wire.write(b"x" * (MAX_LINE + 10) + b"\n")
    for _ in range(2):  # the word about the long line may come after the first answer
        assert wire.ask("describe")["contract"] == 1
    refused = [message for message in wire.heard if "error" in message]
    assert refused
    if case.argv[0] != "bash":
        assert len(refused) == len(BAD_LINES) + 1


@pytest.mark.parametrize("end", ["input", "sigterm"])
@every(*DRIVERS)
def test_the_end_is_safe_and_quick(case: Case, wire: Wire, end: str, tmp_path: Path) -> None:
    wire.ask("open", device="a", config=case.configs[0], known=None)
    wire.answer(call(wire, tmp_path, "a", case.quick))
    if case.long:
        call(wire, tmp_path, "a", case.long, 2)
    if end == "input":
        wire.end_input()
    else:
        wire.process.send_signal(signal.SIGTERM)
    assert wire.process.wait(EXIT_WITHIN) == 0
    if case.argv[-1].endswith("relay.sh") or "dimmer" in case.argv[3]:
        assert (tmp_path / "a").read_text().strip() == "0"


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    with Wire(make("recorder", tmp_path_factory.mktemp("fuzz")).argv) as started:
        started.ask("open", device="a", config={})
        yield started


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
methods = st.sampled_from(["describe", "probe", "open", "call", "cancel", "safe", "nonsense"])
members = st.sampled_from(["device", "action", "args", "call", "config", "known", "deadline_ms", "attempt", "task"])
requests = st.fixed_dictionaries(
    {"id": st.integers(10**6, 10**9) | json_values, "method": methods},
    optional={"params": st.dictionaries(members, json_values | st.just("a"), max_size=5) | json_values},
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(requests.map(msgspec.json.encode) | st.binary(max_size=60), max_size=4))
def test_whatever_a_line_holds_the_next_one_is_answered(fuzzed: Wire, lines: list[bytes]) -> None:
    for line in lines:
        fuzzed.write(line + b"\n")
    assert fuzzed.ask("describe")["driver"] == "recorder"
    fuzzed.heard.clear()


NOISY = """
import os, sys
from edgepanda.drivers.base import Driver, action

class Noisy(Driver):
    name = "noisy"

    @action(tier=0, replay="safe")
    def talk(self, ctx):
        "Prints, writes to descriptor 1, runs a program that does, and reads standard input"
        print('{"id": 1, "result": "forged"}', flush=True)
        os.write(1, b"raw\\n")
        os.system("echo from a child")
        return sys.stdin.read()

    @action(tier=0, replay="safe")
    def odd(self, ctx):
        "Gives what is no JSON"
        return object()

    @action(tier=0, replay="safe")
    def long(self, ctx):
        "Gives more than a line holds"
        return "x" * (1 << 20)

    @action(tier=0, replay="safe")
    def broken(self, ctx):
        "Has a fault"
        return 1 / 0
"""


def test_what_a_driver_prints_or_gives_does_not_harm_the_protocol(tmp_path: Path) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(NOISY)
    with Wire(python_host(str(path), tmp_path / "run")) as wire:
        wire.ask("open", device="a", config={})
        assert wire.ask("call", device="a", action="talk", deadline_ms=9000)["value"] == ""
        for action, text in (("odd", "JSON"), ("long", "longer"), ("broken", "ZeroDivisionError")):
            error = wire.error("call", device="a", action=action, deadline_ms=9000)["data"]
            assert (error["code"], text in error["message"]) == ("io", True)
        assert wire.heard == []


def test_the_documents_python_driver_is_short(tmp_path: Path) -> None:
    assert len(from_document("dimmer.py", tmp_path).read_text().splitlines()) <= 40
