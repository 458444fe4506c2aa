"""`show` of an uncertain task: what is known of it, what one can do, and who decided."""

from __future__ import annotations

from typing import Any

import pytest

from edgepanda.cli.show import _print
from edgepanda.wire.requests import TaskView

VIEW = TaskView(
    id="task-0001",
    state="uncertain",
    capability="servo.move",
    device="pan",
    node="n1",
    code="lost",
    created=0.0,
    updated=0.0,
)
RESTARTED = {"code": "restarted", "reads": {"angle": 12.0}}


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": 1, "kind": kind, "at": 0.0, "attempt": 1, "data": data}


def lost() -> dict[str, Any]:
    return event("lost", node="n1", state="uncertain")


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        ([lost()], ["nothing: n1 has said nothing since"]),
        (
            [lost(), event("interrupted", began=True, known=RESTARTED, state="uncertain")],
            ["its node was restarted in the middle", "pan: angle=12", "cut short; it reads angle=12"],
        ),
        (
            [event("interrupted", began=True, known={"code": "io", "message": "the host died"}, state="uncertain")],
            ["the host died", "cut short: the host died"],
        ),
        (
            [
                event(
                    "interrupted",
                    began=True,
                    known={**RESTARTED, "reads": None, "unread": "silence"},
                    state="uncertain",
                )
            ],
            ["reads now", "nothing: silence"],
        ),
        ([lost(), event("interrupted", began=False, known={"code": "restarted"}, state="uncertain")], ["never began"]),
    ],
)
def test_what_is_known_of_an_uncertain_task(
    happened: list[dict[str, Any]], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _print(VIEW, [], happened)
    printed = "".join(capsys.readouterr())
    assert "shows which are away" not in printed
    for text in [*told, 'edgepanda resolve task-0001 --as succeeded|failed|retry --because "..."']:
        assert text in printed


def test_who_resolved_it_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    word = {"by": "anna", "as": "failed", "because": "it stands still", "state": "failed"}
    _print(TaskView(**{**_fields(), "state": "failed", "ended": True}), [], [lost(), event("resolved", **word)])
    printed = "".join(capsys.readouterr())
    assert "anna resolved it as failed: it stands still" in printed
    assert "has said nothing since" in printed


def _fields() -> dict[str, Any]:
    return {name: getattr(VIEW, name) for name in VIEW.__struct_fields__}
