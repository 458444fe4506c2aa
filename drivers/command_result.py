"""What a finished command comes to: its exit, its `result.json`, its outputs, and the criteria of the task. No I/O."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from edgepanda.drivers.contract import Answer, CallResult, Outcome

EXAMPLE = (
    '{"outcome": "succeeded", "narrative": "...", "answers": [{"criterion": "...", "met": true, "evidence": "..."}]}'
)


class Ending(msgspec.Struct, frozen=True):
    """The supervisor's record: exit `code` or `signal`, or `error` if the program could not be started."""

    reason: str
    seconds: float
    code: int | None = None
    signal: int | None = None
    error: str = ""
    bytes: dict[str, int] = {}


class GivenAnswer(msgspec.Struct, frozen=True):
    """One answer in `result.json`; `criterion` is the exact text."""

    criterion: str
    met: bool
    evidence: str | dict[str, Any]


class Given(msgspec.Struct, frozen=True):
    """`result.json`; `value` is optional and goes to who asked."""

    outcome: Outcome
    narrative: str = ""
    answers: list[GivenAnswer] = []
    value: Any = None


class Finished(NamedTuple):
    """All that is known of a command that ended; `result` is None without a `result.json`, `tails` by stream."""

    ending: Ending
    result: bytes | None
    outputs: dict[str, int]
    tails: dict[str, str]


def judge(finished: Finished, required: list[str], criteria: tuple[str, ...]) -> CallResult:
    """The result of a command that ended by itself. Criteria without an answer stay unanswered."""
    ending = finished.ending
    evidence = (_exit_evidence(ending), *_output_evidence(finished))
    artifacts = tuple({"path": f"outputs/{path}", "bytes": size} for path, size in finished.outputs.items())

    def failed(reason: str, text: str, value: Any = None) -> CallResult:
        return CallResult("failed", value, evidence, (), artifacts, text, reason)

    if ending.code != 0:
        how = f"status {ending.code}" if ending.code is not None else f"signal {ending.signal}"
        return failed("exit_status", f"the command ended with {how}")
    if finished.result is None:
        return failed("no_result", f"the command wrote no result.json; it should hold {EXAMPLE}")
    try:
        given = msgspec.json.decode(finished.result, type=Given)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return failed("bad_result", f"result.json is not valid: {error}")
    texts = [answer.criterion for answer in given.answers]
    if len(set(texts)) != len(texts):
        return failed("bad_result", "result.json answers a criterion twice", given.value)
    if given.outcome == "failed":
        return failed("said_so", given.narrative or "the command says that it failed", given.value)
    missing = [p for p in required if not any(fnmatchcase(path, p) for path in finished.outputs)]
    if missing:
        return failed("missing_output", f"required outputs are missing: {', '.join(missing)}", given.value)
    answers = tuple(
        Answer(a.criterion, a.met, a.evidence) for a in given.answers if a.criterion in criteria and a.evidence
    )
    return CallResult("succeeded", given.value, evidence, answers, artifacts, given.narrative)


def _exit_evidence(ending: Ending) -> dict[str, Any]:
    return {"kind": "exit", "code": ending.code, "signal": ending.signal, "seconds": ending.seconds}


def _output_evidence(finished: Finished) -> list[dict[str, Any]]:
    return [
        {"kind": "output", "stream": stream, "bytes": finished.ending.bytes.get(stream, 0), "tail": tail}
        for stream, tail in finished.tails.items()
        if tail
    ]
