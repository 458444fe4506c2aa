"""Nothing is decided by the wall clock: every place that reads it stands in this table, with the reason why it may."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALL = {"time", "time_ns", "localtime", "gmtime", "strftime", "strptime", "mktime", "ctime", "asctime"}
FILES = {"st_mtime", "st_ctime", "st_atime", "getmtime", "getctime", "getatime"}

ALLOWED = {
    # what is shown to people
    "edgepanda/cli/board.py:site_view": "how long ago, on the screen",
    "edgepanda/cli/out.py:clock": "a time of day, for people",
    "edgepanda/cli/show.py:_draw": "where 'now' is in the picture of a task",
    "edgepanda/cli/stop.py:line_of": "when somebody stopped, for people",
    "edgepanda/cli/up.py:_Printer.line": "the time in a printed line",
    "edgepanda/cli/up.py:_Printer.happened": "the time in a printed line",
    "edgepanda/cli/up.py:_ready": "the time in a printed line",
    "edgepanda/doctor/report.py:_line": "the time in a line of the report",
    "edgepanda/doctor/report.py:file_name": "the name of the report",
    "edgepanda/doctor/report.py:write": "the date of a file in the archive",
    "edgepanda/coordinator/requests.py:_brief": "a task's age in a list, for people",
    "edgepanda/node/breaker.py:Breakers.failed": "when the next trial is, for people; it has another clock",
    # what is kept so that it can be shown to people
    "edgepanda/coordinator/ledger.py:Ledger.__init__": "the time in an event, for people; the chain orders events",
    "edgepanda/coordinator/ledger.py:Ledger.open": "the same",
    "edgepanda/node/attempt.py:new_row": "when an attempt changed, for people",
    "edgepanda/node/journal.py:Journal.open": "when an attempt changed, for people; pruning goes by order",
    "edgepanda/stops_file.py:StopsFile.__init__": "when somebody stopped, for people; a stop never ends by itself",
    "edgepanda/stops_file.py:StopsFile.stop": "the same",
    # a person's own date
    "edgepanda/cli/tasks.py:moment": "a date that a person typed",
    "edgepanda/cli/logs.py:logs_command": "a date that a person typed, made into how long ago",
    # the clock itself, and dates that others have set
    "edgepanda/doctor/clock.py:read": "the clock is what is examined",
    "edgepanda/doctor/clock.py:_newest": "the clock is what is examined",
    "edgepanda/doctor/clock.py:_day": "a date, for people",
    "edgepanda/doctor/examine.py:_broker": "whether a certificate is still good",
    "edgepanda/cli/broker_check.py:check_command": "whether a certificate is still good",
    "edgepanda/cli/broker_check.py:_tls": "until when a certificate is good, for people",
    # a clock beside another one that guards it
    "edgepanda/coordinator/moment.py:Clock.__call__": "with whether it is trusted; downtime counts only then",
    "edgepanda/client.py:Counter.next": "only a start: the file makes it rise whatever the clock says",
    "edgepanda/model/ids.py:new_id": "so that ids sort; 55 random bits make them different",
    # caches of names for completion: a wrong age asks once too often or shows old names
    "edgepanda/cli/complete.py:known_names": "an age below 0 counts as old",
    "edgepanda/cli/complete.py:refresh": "an age below 0 counts as old",
    "edgepanda/cli/names.py:remember_nodes": "an age below 0 counts as old",
    # which folders go first where there are too many: age removes none, and kept ones stay whatever their time
    "edgepanda/node/work_folders.py:_ended": "an order among ended attempts beyond the bounds, no age",
    "edgepanda/node/work_folders.py:_changed": "compared for 'another', never for 'older'",
    "services/broker_files.py:stamp": "compared for 'another', never for 'older'",
}


def uses(tree: ast.AST, place: str = "") -> Iterator[str]:
    """The function or class around each use of a wall clock."""
    for node in ast.iter_child_nodes(tree):
        inner = place
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{place}.{node.name}".lstrip(".")
        if is_wall(node):
            yield inner
        yield from uses(node, inner)


def is_wall(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        of_time = isinstance(node.value, ast.Name) and node.value.id == "time" and node.attr in WALL
        return of_time or node.attr.removesuffix("_ns") in FILES or node.attr == "CLOCK_REALTIME"
    if isinstance(node, ast.Import):
        return any(name.name == "datetime" or (name.name == "time" and name.asname) for name in node.names)
    return isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime")


def found() -> set[str]:
    return {
        f"{path.relative_to(ROOT)}:{place}"
        for part in ("edgepanda", "services", "drivers")
        for path in sorted((ROOT / part).rglob("*.py"))
        for place in uses(ast.parse(path.read_text()))
    }


def test_the_wall_clock_is_read_where_the_table_says_and_nowhere_else() -> None:
    there = found()
    assert sorted(there - set(ALLOWED)) == [], "use edgepanda.wire.clock.boottime, or say here why it may be the wall's"
    assert sorted(set(ALLOWED) - there) == [], "no longer there"


@pytest.mark.parametrize(
    "text",
    [
        "def f(): return time.time() + 30",
        "def f(clock=time.time): ...",
        "def f(): import datetime",
        "def f(): from time import time",
        "def f(): import time as t",
        "def f(): time.clock_gettime(time.CLOCK_REALTIME)",
        "def f(): path.stat().st_mtime_ns",
    ],
)
def test_it_can_see(text: str) -> None:
    assert set(uses(ast.parse(text))) == {"f"}


@pytest.mark.parametrize("text", ["time.monotonic()", "boottime()", "loop.time()", "import time", "self.time()"])
def test_other_clocks_are_nobodys_business(text: str) -> None:
    assert list(uses(ast.parse(text))) == []
