"""What a finished command comes to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgepanda.drivers.command_result import Ending, Finished, judge
from edgepanda.drivers.contract import Answer

ENDED = Ending("exited", 0.1, code=0)
GOOD = {"outcome": "succeeded", "narrative": "built"}


def finished(result: Any, *, ending: Ending = ENDED, outputs: dict[str, int] | None = None) -> Finished:
    raw = result if isinstance(result, bytes) or result is None else json.dumps(result).encode()
    return Finished(ending, raw, outputs or {}, {"stdout": "hello", "stderr": ""})


@pytest.mark.parametrize(
    ("result", "ending", "reason"),
    [
        (None, ENDED, "no_result"),
        (GOOD, Ending("exited", 0.1, code=3), "exit_status"),
        (GOOD, Ending("exited", 0.1, signal=11), "exit_status"),
        (b"", ENDED, "bad_result"),
        (b"{", ENDED, "bad_result"),
        (b"[" * 9000, ENDED, "bad_result"),
        ({"narrative": "no outcome"}, ENDED, "bad_result"),
        ({"outcome": "done"}, ENDED, "bad_result"),
        (GOOD | {"answers": [{"criterion": "a", "met": True}]}, ENDED, "bad_result"),
        (
            GOOD | {"answers": [{"criterion": "a", "met": m, "evidence": "e"} for m in (True, False)]},
            ENDED,
            "bad_result",
        ),
        ({"outcome": "failed", "narrative": "no disk"}, ENDED, "said_so"),
    ],
)
def test_only_a_whole_result_succeeds(result: Any, ending: Ending, reason: str) -> None:
    got = judge(finished(result, ending=ending), [], ("a",))
    assert (got.outcome, got.reason, got.answers) == ("failed", reason, ())
    assert got.narrative
    assert got.evidence[0]["kind"] == "exit"


def test_answers_are_passed_on_only_if_asked_and_shown() -> None:
    answers = [
        {"criterion": "tests pass", "met": True, "evidence": {"passed": 12}},
        {"criterion": "not asked", "met": True, "evidence": "x"},
        {"criterion": "no evidence", "met": True, "evidence": ""},
    ]
    got = judge(finished(GOOD | {"answers": answers, "value": 7}), [], ("tests pass", "no evidence", "unanswered"))
    assert got.answers == (Answer("tests pass", True, {"passed": 12}),)
    assert (got.outcome, got.value, got.narrative) == ("succeeded", 7, "built")


def test_required_outputs_must_be_there() -> None:
    outputs = {"a.txt": 3, "sub/b.bin": 0}
    assert judge(finished(GOOD, outputs=outputs), ["*.txt", "sub/*"], ()).outcome == "succeeded"
    got = judge(finished(GOOD, outputs=outputs), ["*.txt", "*.pdf"], ())
    assert (got.reason, "*.pdf" in got.narrative) == ("missing_output", True)
    assert [artifact["path"] for artifact in got.artifacts] == ["outputs/a.txt", "outputs/sub/b.bin"]
