"""The command driver with real programs: what they see, how they end, and that nothing runs twice."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepanda.drivers.command import Command
from edgepanda.drivers.command_files import Attempt
from edgepanda.drivers.context import Context
from edgepanda.drivers.contract import CallParams, CallResult, DriverError
from edgepanda.drivers.process import PidRecord, read_record, runs

OK = """echo '{"outcome": "succeeded"}' > "$EDGEPANDA_RESULT"; """


class Bench:
    """One capability in a folder."""

    def __init__(self, folder: Path, script: str, **config: Any) -> None:
        settings = {"argv": ["sh", "-c", script], "tier": 1, "replay": "unsafe", "grace": 0.2} | config
        self.work = folder / "work"
        self.sent: list[Any] = []
        self.command = Command("build", Command.read_config(settings), folder / "run", lambda *_: None)
        self.command.open(None)

    def context(self, seconds: float = 20.0, **params: Any) -> Context:
        call = CallParams("build", "run", int(seconds * 1000), task="t1", attempt=2, work=str(self.work), **params)
        context = Context(1, call, 2.0, self.sent.append)
        context.begin()
        return context

    def run(self, context: Context | None = None, **args: Any) -> CallResult:
        return self.command.run(context or self.context(), **args)

    def until(self, holds: Callable[[], bool]) -> None:
        """Waits for something outside this process."""
        end = time.monotonic() + 10
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.005)

    def in_background(self, context: Context) -> tuple[threading.Thread, list[BaseException | CallResult]]:
        """Runs, and returns when the command itself runs."""
        ended: list[BaseException | CallResult] = []

        def work() -> None:
            try:
                ended.append(self.run(context))
            except DriverError as error:
                ended.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        self.until((self.work / "began").exists)
        return thread, ended

    @property
    def group(self) -> PidRecord:
        record = read_record(self.work / ".run" / "pids.json", "group")
        assert record
        return record


def test_it_sees_a_clean_environment_and_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("WANTED", "y")
    bench = Bench(tmp_path, OK + "env | sort > outputs/env; pwd > outputs/pwd", env=["WANTED"])
    bench.run(bench.context(goal="g", criteria=("c1",), constraints=("k",)))
    names = {line.split("=", 1)[0] for line in (bench.work / "outputs" / "env").read_text().splitlines()}
    own = {"EDGEPANDA_TASK", "EDGEPANDA_ATTEMPT", "EDGEPANDA_WORK", "EDGEPANDA_RESULT"}
    assert names - {"PWD", "_", "SHLVL", "OLDPWD"} == own | {"PATH", "HOME", "LANG", "WANTED"}
    assert (bench.work / "outputs" / "pwd").read_text().strip() == str(bench.work)
    manifest = json.loads((bench.work / "inputs" / "manifest.json").read_text())
    assert manifest["files"] == []
    assert manifest["task"]["id"] == "t1"
    assert (manifest["task"]["goal"], manifest["task"]["criteria"]) == ("g", ["c1"])


def test_a_value_is_never_a_line_for_a_shell(tmp_path: Path) -> None:
    argv = ["sh", "-c", OK + 'printf %s "$1" > outputs/value', "sh", "{text}"]
    bench = Bench(tmp_path, "", argv=argv, args={"text": {"type": "string"}})
    evil = "$(touch pwned) `touch pwned`; touch pwned && '\"\n"
    assert bench.run(text=evil).outcome == "succeeded"
    assert (bench.work / "outputs" / "value").read_text() == evil
    assert not (bench.work / "pwned").exists()


def test_without_a_result_exit_0_is_a_failure(tmp_path: Path) -> None:
    result = Bench(tmp_path, "echo hello; echo oops >&2").run()
    assert (result.outcome, result.reason) == ("failed", "no_result")
    assert [(e["stream"], e["tail"]) for e in result.evidence[1:]] == [("stdout", "hello\n"), ("stderr", "oops\n")]


def test_a_result_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text('{"outcome": "succeeded"}')
    assert Bench(tmp_path, f"ln -s {elsewhere} result.json").run().reason == "bad_result"


def test_links_in_outputs_are_no_artifacts(tmp_path: Path) -> None:
    result = Bench(tmp_path, OK + "ln -s /etc/hostname outputs/x; echo 1 > outputs/y").run()
    assert [artifact["path"] for artifact in result.artifacts] == ["outputs/y"]


def test_output_is_capped_and_shown_live(tmp_path: Path) -> None:
    bench = Bench(tmp_path, OK + "echo first; head -c 300000 /dev/zero | tr '\\0' x; echo last", output_limit=2048)
    bench.run()
    log = (bench.work / "stdout.log").read_bytes()
    assert log.startswith(b"first\n")
    assert log.endswith(b"xlast\n")
    assert len(log) < 5000
    live = "".join(notice.params.text for notice in bench.sent)
    assert len(live) < 40000


@pytest.mark.parametrize(("trap", "signal_seen"), [("", 2), ("trap '' INT;", 15), ("trap '' INT TERM;", 9)])
def test_a_cancel_is_int_then_term_then_kill(tmp_path: Path, trap: str, signal_seen: int) -> None:
    bench = Bench(tmp_path, f"{trap} touch began; sleep 30 & wait; sleep 30")
    context = bench.context()
    thread, ended = bench.in_background(context)
    context.stop("cancel")
    thread.join(10)
    (error,) = ended
    assert isinstance(error, DriverError)
    assert error.code == "cancelled"
    exit_evidence = error.details["evidence"][0]
    assert exit_evidence["signal"] == signal_seen or exit_evidence["code"] == 128 + signal_seen
    assert not runs(bench.group)


def test_a_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "sleep 31 & echo $! > child; touch began; wait")
    with pytest.raises(DriverError) as caught:
        bench.run(bench.context(seconds=0.3))
    assert caught.value.code == "timeout"
    child = int((bench.work / "child").read_text())
    bench.until(lambda: not Path(f"/proc/{child}").exists() or "Z (" in Path(f"/proc/{child}/status").read_text())


def test_a_finished_attempt_gives_its_result_again_and_runs_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, OK + "echo x >> count")
    first, second = bench.run(), bench.run()
    assert first == second
    assert (bench.work / "count").read_text() == "x\n"


def test_a_running_attempt_is_joined_after_its_host_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path, f"echo x >> count; touch began; while [ ! -e go ]; do sleep 0.02; done; {OK}")
    context = bench.context()
    thread, ended = bench.in_background(context)
    context.stop("exit")
    thread.join(10)
    assert isinstance(ended[0], DriverError)
    assert ended[0].details == {"reason": "exit"}
    bench.command.exit()
    assert runs(bench.group)
    (bench.work / "go").touch()
    assert Bench(tmp_path, "echo y >> count").run().outcome == "succeeded"
    assert (bench.work / "count").read_text() == "x\n"


def test_an_attempt_whose_end_nobody_saw_is_not_run_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "echo x >> count; touch began; sleep 30")
    context = bench.context()
    thread, ended = bench.in_background(context)
    supervisor = Attempt(bench.work).supervisor()
    assert supervisor
    os.kill(supervisor.pid, signal.SIGKILL)
    thread.join(10)
    bench.until(lambda: not runs(bench.group))  # what is left of it is ended: nobody else would
    with pytest.raises(DriverError) as caught:
        bench.run()
    for error in (ended[0], caught.value):
        assert isinstance(error, DriverError)
        assert (error.code, error.details["reason"]) == ("io", "interrupted")
    assert (bench.work / "count").read_text() == "x\n"


def test_safe_kills_what_an_earlier_host_began(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "trap '' INT TERM; touch began; sleep 30")
    context = bench.context()
    thread, _ = bench.in_background(context)
    context.stop("exit")
    thread.join(10)
    fresh = Bench(tmp_path, "true")
    fresh.command.safe()
    bench.until(lambda: not runs(bench.group))
    with pytest.raises(DriverError) as caught:
        fresh.run()
    assert caught.value.code == "cancelled"


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "", argv=["no-such-program-here"])
    probe = Command.probe(bench.command.config)
    assert (probe.usable, bool(probe.cure)) == (False, True)
    with pytest.raises(DriverError) as caught:
        bench.run()
    assert caught.value.code == "unavailable"


def test_a_record_of_another_boot_or_start_is_nobody() -> None:
    mine = read_record(Path("/nonexistent"))
    assert mine is None
    assert not runs(PidRecord(os.getpid(), 1, "another boot"))
