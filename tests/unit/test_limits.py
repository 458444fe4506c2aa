"""docs/limits.md says what is bounded, by the constants of the code, with the test of each; and what has no bound yet.

`EDGEPANDA_WRITE_DOCS=1 pytest tests/unit/test_limits.py` writes it.
"""

from __future__ import annotations

import importlib
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from edgepanda.error_codes import CODES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/limits.md"


class Bound(NamedTuple):
    """`name` is `module:CONSTANT` below edgepanda; `beyond` what happens there, with its `code` if it has one; `test`
    is `file::function` below tests.
    """

    what: str
    name: str
    unit: str
    beyond: str
    code: str
    test: str

    @property
    def value(self) -> float:
        """As it is in the code."""
        module, constant = self.name.split(":")
        found: float = getattr(importlib.import_module(f"edgepanda.{module}"), constant)
        return found


N, C = "unit/node", "unit/coordinator"
BOUNDS = {
    "Messages": (
        Bound(
            "a control payload",
            "wire.envelope:LARGEST",
            "bytes",
            "dropped before it is parsed, and counted",
            "oversized",
            "unit/wire/test_envelope.py::test_the_size_is_checked_before_anything_is_parsed",
        ),
        Bound(
            "nesting of a body",
            "wire.envelope:DEEPEST",
            "levels",
            "dropped and counted",
            "malformed",
            "unit/wire/test_envelope.py::test_deep_nesting",
        ),
        Bound(
            "a submit",
            "wire.requests:LARGEST_SUBMIT",
            "bytes",
            "refused",
            "oversized",
            f"{C}/test_submit.py::test_what_is_wrong_is_refused_with_its_code",
        ),
        Bound(
            "bodies that wait for an acknowledgement",
            "wire.bus:MOST_PENDING",
            "bodies",
            "refused; reports wait in the outbox",
            "queue_full",
            "unit/wire/test_resend.py::test_what_waits_is_bounded",
        ),
        Bound(
            "messages that wait for the socket",
            "wire.link:QUEUED",
            "messages",
            "dropped, and said again until acknowledged",
            "",
            "contract/test_bus.py::test_what_waits_for_a_silent_broker_is_bounded",
        ),
        Bound(
            "messages that the embedded broker holds",
            "services.broker_hardened:MOST_WAITING",
            "messages",
            "the senders wait",
            "",
            "contract/test_broker_objects.py::test_who_floods_it_waits_and_nothing_is_lost",
        ),
    ),
    "Coordinator": (
        Bound(
            "answers to `task.wait` held back for one client",
            "coordinator.requests:MOST_WAITS",
            "requests",
            "refused; our client asks again",
            "busy",
            f"{C}/test_requests.py::test_what_waits_for_one_client_is_bounded_and_hinders_no_other",
        ),
        Bound(
            "checks of the ledger for one client",
            "coordinator.requests:MOST_VERIFIES",
            "requests",
            "refused",
            "busy",
            f"{C}/test_requests.py::test_what_waits_for_one_client_is_bounded_and_hinders_no_other",
        ),
        Bound(
            "one answer",
            "coordinator.requests:MOST_BYTES",
            "bytes",
            "a shorter page, which the next one goes on from",
            "",
            f"{C}/test_requests.py::test_a_long_list_of_nodes_says_how_many_there_are",
        ),
        Bound(
            "tasks that one narrowed page looks into",
            "coordinator.task_filter:SCANNED",
            "tasks",
            "a shorter page",
            "",
            f"{C}/test_ledger.py::test_a_narrowed_page_looks_into_so_many_tasks_and_goes_on",
        ),
        Bound(
            "output kept of a running attempt",
            "coordinator.reports:OUTPUT_LINES",
            "lines",
            "the oldest go",
            "",
            f"{C}/test_reports.py::test_progress_and_output_are_of_the_current_attempt_and_bounded",
        ),
        Bound(
            "writes that wait for the disk",
            "sqlite:MAX_QUEUE",
            "writes",
            "refused",
            "storage_busy",
            "unit/test_sqlite.py::test_a_queue_without_end_is_refused",
        ),
    ),
    "Node": (
        Bound(
            "reports in the outbox",
            "node.journal_rows:MAX_OUTBOX",
            "reports",
            "from 90 % on nothing new begins: no claims, no direct commands; results are never dropped",
            "outbox_full",
            f"{N}/test_reporter.py::test_a_full_outbox_lets_nothing_new_begin_and_loses_no_result",
        ),
        Bound(
            "bytes of these reports",
            "node.journal_rows:MAX_OUTBOX_BYTES",
            "bytes",
            "the same",
            "outbox_full",
            f"{N}/test_journal.py::test_the_bytes_of_the_outbox_are_bounded_and_counted_over_a_restart",
        ),
        Bound(
            "acknowledged attempts in the journal",
            "node.journal_rows:KEEP_ACKED",
            "attempts",
            "the oldest go, none within the time of a lease",
            "",
            f"{N}/test_journal.py::test_what_was_acknowledged_is_bounded_but_never_within_the_time_of_a_lease",
        ),
        Bound(
            "cancels that came before their lease",
            "node.journal_rows:MAX_TOMBSTONES",
            "cancels",
            "the oldest go",
            "",
            f"{N}/test_journal.py::test_cancels_before_their_lease_are_remembered_and_bounded",
        ),
        Bound(
            "a result in a report",
            "node.results:LARGEST_RESULT",
            "bytes",
            "cut, and says so",
            "",
            f"{N}/test_attempts.py::test_a_result_that_is_too_large_is_cut_and_stays_what_it_was",
        ),
        Bound(
            "calls that wait for one device",
            "node.arbiter:MOST_QUEUED",
            "calls",
            "refused",
            "busy",
            f"{N}/test_arbiter.py::test_who_refuses_to_wait_is_told_that_it_is_busy",
        ),
        Bound(
            "requests that a node works at",
            "node.requests:MOST_RUNNING",
            "requests",
            "refused",
            "busy",
            f"{N}/test_requests.py::test_one_who_asks_without_end_is_held_up",
        ),
        Bound(
            "answers kept for repetitions",
            "node.requests:MOST_KEPT",
            "bytes",
            "the oldest go; what is asked again does nothing",
            "counter_used",
            f"{N}/test_requests.py::test_what_was_said_before_does_nothing_when_its_answer_is_kept_no_longer",
        ),
        Bound(
            "folders of ended attempts",
            "node.work_folders:MOST_FOLDERS",
            "folders",
            "the oldest go; those of unacknowledged reports stay",
            "",
            f"{N}/test_work_folders.py::test_the_newest_stay_and_what_is_needed_does_not_count",
        ),
        Bound(
            "bytes of these folders",
            "node.work_folders:MOST_BYTES",
            "bytes",
            "the oldest go; the newest stays in any case",
            "",
            f"{N}/test_work_folders.py::test_bytes_are_bounded_and_the_newest_stays_in_any_case",
        ),
        Bound(
            "lines of the log in memory",
            "node.logs:MOST_LINES",
            "lines",
            "the oldest go, and are counted",
            "",
            f"{N}/test_logs.py::test_what_is_kept_is_bounded_in_lines_and_bytes_and_a_line_too",
        ),
        Bound(
            "a line on the local socket",
            "node.socket:LONGEST_LINE",
            "bytes",
            "refused",
            "oversized",
            f"{N}/test_socket.py::test_a_line_that_is_too_long_is_said_to_be_and_others_go_on",
        ),
        Bound(
            "emergency stops in force",
            "model.stops:MOST_STANDING",
            "stops",
            "the oldest go, the newest never",
            "",
            "unit/model/test_stops.py::test_the_bounds_hold_and_the_newest_is_never_lost",
        ),
    ),
    "Files": (
        Bound(
            "a document (peers, positions, stops)",
            "documents:MAX_BYTES",
            "bytes",
            "damaged: the generation before it is used",
            "document_damaged",
            "unit/test_documents.py::test_a_document_that_is_too_large_is_damaged",
        ),
    ),
}
OPEN = (
    "The ledger grows with each task: there is no retention and no archive.",
    "Live tasks at the coordinator (queued, waiting for a person) are all in its memory.",
    "Copies that are made for safety stay: `FILE.damaged`, `FILE.vN` before a change of format.",
    "What a running attempt writes into its folder has no bound while it runs.",
    "The log on standard error is the system's: journald bounds it, a plain file is not.",
    "The signed list of peers must fit into one payload, which nothing says before it does not.",
)
ALL = [bound for bounds in BOUNDS.values() for bound in bounds]


def shown(bound: Bound) -> str:
    """Its value for a person."""
    value = bound.value
    for size, unit in ((1024**2, "MiB"), (1024, "KiB")):
        if bound.unit == "bytes" and value >= size and value % size == 0:
            return f"{value / size:g} {unit}"
    return f"{value:,} {bound.unit}" if value != 1 else f"1 {bound.unit.removesuffix('s')}"


def as_markdown() -> str:
    """The whole of docs/limits.md."""
    lines = [
        "# What is bounded",
        "",
        "What grows has a bound that suits an SD card and a board with little memory. This page is made from the code",
        "(`EDGEPANDA_WRITE_DOCS=1 pytest tests/unit/test_limits.py`); each line has a test.",
    ]
    for title, bounds in BOUNDS.items():
        lines += ["", f"## {title}", "", "| what | at most | beyond that | code |", "|---|---|---|---|"]
        for bound in bounds:
            code = f"`{bound.code}`" if bound.code else ""
            lines.append(f"| {bound.what} | {shown(bound)} | {bound.beyond} | {code} |")
    lines += ["", "## Without a bound, so far", "", *(f"- {text}" for text in OPEN)]
    return "\n".join(lines) + "\n"


def test_the_page_is_what_the_code_says() -> None:
    if os.environ.get("EDGEPANDA_WRITE_DOCS"):
        PAGE.write_text(as_markdown())
    assert PAGE.read_text() == as_markdown()


@pytest.mark.parametrize("bound", ALL, ids=lambda bound: bound.name)
def test_each_bound_has_a_test_and_a_code_that_is_explained(bound: Bound) -> None:
    file, function = bound.test.split("::")
    assert re.search(rf"^(async )?def {function}\(", (ROOT / "tests" / file).read_text(), re.MULTILINE), bound.test
    assert not bound.code or bound.code in CODES
