"""Attempts: leases, permits, what begins and what never does, ends, restarts, direct commands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.drivers.contract import CallResult, DriverError
from edgepanda.errors import EdgePandaError
from edgepanda.model.task import Finished, Task
from edgepanda.node import attempts as attempts_module
from edgepanda.node import journal as journal_module
from edgepanda.node import journal_rows
from edgepanda.node.journal import OutboxItem
from edgepanda.node.results import LARGEST_RESULT, fitted
from edgepanda.storage import StorageError
from edgepanda.wire import messages
from edgepanda.wire.messages import Held
from tests.rig.quiet_site import QuietDevices
from tests.rig.workbench import DONE, Bench, at_bench


@pytest.fixture(autouse=True)
def nothing_is_told_for_its_slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a step takes on this machine decides nothing here; the test of `started` sets its own."""
    monkeypatch.setattr(attempts_module, "SHOW_AFTER", 3600.0)


def told(bench: Bench) -> list[tuple[str, Any]]:
    """Each report's type with what matters about it."""
    found = []
    for body in bench.said():
        detail: Any = None
        if isinstance(body, messages.Declined):
            detail = body.code
        elif isinstance(body, messages.FinishedReport):
            detail = body.result.outcome
        elif isinstance(body, messages.Interrupted):
            detail = body.began
        found.append((str(type(body).__struct_config__.tag), detail))
    return found


# safe attempts


async def test_a_short_safe_attempt_says_only_its_end_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept()
        await bench.settle()
        assert bench.attempts.held() == (Held("task-0001", 1, True),)
        await bench.end()
        assert told(bench) == [("finished", "succeeded")]
        assert bench.attempts.held() == (Held("task-0001", 1, True),)
        await bench.acknowledge()
        assert (bench.attempts.held(), bench.attempts.running) == ((), {})
        assert (bench.journal.open_attempts(), bench.journal.outbox()) == ([], [])


async def test_what_takes_longer_says_that_it_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "SHOW_AFTER", 0.0)
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept()
        await bench.settle()
        await asyncio.sleep(0.005)
        assert told(bench)[-1] == ("started", None)


async def test_a_lease_that_comes_again_begins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        lease = bench.accept()
        await bench.settle()
        bench.attempts.accept(lease, slots=4, draining=False)
        await bench.settle()
        await bench.end()
        bench.attempts.accept(lease, slots=4, draining=False)
        await bench.acknowledge()
        bench.attempts.accept(lease, slots=4, draining=False)
        await bench.settle()
        assert bench.begun == [("task-0001", 1)]
        assert told(bench) == [("started", None), ("finished", "succeeded")]


# unsafe attempts


async def test_an_unsafe_attempt_begins_with_its_permit_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        row = bench.journal.attempt("task-0001", 1)
        assert row is not None
        assert (row.state, bench.begun, told(bench)) == ("starting", [], [("starting", None)])
        bench.permit(attempt=2)
        bench.permit("task-0002")
        await bench.settle()
        assert bench.begun == []
        for _ in range(3):
            bench.permit()
            await bench.settle()
        row = bench.journal.attempt("task-0001", 1)
        assert row is not None
        assert (row.state, bench.begun, bench.bus.pending) == ("began", [("task-0001", 1)], {})
        await bench.end()
        bench.permit()
        await bench.acknowledge()
        row = bench.journal.attempt("task-0001", 1)
        assert row is not None
        assert (row.state, bench.begun) == ("acked", [("task-0001", 1)])


@pytest.mark.parametrize("over", ["lease", "valid_for", "cancelled"])
async def test_a_permit_that_comes_too_late_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False, **({"begin_by_ms": int(bench.now * 1000) + 5_000} if over == "valid_for" else {}))
        await bench.settle()
        if over == "cancelled":
            bench.permit()
            bench.cancel()
        else:
            bench.now += 31.0 if over == "lease" else 6.0
            bench.permit()
        await bench.settle()
        assert bench.begun == []
        assert told(bench) == [("starting", None), ("interrupted", False)]
        await bench.acknowledge()
        assert (bench.attempts.held(), bench.journal.open_attempts()) == ((), [])


async def test_a_permit_whose_record_took_too_long_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow SD card between the permit and the action."""
    with at_bench(tmp_path, monkeypatch) as bench:
        advance = bench.journal.advance

        async def slow(*args: Any, **kwargs: Any) -> None:
            await advance(*args, **kwargs)
            bench.now += 31.0

        monkeypatch.setattr(bench.journal, "advance", slow)
        bench.accept(safe=False)
        await bench.settle()
        bench.permit()
        await bench.settle()
        assert (bench.begun, told(bench)[-1]) == ([], ("interrupted", False))


async def test_without_a_permit_the_lease_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts_module, "PERMIT_WITHIN", 0.01)
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        await asyncio.sleep(0.02)
        await bench.settle()
        assert (bench.begun, told(bench)) == ([], [("starting", None), ("interrupted", False)])


async def test_what_cannot_be_journaled_does_not_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:

        async def full(*_: Any, **__: Any) -> None:
            raise StorageError("full", code="storage_full", where="here")

        monkeypatch.setattr(bench.journal, "record", full)
        bench.accept(safe=False)
        await bench.settle()
        bench.permit()
        await bench.settle()
        assert (bench.begun, told(bench), bench.attempts.running) == ([], [("declined", "storage_full")], {})


@pytest.mark.parametrize(
    ("safe", "how", "report"),
    [
        (True, "failed", ("finished", "failed")),
        (False, "failed", ("finished", "failed")),
        (True, "died", ("interrupted", True)),
        (False, "died", ("interrupted", True)),
    ],
)
async def test_a_failure_is_told_and_what_nobody_knows_is_not_called_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: bool, how: str, report: tuple[str, Any]
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=safe)
        await bench.settle()
        bench.permit()
        await bench.settle()
        await bench.end(how)
        assert told(bench)[-1] == report


@pytest.mark.parametrize(("safe", "report"), [(True, ("finished", "failed")), (False, ("interrupted", True))])
async def test_a_fault_of_the_node_in_the_middle_of_an_unsafe_action_leaves_unknown_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: bool, report: tuple[str, Any]
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:

        async def broken(*_: Any, **__: Any) -> None:
            raise ValueError("a fault")

        monkeypatch.setattr(bench.devices, "call", broken)
        bench.accept(safe=safe)
        await bench.settle()
        bench.permit()
        await bench.settle()
        assert (told(bench)[-1], bench.attempts.running) == (report, {})


async def test_the_folder_of_an_attempt_is_in_use_until_its_report_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.attaching = True
        bench.accept()
        await bench.settle()
        assert bench.attempts.in_use() == {"task-0001.1"}
        await bench.end()
        assert bench.attempts.in_use() == {"task-0001.1"}
        await bench.acknowledge()
        assert bench.attempts.in_use() == set()


# refusals


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"slots": 0}, "busy"),
        ({"draining": True}, "draining"),
        ({"begin_by_ms": 1}, "expired"),
        ({"whole": {"device": "none"}}, "unsupported"),
    ],
)
async def test_a_lease_that_cannot_be_taken_is_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], code: str
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        lease = bench.accept(**fields)
        bench.attempts.accept(lease, slots=4, draining=False)
        await bench.settle()
        assert (bench.begun, told(bench)) == ([], [("declined", code)])


async def test_where_the_outbox_is_full_leases_are_declined_and_direct_commands_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        monkeypatch.setattr(journal_rows, "MAX_OUTBOX", 1)
        await bench.journal.record(outbox=[OutboxItem("a", "t", b"{}")])
        bench.accept()
        with pytest.raises(EdgePandaError) as caught:
            await bench.attempts.direct(Task(id="task-0002", capability="job.safe"), "run")
        assert (told(bench), caught.value.code, bench.begun) == ([("declined", "outbox_full")], "outbox_full", [])


async def test_without_a_disk_only_what_is_safe_to_repeat_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.attempts.no_disk = StorageError("read-only", code="storage_readonly", where="state")
        bench.accept("task-0001", safe=False)
        with pytest.raises(EdgePandaError) as caught:
            await bench.attempts.direct(Task(id="task-0002", capability="job.unsafe"), "run")
        bench.accept("task-0003")
        await bench.settle()
        assert (caught.value.code, bool(caught.value.cure)) == ("storage_readonly", True)
        assert (told(bench), bench.begun) == ([("declined", "storage_readonly")], [("task-0003", 1)])


async def test_a_lease_that_is_over_is_not_even_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        lease = bench.lease()
        bench.now += 31.0
        bench.attempts.accept(lease, slots=4, draining=False)
        await bench.settle()
        assert (bench.begun, bench.bus.said) == ([], [])


async def test_a_cancel_that_comes_before_its_lease_is_remembered_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.cancel()
        await bench.restart()
        bench.accept()
        await bench.settle()
        assert (bench.begun, told(bench)) == ([], [("declined", "cancelled")])


# stopping


@pytest.mark.parametrize("safe", [True, False])
async def test_lease_and_cancel_in_one_envelope_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: bool
) -> None:
    """A task that is cancelled before its first step never runs a line: its slot must come back all the same."""
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=safe)
        bench.cancel()
        await bench.settle()
        assert (bench.begun, bench.attempts.running, len(bench.said())) == ([], {}, 1)
        await bench.acknowledge()
        assert bench.attempts.held() == ()


async def test_a_cancel_ends_a_running_attempt_and_its_report_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept()
        await bench.settle()
        bench.cancel()
        await bench.settle()
        assert told(bench) == [("finished", "cancelled")]


async def test_a_cancel_is_repeated_until_the_driver_has_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "HEAR_EVERY", 0.001)
    with at_bench(tmp_path, monkeypatch) as bench:
        cancel, asked = bench.devices.cancel, []

        async def deaf_at_first(*args: Any) -> bool:
            asked.append(args)
            return len(asked) > 3 and await cancel(*args)

        monkeypatch.setattr(bench.devices, "cancel", deaf_at_first)
        bench.accept()
        await bench.settle()
        bench.cancel()
        async with asyncio.timeout(2):
            while bench.attempts.running:  # noqa: ASYNC110 it repeats by the clock
                await asyncio.sleep(0.001)
        assert (len(asked), told(bench)) == (4, [("finished", "cancelled")])


@pytest.mark.parametrize(
    ("safe", "permitted", "report"),
    [(True, True, ("interrupted", True)), (False, False, ("interrupted", False)), (False, True, None)],
)
async def test_when_the_lease_is_over_safe_work_stops_and_unsafe_work_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: bool, permitted: bool, report: tuple[str, bool] | None
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=safe)
        await bench.settle()
        if permitted:
            bench.permit()
            await bench.settle()
        renewed = messages.Renewed(
            id="r",
            stamp=bench.lease().stamp,
            until_ms=int(bench.now * 1000) + 40_000,
            attempts=(("task-0001", 1), ("task-none", 1)),
        )
        bench.attempts.renew(renewed)
        bench.now += 39.0
        bench.attempts.tick()
        await bench.settle()
        assert len(bench.attempts.running) == 1
        bench.now += 2.0
        bench.attempts.tick()
        await bench.settle()
        assert (told(bench)[-1] if report else None) == report
        assert bool(bench.attempts.running) == (report is None)


async def test_a_retired_attempt_that_never_began_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept()
        bench.accept("task-0002")  # waits for the lane
        await bench.settle()
        bench.cancel("task-0002", reason="fence_retired")
        await bench.settle()
        assert [task for task, _ in bench.attempts.running] == ["task-0001"]
        assert [r for r in bench.said() if r.task == "task-0002"] == []
        await bench.end()
        assert bench.begun == [("task-0001", 1)]


@pytest.mark.parametrize("over", ["valid_for", "lease"])
async def test_what_waits_for_a_device_too_long_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(until_ms=int(bench.now * 1000) + 90_000)
        limits = {"begin_by_ms": int(bench.now * 1000) + 5_000} if over == "valid_for" else {}
        bench.accept("task-0002", **limits)
        await bench.settle()
        bench.now += 31.0
        await bench.end()
        assert bench.begun == [("task-0001", 1)]
        assert [r.code for r in bench.said(messages.Declined)] == ["expired" if over == "valid_for" else "lease_over"]


async def test_a_process_that_ends_says_nothing_of_what_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal tells the next start; 'it never began' would be a lie."""
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        bench.permit()
        await bench.settle()
        (attempt,) = bench.attempts.running.values()
        assert attempt.runner is not None
        attempt.runner.cancel()
        await bench.settle()
        assert told(bench) == [("starting", None)]
        await bench.restart()
        assert told(bench) == [("interrupted", True)]


async def test_draining_waits_and_then_stops_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        bench.accept("task-0002")
        await bench.settle()
        bench.permit()
        await bench.settle()
        await bench.attempts.drain(0.01)
        await bench.settle()
        ends = {(r.task, r.began) for r in bench.said(messages.Interrupted)}
        assert ends == {("task-0001", True), ("task-0002", True)}
        assert bench.attempts.running == {}


# restarts


@pytest.mark.parametrize("permitted", [False, True])
async def test_after_a_restart_the_node_says_what_it_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, permitted: bool
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        if permitted:
            bench.permit()
            await bench.settle()
        await bench.restart()
        assert told(bench) == [("interrupted", permitted)]
        assert bench.attempts.held() == (Held("task-0001", 1, True),)
        assert len(bench.begun) == permitted
        await bench.restart()
        assert told(bench) == [("interrupted", permitted)]  # from the outbox, the same words
        await bench.acknowledge()
        await bench.restart()
        assert (told(bench), bench.attempts.held(), bench.journal.outbox()) == ([], (), [])


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        (CallResult(outcome="succeeded", value={"angle": 12.0}), {"reads": {"angle": 12.0}}),
        (CallResult(outcome="succeeded", value="x" * 5000), {"unread": "job.unsafe read answers more than 2048 bytes"}),
        (CallResult(outcome="failed", reason="no answer"), {"unread": "no answer"}),
        (DriverError("it is gone"), {"unread": "it is gone"}),
    ],
)
async def test_what_was_cut_short_is_told_with_what_its_device_reads_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: CallResult | DriverError, known: dict[str, Any]
) -> None:
    monkeypatch.setattr(QuietDevices, "reading_action", lambda *_: "read")
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        bench.permit()
        await bench.settle()
        await bench.restart()
        assert (told(bench), bench.attempts.held()) == ([], (Held("task-0001", 1, True),))  # its device is asked
        bench.accept(safe=False)
        future = bench.world.calls.pop().answer
        future.set_exception(answer) if isinstance(answer, DriverError) else future.set_result(answer)
        await bench.settle()
        assert [body.known for body in bench.said()] == [{"code": "restarted", **known}]
        assert bench.attempts.held() == (Held("task-0001", 1, True),)
        await bench.acknowledge()
        assert (bench.attempts.held(), bench.journal.open_attempts()) == ((), [])


async def test_a_device_is_read_back_also_when_its_host_died_of_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QuietDevices, "reading_action", lambda *_: "read")
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        bench.permit()
        await bench.settle()
        await bench.end("died")
        assert bench.said(messages.Interrupted) == []  # its device is asked
        bench.world.calls.pop().answer.set_result(CallResult(outcome="succeeded", value={"angle": 12.0}))
        await bench.settle()
        known = {"code": "io", "message": "the host died", "reads": {"angle": 12.0}}
        assert [body.known for body in bench.said(messages.Interrupted)] == [known]


async def test_an_end_that_was_not_acknowledged_survives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.accept(safe=False)
        await bench.settle()
        bench.permit()
        await bench.settle()
        await bench.end()
        first = bench.said(messages.FinishedReport)[0]
        await bench.restart()
        assert bench.said() == [first]
        assert len(bench.begun) == 1


async def test_a_command_that_goes_on_is_joined_and_can_be_lost_or_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.attaching = True
        bench.accept()
        await bench.settle()
        await bench.restart()
        assert (told(bench), bench.begun) == ([], [("task-0001", 1)] * 2)  # the second call joins the first
        bench.now += 31.0
        bench.attempts.tick()
        await bench.settle()
        assert (told(bench)[-1], bench.attempts.running) == (("interrupted", True), {})


async def test_an_entry_that_cannot_be_read_does_not_keep_the_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        bench.attaching = True
        for task in ("task-0001", "task-0002"):
            bench.accept(task, safe=task == "task-0001")
        await bench.settle()
        bench.permit("task-0002")
        await bench.settle()
        await bench.journal._store.write(
            lambda c: c.execute("UPDATE attempts SET lease = x'00' WHERE task = 'task-0001'")
        )
        await bench.restart()
        assert list(bench.attempts.running) == [("task-0002", 1)]


# direct commands


def direct(task: str = "task-0009", *, safe: bool = False) -> Task:
    return Task(id=task, capability="job.safe" if safe else "job.unsafe", by="n1", door="local", node="n1")


async def run_direct(bench: Bench, task: Task, how: str = "done") -> Finished:
    running = asyncio.ensure_future(bench.attempts.direct(task, "run"))
    await bench.settle()
    await bench.end(how)
    return await running


async def test_a_direct_command_needs_no_permit_and_is_told_with_its_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        assert (await run_direct(bench, direct())).outcome == "succeeded"
        (report,) = bench.said()
        assert (report.attempt, report.direct.id, report.direct.replay) == (0, "task-0009", "unsafe")


async def test_a_direct_command_asked_for_again_acts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        first = asyncio.ensure_future(bench.attempts.direct(direct(), "run"))
        await bench.settle()
        second = asyncio.ensure_future(bench.attempts.direct(direct(), "run"))
        await bench.settle()
        await bench.end()
        assert await first == await second
        await bench.restart()
        assert (await bench.attempts.direct(direct(), "run")).outcome == "succeeded"
        assert bench.begun == [("task-0009", 0)]


async def test_a_direct_command_of_unknown_outcome_is_not_called_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        assert (await run_direct(bench, direct(), "died")).code == "interrupted"
        (report,) = bench.said()
        assert (report.began, report.direct.id, bench.journal.open_attempts()[0].state) == (
            True,
            "task-0009",
            "finished",
        )
        asyncio.ensure_future(bench.attempts.direct(direct("task-0010"), "run"))  # noqa: RUF006 it is killed
        await bench.settle()
        await bench.restart()
        assert [(r.task, r.began, r.direct is not None) for r in bench.said(messages.Interrupted)] == [
            ("task-0009", True, True),
            ("task-0010", True, True),
        ]
        with pytest.raises(EdgePandaError, match="nobody knows"):
            await bench.attempts.direct(direct("task-0010"), "run")


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("written", [True, False])
async def test_a_lease_of_what_a_direct_command_did_is_answered_with_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, safe: bool, written: bool
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        await run_direct(bench, direct(safe=safe))
        if written:
            await bench.reporter.flush()
        bench.accept("task-0009", safe=safe)
        await bench.settle()
        bench.permit("task-0009")
        await bench.settle()
        assert bench.begun == [("task-0009", 0)]
        assert [(r.attempt, r.result.outcome) for r in bench.said(messages.FinishedReport)] == [
            (0, "succeeded"),
            (1, "succeeded"),
        ]
        assert len(bench.said(messages.Starting)) == (not safe)


async def test_a_lease_waits_for_a_direct_command_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        running = asyncio.ensure_future(bench.attempts.direct(direct(), "run"))
        await bench.settle()
        bench.accept("task-0009", safe=False)
        await bench.settle()
        assert told(bench) == [("declined", "busy")]
        await bench.end()
        await running
        assert bench.begun == [("task-0009", 0)]


async def test_only_a_persons_word_has_an_uncertain_direct_command_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        await run_direct(bench, direct(), "died")
        bench.accept("task-0009", safe=False)  # of a client's own submit, which never heard of the command
        await bench.settle()
        assert told(bench)[-1] == ("declined", "unsupported")
        bench.accept("task-0009", 2, safe=False, whole={"by": "n1", "door": "local", "node": "n1"})
        await bench.settle()
        bench.permit("task-0009", 2)
        await bench.settle()
        assert bench.begun == [("task-0009", 0), ("task-0009", 2)]


async def test_tier_two_is_refused_on_every_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        tier2 = msgspec.structs.replace(bench.devices.action("job.unsafe", "run"), tier=2)
        monkeypatch.setattr(bench.devices, "action", lambda *_: tier2)
        with pytest.raises(EdgePandaError) as caught:
            await bench.attempts.direct(direct(), "run")
        assert caught.value.code == "consent_required"
        bench.accept(safe=False)
        await bench.settle()
        assert (told(bench), bench.begun) == ([("declined", "unsupported")], [])


# older and newer commands


async def test_an_older_command_does_not_follow_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        set_point = msgspec.structs.replace(bench.devices.action("job.safe", "run"), on_busy="preempt")
        monkeypatch.setattr(bench.devices, "action", lambda *_: set_point)
        bench.accept("task-full", order=9, slots=0)  # declined: it takes nobody's place
        bench.accept("task-0001", order=5)
        await bench.settle()
        bench.accept("task-0002", order=6)
        await bench.settle()
        bench.accept("task-0000", order=4)
        await bench.settle()
        codes = {r.task: r.result.code for r in bench.said(messages.FinishedReport)}
        assert codes == {"task-0001": "superseded"}
        assert [(r.task, r.code) for r in bench.said(messages.Declined)] == [
            ("task-full", "busy"),
            ("task-0000", "superseded"),
        ]
        assert bench.begun == [("task-0001", 1), ("task-0002", 1)]


def make_set_points(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    set_point = msgspec.structs.replace(bench.devices.action("job.safe", "run"), on_busy="preempt", tier=1)
    monkeypatch.setattr(bench.devices, "action", lambda *_: set_point)


def answers(bench: Bench) -> list[str]:
    return [report.code for report in bench.said(messages.Declined)]


@pytest.mark.parametrize("cut", ["ended", "killed after another write", "killed before any, and the site knows"])
async def test_an_older_command_does_not_follow_a_newer_one_over_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        make_set_points(bench, monkeypatch)
        bench.accept("task-0002", order=6)
        await bench.settle()
        await bench.end()
        await bench.acknowledge()
        if cut.startswith("killed"):
            if cut == "killed after another write":
                bench.attempts.cancel(messages.Cancel(id="c", task="task-0009", attempt=1))
                await bench.settle()
            monkeypatch.setattr(bench.journal, "close", bench.journal._store.close)
        await bench.restart()
        make_set_points(bench, monkeypatch)
        known = {"newest": 6} if cut.endswith("knows") else {}
        bench.accept("task-0001", order=5, **known)
        bench.accept("task-0003", order=7, **known)
        await bench.settle()
        assert (answers(bench), bench.begun[1:]) == (["superseded"], [("task-0003", 1)])


async def test_a_direct_command_is_its_devices_newest_over_a_restart_and_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "KEEP_WITHIN", 0.0)
    with at_bench(tmp_path, monkeypatch) as bench:
        make_set_points(bench, monkeypatch)
        await run_direct(bench, direct("task-0002", safe=True))
        await bench.acknowledge()
        monkeypatch.setattr(bench.journal, "close", bench.journal._store.close)  # a kill
        before, after = int(bench.now * 1000) - 1, int(bench.now * 1000) + 1
        await bench.restart()
        make_set_points(bench, monkeypatch)
        bench.accept("task-0001", submitted_ms=before)
        bench.accept("task-0003", submitted_ms=after)
        await bench.settle()
        assert (answers(bench), bench.begun[1:]) == (["superseded"], [("task-0003", 1)])
        await bench.end()
        await bench.restart()
        monkeypatch.setattr(journal_module, "boot_id", lambda: "another")
        await bench.restart()
        make_set_points(bench, monkeypatch)
        for task, submitted in (("task-0004", -1), ("task-0005", 0), ("task-0006", 1)):  # 0: nobody knows when
            bench.accept(task, order=9, submitted_ms=submitted)
        await bench.settle()
        assert (answers(bench), bench.begun[2:]) == (["superseded"] * 2, [("task-0006", 1)])


async def test_another_ledger_counts_its_commands_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        make_set_points(bench, monkeypatch)
        bench.accept("task-0002", order=6_000)
        await bench.settle()
        await bench.end()
        await bench.acknowledge()
        await bench.journal.accept_ledger("l2")
        await bench.restart()
        make_set_points(bench, monkeypatch)
        bench.accept("task-0001", order=1)
        await bench.settle()
        assert (answers(bench), bench.begun[1:]) == ([], [("task-0001", 1)])


async def test_a_direct_reading_makes_no_command_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with at_bench(tmp_path, monkeypatch) as bench:
        action = bench.devices.action
        for tier, expected in ((0, "leased"), (1, "superseded")):
            spec = msgspec.structs.replace(action("job.safe", "run"), tier=tier)
            monkeypatch.setattr(bench.devices, "action", lambda *_, spec=spec: spec)
            lease = bench.lease(f"task-000{tier}", order=tier + 1)
            bench.now += 1.0
            await run_direct(bench, direct(f"task-001{tier}", safe=True))
            move = msgspec.structs.replace(action("job.safe", "run"), on_busy="preempt")
            monkeypatch.setattr(bench.devices, "action", lambda *_, move=move: move)
            bench.attempts.accept(lease, slots=4, draining=False)
            await bench.settle()
            declined = [r.code for r in bench.said(messages.Declined)]
            assert (declined or ["leased"]) == [expected]
            if not declined:
                await bench.end()


# results


def test_a_result_that_fits_is_left_alone() -> None:
    assert fitted(DONE) is DONE


@pytest.mark.parametrize(
    "large",
    [
        {"value": "x" * 100_000},
        {"narrative": "x" * 100_000},
        {"output": ["x" * 200] * 1_000},
        {"evidence": [{"kind": "log", "text": "x" * 50_000}, {"kind": "more", "list": [1] * 50_000}]},
        {"evidence": [{"kind": str(n)} for n in range(10_000)]},
        {"answers": [{"criterion": "so", "met": True, "evidence": "x" * 100_000}]},
        {"message": "x" * 100_000},
    ],
)
def test_a_result_that_is_too_large_is_cut_and_stays_what_it_was(large: dict[str, Any]) -> None:
    raw = {"outcome": "succeeded", "evidence": [{"kind": "seen"}], **large}
    cut = fitted(msgspec.convert(raw, Finished))
    assert len(msgspec.json.encode(cut)) <= LARGEST_RESULT
    assert (cut.outcome, bool(cut.evidence)) == ("succeeded", True)
    assert "belong into files" in cut.message
