"""How values, times and events are written for people."""

from __future__ import annotations

from typing import Any

import click
import pytest

from edgepanda.cli.common import duration
from edgepanda.cli.events import describe
from edgepanda.cli.out import plain, span, table


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("500ms", 0.5), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("3d", 259_200)]
)
def test_times(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1", "1w", "1e3", "nan", "1s2"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter):
        duration(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"angle": 30.0, "on": True, "name": "a b", "none": None}, 'angle=30 on=true name="a b" none=null'),
        (1.25, "1.25"),
        ("word", "word"),
        ("", '""'),
        ([1, 2], "[1, 2]"),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert plain(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (65, "1m"), (7300, "2h"), (200_000, "2d")])
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_a_table_is_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table(["ID", "STATE"], [("a", "succeeded"), ("longer", "failed")])
    assert capsys.readouterr().out.splitlines() == ["ID      STATE", "a       succeeded", "longer  failed"]


@pytest.mark.parametrize(
    ("kind", "data", "attempt", "text"),
    [
        (
            "submitted",
            {
                "state": "queued",
                "task": {"by": "me", "capability": "servo.move", "args": {"angle": 3.0, "speed": None}},
            },
            None,
            "submitted by me: servo.move angle=3",
        ),
        ("leased", {"node": "desk", "state": "leased"}, 2, "leased to desk (attempt 2)"),
        (
            "finished",
            {"outcome": "failed", "code": "no_evidence", "state": "failed"},
            1,
            "finished: failed, no_evidence",
        ),
        (
            "finished",
            {"outcome": "succeeded", "unanswered": ["nice"], "state": "waiting_review"},
            1,
            "finished: succeeded; unanswered: nice -> waiting_review",
        ),
        ("lost", {"state": "uncertain"}, 1, "the lease is over -> uncertain"),
        ("progress", {"fraction": 0.5, "text": "at 3"}, 1, "50% at 3"),
        ("something_new", {"x": 1, "state": "failed"}, None, "something new x=1 -> failed"),
        ("submitted", {}, None, "submitted by ?:"),
    ],
)
def test_events_are_one_line_each(kind: str, data: dict[str, Any], attempt: int | None, text: str) -> None:
    assert describe(kind, data, attempt).strip() == text
