"""The node's side of a driver host, with real host processes."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edgepanda.drivers.contract import CallResult, DriverError
from edgepanda.drivers.process import record_of, runs
from edgepanda.node import host_lock, hosts
from edgepanda.node.host_lock import lock_path, take_lock
from edgepanda.node.host_process import HostProcess
from edgepanda.node.hosts import Host
from tests.rig.driver_wire import from_document, python_host

RECORDER = str(Path(__file__).parents[1] / "rig" / "recorder.py")


@asynccontextmanager
async def running(
    folder: Path, driver: str = RECORDER, argv: list[str] | None = None, **on: Any
) -> AsyncIterator[Host]:
    host = Host(driver, argv, folder / "run", **on)
    await host.start()
    try:
        yield host
    finally:
        await host.close()


async def note(host: Host, attempt: int = 1, *, action: str = "note", timeout: float = 10, **args: Any) -> CallResult:
    return await host.call("a", action, args, task="t", attempt=attempt, timeout=timeout)


async def refusal(work: Awaitable[Any]) -> DriverError:
    with pytest.raises(DriverError) as caught:
        await work
    return caught.value


async def until(holds: Callable[[], object], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.005)


def lines(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


async def test_a_call_goes_there_and_back(tmp_path: Path) -> None:
    states: list[Any] = []
    async with running(tmp_path, on_state=lambda *told: states.append(told)) as host:
        assert (await host.describe()).driver == "recorder"
        assert (await host.probe({})).usable
        await host.open("a", {"file": str(tmp_path / "log")})
        assert (await note(host, text="hello")).value == "hello"
        assert (await refusal(note(host, seconds=-1))).code == "invalid_args"
        assert (await refusal(host.probe({"x": 1}))).code == "invalid_args"
        await host.safe()
        assert states == [("a", {"safe": True})]
        await host.close_device("a")
        assert (await refusal(note(host))).code == "unavailable"
    assert lines(tmp_path / "log") == 1
    assert not host.alive


async def test_progress_and_output_find_their_attempt(tmp_path: Path) -> None:
    told: list[Any] = []
    config = {"argv": ["sh", "-c", "echo hi"], "tier": 1, "replay": "safe"}
    async with running(tmp_path, "command", on_output=lambda *output: told.append(output)) as host:
        await host.open("a", config)
        await host.call("a", "run", {}, task="t", attempt=3, work=tmp_path / "w", timeout=10)
    assert told == [("t", 3, "stdout", "hi\n")]
    steps: list[Any] = []
    async with running(tmp_path, "servo") as host:
        await host.open("a", {"pin": 17, "simulate": True, "start": 0, "speed": 90})
        await host.call(
            "a", "move", {"angle": 45}, task="t", attempt=1, timeout=9, on_progress=lambda *step: steps.append(step)
        )
    assert steps
    assert 0 < steps[0][0] < 1


async def test_a_cancel_ends_the_call_and_not_the_host(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.open("a", {"file": str(tmp_path / "log")})
        call = asyncio.create_task(note(host, 7, seconds=30))
        await until(lambda: lines(tmp_path / "log"))
        assert await host.cancel("t", 7)
        assert (await refusal(call)).code == "cancelled"
        assert not await host.cancel("t", 7)
        assert host.restarts == 0


async def test_what_does_not_hear_a_cancel_is_killed_and_a_fresh_host_is_safe(tmp_path: Path) -> None:
    states: list[Any] = []
    async with running(tmp_path, on_state=lambda *told: states.append(told)) as host:
        await host.open("a", {"file": str(tmp_path / "log"), "deaf": True})
        pid = host.pid
        call = asyncio.create_task(note(host, seconds=30))
        await until(lambda: lines(tmp_path / "log"))
        began = time.monotonic()
        await host.cancel("t", 1)
        assert time.monotonic() - began < 0.5
        assert (await refusal(call)).code == "io"
        assert (await note(host)).outcome == "succeeded"
        assert host.pid != pid
        assert states == [("a", {"safe": True})]


async def test_a_call_past_its_deadline_is_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.open("a", {})
        assert (await refusal(note(host, seconds=30, timeout=0.1))).code == "timeout"
        assert host.restarts == 0
        await host.open("a", {"deaf": True})
        assert (await refusal(note(host, seconds=30, timeout=0.1))).code == "io"
        await until(lambda: host.restarts == 1 and host.alive)


async def test_safe_that_is_not_answered_is_done_by_a_fresh_host(tmp_path: Path) -> None:
    states: list[Any] = []
    async with running(tmp_path, on_state=lambda *told: states.append(told)) as host:
        await host.open("a", {"file": str(tmp_path / "log"), "deaf": True})
        call = asyncio.create_task(note(host, seconds=30))
        await until(lambda: lines(tmp_path / "log"))
        await host.safe()
        assert states == [("a", {"safe": True})]
        assert host.restarts == 1
        assert (await refusal(call)).code == "io"


async def test_the_safe_state_waits_for_no_back_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "BACKOFF_FIRST", 3600.0)
    monkeypatch.setattr(hosts, "BACKOFF_MOST", 3600.0)
    states: list[Any] = []
    async with running(tmp_path, on_state=lambda *told: states.append(told)) as host:
        await host.open("a", {})
        os.kill(host.pid or 0, signal.SIGKILL)
        await until(lambda: host.restarts == 1 and host.alive)
        os.kill(host.pid or 0, signal.SIGKILL)  # the next start would be in an hour
        await until(lambda: host.restarts == 2)
        states.clear()
        await host.safe()
        assert states == [("a", {"safe": True})]


async def test_a_host_that_somebody_has_stopped_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "CANCEL_WITHIN", 3600.0)
    states: list[Any] = []
    async with running(tmp_path, on_state=lambda *told: states.append(told)) as host:
        await host.open("a", {})
        os.kill(host.pid or 0, signal.SIGSTOP)
        await until(lambda: host._process is not None and host._process.suspended)
        await host.safe()
        assert states == [("a", {"safe": True})]


SILENT = """
import signal, os
from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.context import Context
class Quiet(Driver):
    name = "quiet"
    silence = 0.5
    @action(tier=0, replay="safe")
    def talk(self, ctx: Context) -> int:
        \"\"\"Tells something now and then, for longer than the limit\"\"\"
        for _ in range(8):
            ctx.progress(0.5)
            ctx.wait(0.1)
        return 1
    @action(tier=0, replay="safe")
    def hang(self, ctx: Context) -> int:
        \"\"\"Stops in mid-move\"\"\"
        os.kill(os.getpid(), signal.SIGSTOP)
        ctx.wait(60)  # this thread may go on for a moment
        return 1
"""


async def test_a_host_that_is_silent_for_longer_than_its_driver_says_is_killed(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text(SILENT)
    async with running(tmp_path, str(tmp_path / "quiet.py")) as host:
        await host.open("a", {})
        assert (await host.call("a", "talk", {}, task="t", attempt=1, timeout=20)).outcome == "succeeded"
        assert host.restarts == 0
        failed = await refusal(host.call("a", "hang", {}, task="t", attempt=2, timeout=3600))
        assert (failed.code, "told nothing for 0.5 s" in str(failed)) == ("io", True)
        await until(lambda: host.restarts == 1 and host.alive)
        assert (await host.call("a", "talk", {}, task="t", attempt=3, timeout=20)).outcome == "succeeded"


async def test_a_host_that_dies_is_restarted_and_its_calls_fail(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        await host.open("a", {"file": str(tmp_path / "log")})
        call = asyncio.create_task(note(host, seconds=30, action="mark"))
        await until(lambda: lines(tmp_path / "log"))
        assert host.pid
        os.kill(host.pid, signal.SIGKILL)
        error = await refusal(call)
        assert error.code == "io"
        assert (await note(host)).outcome == "succeeded"
        assert lines(tmp_path / "log") == 2  # the mark was not made again


async def test_a_position_is_handed_back_unless_the_host_died_on_the_way(tmp_path: Path) -> None:
    async with running(tmp_path, "servo") as host:
        known = {"angle": 0.0, "of": {"pin": "GPIO17", "us": 1500.0}}
        await host.open("a", {"pin": 17, "simulate": True, "speed": 40}, known)

        async def move(angle: float) -> CallResult:
            return await host.call("a", "move", {"angle": angle}, task="t", attempt=1, timeout=9)

        await move(12)
        assert host.pid
        os.kill(host.pid, signal.SIGKILL)
        await until(lambda: host.restarts == 1 and host.alive)
        assert (await host.call("a", "read", {}, task="t", attempt=1, timeout=9)).value["angle"] == 12
        call = asyncio.create_task(move(90))
        await asyncio.sleep(0)  # the request is written
        os.kill(host.pid, signal.SIGKILL)
        await refusal(call)
        await until(lambda: host.restarts == 2 and host.alive)
        assert (await refusal(move(20))).code == "unavailable"


async def test_a_command_goes_on_when_its_host_dies(tmp_path: Path) -> None:
    script = (
        """echo x >> count; while [ ! -e go ]; do sleep 0.02; done; echo '{"outcome": "succeeded"}' > result.json"""
    )
    work = tmp_path / "work"
    async with running(tmp_path, "command") as host:
        await host.open("a", {"argv": ["sh", "-c", script], "tier": 1, "replay": "unsafe"})
        call = asyncio.create_task(host.call("a", "run", {}, task="t", attempt=1, work=work, timeout=20))
        await until(lambda: lines(work / "count"))
        assert host.pid
        os.kill(host.pid, signal.SIGKILL)
        await until(lambda: host.restarts == 1 and host.alive)
        (work / "go").touch()
        assert (await call).outcome == "succeeded"
    assert lines(work / "count") == 1


@pytest.mark.parametrize("deaf", [False, True])
async def test_a_leftover_host_is_ended_at_start(tmp_path: Path, deaf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_lock, "EXIT_WITHIN", 0.5 if deaf else host_lock.EXIT_WITHIN)
    run_dir = tmp_path / "run"
    argv = ["sh", "-c", "trap '' TERM; sleep 60"] if deaf else python_host(RECORDER, run_dir)
    lock = await take_lock(lock_path(run_dir, RECORDER))
    old = HostProcess.spawn(RECORDER, argv, lock, lambda *_: None)
    lock.release()
    record = record_of(old.pid)
    if not deaf:
        await old.request("describe", {}, 10)
    async with running(tmp_path) as new:
        assert not runs(record)
        assert json.loads(lock_path(run_dir, RECORDER).read_text())["process"][0] == new.pid
    await old.exited


async def test_a_lock_that_somebody_else_holds_is_busy(tmp_path: Path) -> None:
    path = lock_path(tmp_path / "run", "servo")
    path.parent.mkdir()
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for record in ("", json.dumps({"process": [os.getpid(), 1, "another boot"]})):  # one that fits nobody
            path.write_text(record)
            error = await refusal(Host("servo", None, tmp_path / "run").start())
            assert (error.code, str(path) in error.cure) == ("busy", True)


async def test_a_driver_in_shell(tmp_path: Path) -> None:
    relay = from_document("relay.sh", tmp_path)
    file = tmp_path / "brightness"
    file.write_text("0")
    async with running(tmp_path, "relay", ["bash", str(relay)]) as host:
        await host.open("a", {"file": str(file)})
        result = await host.call("a", "set", {"on": True}, task="t", attempt=1, timeout=5)
        assert result.evidence == ({"kind": "level", "read_back": "1"},)
    assert file.read_text() == "0\n"


def program(text: str) -> list[str]:
    """A host that describes itself and then does what `text` says."""
    answer = {"contract": 1, "driver": "odd", "version": "1", "actions": {}, "device": {}}
    hello = f"print(json.dumps({{'id': 1, 'result': {answer}}}), flush=True)"
    head = f"import json, sys, time, os\nsys.stdin.readline()\n{hello}\n"
    return [sys.executable, "-c", head + text]


async def test_garbage_is_counted_and_the_answers_still_come(tmp_path: Path) -> None:
    text = r"""
w = sys.stdout.buffer
for line in sys.stdin:
    w.write(b'no json\n\xff\xfe\n[]\n{"id":"x"}\n{"method":7}\n{"method":"state","params":{"device":5}}\n')
    w.write(b'{"method":"state","params":{}}\n{"id":99,"result":1}\n{"jsonrpc":"2.0"}\n' + b'[' * 90000 + b'\n')
    w.write(b'x' * 1100000 + b'\n')
    w.write(b'{"id":%d,"result":{"usable":true}}\n' % json.loads(line)["id"])
    w.flush()
"""
    async with running(tmp_path, "odd", program(text)) as host:
        assert (await host.probe({})).usable
        assert host._process
        assert host._process.garbage >= 6
        assert host.restarts == 0


async def test_an_answer_that_breaks_the_contract_is_an_error(tmp_path: Path) -> None:
    answer = '{"id": json.loads(line)["id"], "result": {"usable": "no"}}'
    text = f"for line in sys.stdin: print(json.dumps({answer}), flush=True)"
    async with running(tmp_path, "odd", program(text)) as host:
        error = await refusal(host.probe({}))
        assert (error.code, "usable" in error.message) == ("io", True)


async def test_a_flood_does_not_take_the_loop(tmp_path: Path) -> None:
    text = 'while True: os.write(1, b\'{"method":"state","params":{"device":"a","values":{}}}\\n\' * 100)'
    told = 0

    def count(*_: object) -> None:
        nonlocal told
        told += 1

    host = Host("odd", program(text), tmp_path / "run", on_state=count)
    await host.start()
    try:
        used = time.process_time()
        worst = 0.0
        for _ in range(50):
            before = time.monotonic()
            await asyncio.sleep(0.01)
            worst = max(worst, time.monotonic() - before)
        assert told > 0
        assert told < 20000  # bounded by windows, not by what the host can write
        assert time.process_time() - used < 0.4
        assert worst < 0.3
    finally:
        assert host._process
        host._process.kill()
        await host.close()


async def test_a_host_that_does_not_start_says_why(tmp_path: Path) -> None:
    cases = [
        (Host("nothing", ["/no/such/program"], tmp_path / "run"), "No such file"),
        (
            Host("nothing", [sys.executable, "-c", "raise SystemExit('no board here')"], tmp_path / "run"),
            "no board here",
        ),
        (Host("no_such_driver", None, tmp_path / "run"), "no_such_driver"),
        (Host("./missing.py", None, tmp_path / "run"), "no such file"),
    ]
    for host, text in cases:
        error = await refusal(host.start())
        assert (error.code, text in str(error)) == ("unavailable", True), error
        await host.close()


async def test_close_is_safe_quick_and_may_be_called_twice(tmp_path: Path) -> None:
    states: list[Any] = []
    async with running(tmp_path, on_state=lambda *told: states.append(told)) as host:
        await host.open("a", {})
        call = asyncio.create_task(note(host, seconds=30))
        await asyncio.sleep(0)
        began = time.monotonic()
        await host.close()
        assert time.monotonic() - began < 2
        assert (await refusal(call)).code in ("cancelled", "io")
        assert states == [("a", {"safe": True})]
        assert host.pid is None
        assert (await refusal(note(host))).code == "unavailable"


async def test_a_host_that_keeps_dying_is_started_ever_more_rarely(tmp_path: Path) -> None:
    marks = tmp_path / "starts"
    text = f"open({str(marks)!r}, 'a').write('x\\n')\nsys.exit(3)"
    host = Host("odd", program(text), tmp_path / "run")
    await host.start()
    try:
        await until(lambda: lines(marks) >= 3)
        began = time.monotonic()
        await until(lambda: lines(marks) >= 4)
        assert time.monotonic() - began > 0.7  # 0, 0.5, 1, 2 ... s
        assert "again in" in host.problem
    finally:
        await host.close()


async def test_a_cancel_that_meets_the_death_of_the_host_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` cancels who restarts the host, and waits for it: were the cancel lost, it would wait for ever."""
    process = object.__new__(HostProcess)
    process._name, process._waiting = "odd", {}
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(process, "send", lambda *_: (1, answer))
    asking = asyncio.ensure_future(process.request("describe", {}, 5.0))
    await asyncio.sleep(0)
    answer.set_exception(DriverError("the host died"))
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
