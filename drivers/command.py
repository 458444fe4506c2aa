"""Capabilities of the user's own: a program in a work directory, with a clean environment and a contract for results.

A running command survives its host: a later call of the same task, attempt and work directory joins it. One that was
begun is never begun again; if nobody knows how it ended, the call fails with `io` and `interrupted`.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from typing import Any

from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.command_config import PATH, CommandConfig, action_spec, check_args, fill
from edgepanda.drivers.command_files import Attempt, Registry
from edgepanda.drivers.command_output import Follower
from edgepanda.drivers.command_result import Finished, judge
from edgepanda.drivers.context import Context, StopReason, stop_error
from edgepanda.drivers.contract import CallResult, DriverError, Probe, Stream
from edgepanda.drivers.process import runs, send_signal

TICK = 0.05
"""Seconds between two looks at cancels and output."""

LIVE_EVERY, LIVE_BYTES = 0.25, 8192
"""Live output: at most so many bytes of a stream each so many seconds; the logs keep what their limit allows."""

SIGNALS = {"cancel": signal.SIGTERM, "deadline": signal.SIGALRM, "safe": signal.SIGUSR1}
"""What the supervisor is sent for each reason to stop."""


class Command(Driver):
    """A capability; the device's name is the capability's."""

    name = "command"
    version = "1"
    attaches = True
    Config = CommandConfig

    @classmethod
    def probe(cls, config: CommandConfig) -> Probe:
        """Whether the program is there; the capability's own action."""
        program = config.argv[0]
        found = shutil.which(program, path=PATH)
        if found is None:
            there = "/" in program and os.path.isfile(program)
            return Probe(
                False,
                f"{program} is not executable" if there else f"there is no program {program}",
                f"chmod +x {program}"
                if there
                else f"install it, or give its whole path in argv; bare names are looked up in {PATH}",
                facts={"path": PATH},
                actions={"run": action_spec(config)},
            )
        return Probe(True, facts={"program": found, "path": PATH}, actions={"run": action_spec(config)})

    def open(self, known: dict[str, Any] | None) -> None:
        """Prepares nothing: each run has a directory of its own."""
        self.ends_within = 2 * self.config.grace + 2.0
        self._registry = Registry(self.run_dir, self.device)

    def safe(self) -> None:
        """Kills the capability's running commands, also those that an earlier host began."""
        for attempt in self._registry.running():
            self._signal(attempt, signal.SIGUSR1)

    def exit(self) -> None:
        """Nothing: a running command survives its host."""

    @action(tier=2, replay="unsafe", on_busy="queue", timeout=600.0)
    def run(self, ctx: Context, **arguments: Any) -> CallResult:
        """Runs the program; each capability declares its own arguments, tier and replay"""
        if not ctx.work.is_absolute():
            raise DriverError("a command needs a work directory", code="invalid_args", where="work")
        attempt = Attempt(ctx.work)
        stage = attempt.stage()
        child = self._start(ctx, attempt, arguments) if stage == "new" else None
        entry = self._registry.add(ctx.work)
        self._wait(ctx, attempt, child)
        entry.unlink(missing_ok=True)
        if attempt.stage() == "interrupted":
            attempt.kill_rest()
            raise DriverError(
                "the command was interrupted: it had begun, and nothing tells how it ended",
                where=str(ctx.work),
                details={"reason": "interrupted"},
            )
        return self._result(ctx, attempt.finished())

    def _start(self, ctx: Context, attempt: Attempt, arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
        config = self.config
        values = check_args(config, arguments)
        spec = {
            "argv": fill(config, values),
            "env": self._environment(ctx),
            "timeout": ctx.remaining,
            "grace": config.grace,
            "output_limit": config.output_limit,
        }
        task = {"id": ctx.task, "attempt": ctx.attempt, "capability": self.device, "goal": ctx.goal}
        task |= {"constraints": ctx.constraints, "criteria": ctx.criteria, "arguments": values}
        return attempt.start(spec, {"files": [], "task": task})

    def _environment(self, ctx: Context) -> dict[str, str]:
        passed = {name: os.environ[name] for name in self.config.env if name in os.environ}
        return passed | {
            "PATH": PATH,
            "HOME": str(ctx.work),
            "LANG": "C.UTF-8",
            "EDGEPANDA_TASK": ctx.task,
            "EDGEPANDA_ATTEMPT": str(ctx.attempt),
            "EDGEPANDA_WORK": str(ctx.work),
            "EDGEPANDA_RESULT": str(ctx.work / "result.json"),
        }

    def _wait(self, ctx: Context, attempt: Attempt, child: subprocess.Popen[bytes] | None) -> None:
        """Waits for the supervisor's end, passing on output and asking it to stop when the call should."""
        live = LiveOutput(ctx, attempt, fresh=child is not None)
        watch = _pidfd(attempt, child)
        asked: StopReason | None = None
        try:
            while attempt.stage() == "running":
                reason = ctx.stop_reason()
                if reason == "exit":
                    raise stop_error(reason, self.device)
                if reason is not None and reason != asked and self._signal(attempt, SIGNALS[reason]):
                    asked = reason
                if asked == "safe":
                    raise stop_error("safe", self.device)
                _pause(watch)
                live.pass_on()
            live.pass_on(last=True)
        finally:
            if watch is not None:
                os.close(watch)
            if child is not None:
                child.poll()

    @staticmethod
    def _signal(attempt: Attempt, number: signal.Signals) -> bool:
        record = attempt.supervisor()
        return record is not None and send_signal(record, number)

    def _result(self, ctx: Context, finished: Finished) -> CallResult:
        ending = finished.ending
        if ending.error:
            raise DriverError(
                f"the program cannot be started: {ending.error}", code="unavailable", where=self.config.argv[0]
            )
        result = judge(finished, self.config.required_outputs, ctx.criteria)
        if ending.reason == "exited":
            return result
        what = {"timeout": "it ran out of time", "cancelled": "it was cancelled", "killed": "it was stopped"}
        raise DriverError(
            f"the command was ended after {ending.seconds:g} s: {what.get(ending.reason, ending.reason)}",
            code="timeout" if ending.reason == "timeout" else "cancelled",
            where=self.device,
            details={"evidence": list(result.evidence)},
        )


class LiveOutput:
    """Passes new output on as it comes, within a rate; what exceeds it is skipped here and said."""

    def __init__(self, ctx: Context, attempt: Attempt, *, fresh: bool) -> None:
        self._ctx = ctx
        self._next = 0.0
        self._streams: dict[Stream, tuple[Follower, codecs.IncrementalDecoder]] = {}
        for stream in ("stdout", "stderr"):
            follower = Follower(attempt.run, stream)
            if not fresh:
                follower.skip_to_end()
            self._streams[stream] = (follower, codecs.getincrementaldecoder("utf-8")("replace"))

    def pass_on(self, *, last: bool = False) -> None:
        """Sends what is new, if it is time."""
        now = time.monotonic()
        if now < self._next and not last:
            return
        self._next = now + LIVE_EVERY
        for stream, (follower, decoder) in self._streams.items():
            data = follower.read(LIVE_BYTES)
            text = decoder.decode(data, last)
            if len(data) == LIVE_BYTES:
                follower.skip_to_end()
                decoder.reset()
                text += "\n[more than can be shown live; the log has it]\n"
            if text:
                self._ctx.output(text, stream)


def _pidfd(attempt: Attempt, child: subprocess.Popen[bytes] | None) -> int | None:
    """A descriptor that becomes readable when the supervisor ends, if it is known already."""
    if child is not None:
        return os.pidfd_open(child.pid)
    record = attempt.supervisor()
    with contextlib.suppress(ProcessLookupError):
        if record is not None and runs(record):
            watch = os.pidfd_open(record.pid)
            if runs(record):
                return watch
            os.close(watch)
    return None


def _pause(watch: int | None) -> None:
    if watch is None:
        time.sleep(TICK)
    else:
        select.select([watch], [], [], TICK)
