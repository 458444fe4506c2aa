"""Tasks, what is asked of them, and what comes back."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from edgepanda.model.card import Replay

Outcome = Literal["succeeded", "failed", "timed_out", "cancelled"]

NO_EVIDENCE = "no_evidence"
CRITERION_NOT_MET = "criterion_not_met"

LONGEST_BACKOFF = 300.0  # seconds
TRANSIENT = frozenset({"io", "unavailable", "busy"})  # codes of failures that may be over in a moment


class Limits(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All times in seconds; None: no such limit, or the action's default.

    `timeout` bounds one attempt's run; `valid_for` how long after the submit it may still begin; `deliver_within` how
    long it may wait for an absent node; `deadline` everything, from submit to finish. `max_attempts` and
    `retry_backoff` (before the second attempt) are for `safe` tasks: an `unsafe` one is never tried again unasked.
    """

    timeout: float | None = None
    valid_for: float | None = None
    deliver_within: float | None = None
    deadline: float | None = None
    max_attempts: int | None = None
    retry_backoff: float | None = None


class Task(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One durable unit of work, as it is leased to a node."""

    id: str
    capability: str
    args: dict[str, Any] = {}
    device: str | None = None
    node: str | None = None  # pinned to this node
    labels: dict[str, str] = {}
    goal: str = ""
    constraints: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    limits: Limits = Limits()
    priority: int = 0  # higher goes first
    tier: int = 1
    replay: Replay = "unsafe"
    by: str = ""  # name of the peer who asked
    door: str = "command"  # through which door


class Answer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whether one criterion holds, and what shows it."""

    criterion: str
    met: bool
    evidence: Any = None


class Finished(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How an attempt ended, as its node reports it."""

    outcome: Outcome
    code: str = ""  # why it did not succeed
    message: str = ""
    value: Any = None
    evidence: tuple[dict[str, Any], ...] = ()
    answers: tuple[Answer, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()
    narrative: str = ""
    output: tuple[str, ...] = ()  # head and tail of what it printed


def backoff(first: float, runs: int) -> float:
    """Seconds until a task that has begun `runs` times may begin once more; `first` of them after the first time."""
    return min(first * 2.0 ** min(max(runs - 1, 0), 16), LONGEST_BACKOFF)


class Verdict(msgspec.Struct, frozen=True):
    """What a report amounts to once the task's criteria are held against it."""

    outcome: Outcome
    code: str = ""
    unanswered: tuple[str, ...] = ()


def judge(criteria: tuple[str, ...], report: Finished) -> Verdict:
    """Success needs evidence and a positive answer to each criterion; an answer without evidence counts as none."""
    if report.outcome != "succeeded":
        return Verdict(report.outcome, report.code)
    if not report.evidence:
        return Verdict("failed", NO_EVIDENCE)
    answers = {answer.criterion: answer for answer in report.answers}
    if any(answer.criterion in criteria and not answer.met for answer in report.answers):
        return Verdict("failed", CRITERION_NOT_MET)
    unanswered = tuple(c for c in criteria if c not in answers or answers[c].evidence in (None, "", {}, []))
    return Verdict("succeeded", unanswered=unanswered)
