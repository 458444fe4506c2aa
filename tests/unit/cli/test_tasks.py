"""The list of tasks: moments that people type, and tables that fit."""

from __future__ import annotations

import time
from typing import Any

import click
import pytest

from edgepanda.cli.tasks import columns, moment

ROW: dict[str, Any] = {
    "id": "01h8qk3v2x7c4m9d5e6f",
    "state": "succeeded",
    "capability": "servo.move",
    "node": "desk",
    "device": "pan",
    "age": 90,
    "goal": "face the\nwindow, where the light is best in the morning",
}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("2026-11-30", (2026, 11, 30, 0, 0)),
        ("2026-11-30 08:15", (2026, 11, 30, 8, 15)),
        ("2026-11-30T08:15", (2026, 11, 30, 8, 15)),
    ],
)
def test_a_date_is_local(text: str, parts: tuple[int, ...]) -> None:
    assert tuple(time.localtime(moment(text))[:5]) == parts


def test_a_length_of_time_is_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 10_000.0)
    assert moment("2h") == 2_800


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "30.11.2026"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(click.BadParameter):
        moment(text)


@pytest.mark.parametrize(
    ("width", "headers", "last"),
    [
        (None, 6, "face the window, where the light is best in the morning"),
        (90, 6, "face the window, where the ..."),
        (70, 5, "1m"),
        (55, 4, "1m"),
        (48, 3, "servo.move"),
    ],
)
def test_a_table_is_no_wider_than_its_terminal(width: int | None, headers: int, last: str) -> None:
    names, lines = columns([ROW], width)
    assert (len(names), lines[0][-1]) == (headers, last)
    if width is not None:
        widths = [max(len(name), len(cell)) for name, cell in zip(names, lines[0], strict=True)]
        assert sum(widths) + 2 * (len(widths) - 1) <= width
