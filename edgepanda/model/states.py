"""The states of a task, and every change between them, as one table (docs/protocol.md, 'States').

`step` is the only way a task changes. The coordinator applies it and commits what it gives; nothing else in the
product decides what a report, a lost lease or a person's word leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.card import MAX_ATTEMPTS, Replay
from edgepanda.model.task import Outcome

MOST_LOST = 3  # attempts that may be lost before they begin, unless `max_attempts` allows more


class State(StrEnum):
    """Where a task stands."""

    NEW = "new"
    QUEUED = "queued"
    LEASED = "leased"
    RUNNING = "running"
    WAITING_CONSENT = "waiting_consent"
    WAITING_ANSWER = "waiting_answer"
    WAITING_REVIEW = "waiting_review"
    UNCERTAIN = "uncertain"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.TIMED_OUT, State.CANCELLED, State.EXPIRED})
LIVE = frozenset(State) - ENDED
NEEDS_PERSON = frozenset({State.WAITING_CONSENT, State.WAITING_ANSWER, State.WAITING_REVIEW, State.UNCERTAIN})


class Kind(StrEnum):
    """What can happen to a task."""

    SUBMITTED = "submitted"
    CONSENTED = "consented"
    DENIED = "denied"
    LEASED = "leased"
    DECLINED = "declined"
    STARTED = "started"
    PERMITTED = "permitted"
    ASKED = "asked"
    ANSWERED = "answered"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    EXPIRED = "expired"
    CANCEL = "cancel"
    ACCEPTED = "review_accepted"
    AGAIN = "review_again"
    REJECTED = "review_rejected"
    RESOLVED = "resolved"


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One event: its kind, and the few facts that the table's conditions look at."""

    kind: Kind
    attempt: int | None = None  # the fence that a node's report carries
    outcome: Outcome | None = None  # FINISHED; RESOLVED as succeeded or failed; None there means 'retry'
    unanswered: bool = False  # FINISHED with a criterion that nobody answered
    transient: bool = False  # FINISHED as failed, for a reason that may be over in a moment
    still_valid: bool = True  # LOST, INTERRUPTED, FINISHED: no limit is over when it could begin again
    began: bool = True  # INTERRUPTED: False where the node knows from its journal that it never began
    given_back: bool = False  # INTERRUPTED: by a node that lives and says why, so it was no crash


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the table needs to know of a task."""

    state: State = State.NEW
    tier: int = 1
    replay: Replay = "unsafe"
    attempt: int = 0  # number of the newest attempt; 0: none yet
    runs: int = 0  # attempts that began: one that was declined does not count against `max_attempts`
    fence: int | None = None  # the attempt whose reports count; None: retired
    lost: int = 0  # attempts that ended before they began, by a crash or in silence
    max_attempts: int = MAX_ATTEMPTS
    cancel: bool = False  # somebody asked for it to end


Condition = Callable[[Standing, Happening], bool]


class Row(msgspec.Struct, frozen=True):
    """One line of the table. The first that fits is taken."""

    sources: frozenset[State]
    kind: Kind
    to: State
    when: Condition
    fence: str  # "keep", "retire", or "next"
    why: str


def _always(_: Standing, __: Happening) -> bool:
    return True


def _safe(s: Standing, _: Happening) -> bool:
    return s.replay == "safe"


def _unsafe(s: Standing, _: Happening) -> bool:
    return s.replay == "unsafe"


def _tier2(s: Standing, _: Happening) -> bool:
    return s.tier >= 2


def _tier01(s: Standing, _: Happening) -> bool:
    return s.tier < 2


def _again_allowed(s: Standing, h: Happening) -> bool:
    return s.replay == "safe" and h.still_valid and s.runs < s.max_attempts


def _failed_for_now(s: Standing, h: Happening) -> bool:
    return h.outcome == "failed" and h.transient and _again_allowed(s, h)


def _never_began(_: Standing, h: Happening) -> bool:
    return not h.began


def _not_too_often(s: Standing, h: Happening) -> bool:
    """What crashes its node before it begins would do so for ever."""
    return s.cancel or h.given_back or s.lost + 1 < max(MOST_LOST, s.max_attempts)


def _unbegun_again(s: Standing, h: Happening) -> bool:
    return not h.began and _not_too_often(s, h)


def _unanswered(_: Standing, h: Happening) -> bool:
    return h.outcome == "succeeded" and h.unanswered


def _outcome(outcome: Outcome | None) -> Condition:
    return lambda _, h: h.outcome == outcome


def _row(sources: tuple[State, ...], kind: Kind, to: State, when: Condition, fence: str, why: str) -> Row:
    return Row(frozenset(sources), kind, to, when, fence, why)


_S, _K = State, Kind
_HELD = (_S.RUNNING, _S.WAITING_ANSWER)
_REPORTED = (*_HELD, _S.UNCERTAIN)

TABLE: tuple[Row, ...] = (
    _row((_S.NEW,), _K.SUBMITTED, _S.QUEUED, _tier01, "keep", "checked and committed"),
    _row((_S.NEW,), _K.SUBMITTED, _S.WAITING_CONSENT, _tier2, "keep", "tier 2 needs a person's consent"),
    _row((_S.WAITING_CONSENT,), _K.CONSENTED, _S.QUEUED, _always, "keep", "consent given"),
    _row((_S.WAITING_CONSENT,), _K.DENIED, _S.CANCELLED, _always, "keep", "consent denied or timed out"),
    _row((_S.QUEUED,), _K.LEASED, _S.LEASED, _always, "next", "matched with a claim"),
    _row((_S.QUEUED, _S.LEASED), _K.EXPIRED, _S.EXPIRED, _always, "retire", "a limit was over before it began"),
    _row((_S.LEASED,), _K.STARTED, _S.RUNNING, _safe, "keep", "the node began a safe action"),
    _row((_S.LEASED,), _K.PERMITTED, _S.RUNNING, _unsafe, "keep", "the permit is committed"),
    _row((_S.LEASED,), _K.DECLINED, _S.QUEUED, _always, "retire", "the node declined"),
    _row((_S.LEASED,), _K.LOST, _S.QUEUED, _not_too_often, "retire", "the lease ended without permit or start"),
    _row((_S.LEASED,), _K.LOST, _S.FAILED, _always, "retire", "lost too often before it began"),
    _row((_S.LEASED,), _K.INTERRUPTED, _S.QUEUED, _not_too_often, "retire", "the node says that it never began"),
    _row((_S.LEASED,), _K.INTERRUPTED, _S.FAILED, _always, "retire", "cut short too often before it began"),
    _row((_S.RUNNING,), _K.ASKED, _S.WAITING_ANSWER, _always, "keep", "the attempt asks a person"),
    _row((_S.WAITING_ANSWER,), _K.ANSWERED, _S.RUNNING, _always, "keep", "answered"),
    _row(_REPORTED, _K.FINISHED, _S.WAITING_REVIEW, _unanswered, "retire", "a criterion is unanswered"),
    _row(_REPORTED, _K.FINISHED, _S.SUCCEEDED, _outcome("succeeded"), "retire", "done, with evidence"),
    _row(_HELD, _K.FINISHED, _S.QUEUED, _failed_for_now, "retire", "failed for now; it is tried again after a pause"),
    _row(_REPORTED, _K.FINISHED, _S.FAILED, _outcome("failed"), "retire", "the node reports a failure"),
    _row(_REPORTED, _K.FINISHED, _S.TIMED_OUT, _outcome("timed_out"), "retire", "its time was over"),
    _row(_REPORTED, _K.FINISHED, _S.CANCELLED, _outcome("cancelled"), "retire", "ended on request"),
    _row(_HELD, _K.LOST, _S.QUEUED, _again_allowed, "retire", "lease over; doing it again changes nothing"),
    _row(_HELD, _K.LOST, _S.UNCERTAIN, _unsafe, "keep", "lease over; nobody knows what happened"),
    _row(_HELD, _K.LOST, _S.FAILED, _safe, "retire", "lease over, and no attempt left"),
    _row((_S.RUNNING,), _K.INTERRUPTED, _S.QUEUED, _unbegun_again, "retire", "permitted, but the node never began"),
    _row((_S.RUNNING,), _K.INTERRUPTED, _S.FAILED, _never_began, "retire", "cut short too often before it began"),
    _row(_HELD, _K.INTERRUPTED, _S.QUEUED, _again_allowed, "retire", "cut short; doing it again changes nothing"),
    _row(_HELD, _K.INTERRUPTED, _S.UNCERTAIN, _unsafe, "keep", "cut short in the middle"),
    _row(_HELD, _K.INTERRUPTED, _S.FAILED, _safe, "retire", "cut short, and no attempt left"),
    _row((_S.WAITING_REVIEW,), _K.ACCEPTED, _S.SUCCEEDED, _always, "keep", "a person accepted it"),
    _row((_S.WAITING_REVIEW,), _K.AGAIN, _S.QUEUED, _always, "keep", "a person wants it done again"),
    _row((_S.WAITING_REVIEW,), _K.REJECTED, _S.FAILED, _always, "keep", "a person rejected it"),
    _row((_S.UNCERTAIN,), _K.RESOLVED, _S.SUCCEEDED, _outcome("succeeded"), "retire", "a person says it was done"),
    _row((_S.UNCERTAIN,), _K.RESOLVED, _S.FAILED, _outcome("failed"), "retire", "a person says it was not done"),
    _row((_S.UNCERTAIN,), _K.RESOLVED, _S.QUEUED, _outcome(None), "retire", "a person wants it tried again"),
    _row(
        (_S.QUEUED, _S.WAITING_CONSENT, _S.WAITING_REVIEW),
        _K.CANCEL,
        _S.CANCELLED,
        _always,
        "keep",
        "cancelled before anybody held it",
    ),
    _row((_S.LEASED,), _K.CANCEL, _S.LEASED, _always, "keep", "marked; the node's report decides"),
    _row((_S.RUNNING,), _K.CANCEL, _S.RUNNING, _always, "keep", "marked; the node's report decides"),
    _row((_S.WAITING_ANSWER,), _K.CANCEL, _S.WAITING_ANSWER, _always, "keep", "marked; the node's report decides"),
)

_INDEX: dict[tuple[State, Kind], tuple[Row, ...]] = {
    (source, kind): tuple(row for row in TABLE if row.kind is kind and source in row.sources)
    for source in State
    for kind in Kind
}


_REPORTS = frozenset({_K.DECLINED, _K.STARTED, _K.PERMITTED, _K.ASKED, _K.FINISHED})  # carry a fence
_BEGINS = frozenset({_K.STARTED, _K.PERMITTED})
_NEW_WORD = frozenset({_K.AGAIN, _K.RESOLVED})  # a person's later word lifts an earlier cancel and counts anew


class StateError(EdgePandaError):
    """The table has no such change (`invalid_state`), or the report's fence is retired (`fence_retired`)."""

    code = "invalid_state"


def step(task: Standing, event: Happening) -> Standing:
    """The task after the event.

    Raises `StateError`: `fence_retired` when a report carries an attempt that no longer counts, or none,
    `invalid_state` when the table knows no such change.
    """
    if event.attempt != task.fence and (event.attempt is not None or event.kind in _REPORTS):
        raise StateError(f"attempt {event.attempt} no longer counts", code="fence_retired", where="attempt")
    for row in _INDEX[task.state, event.kind]:
        if row.when(task, event):
            return _apply(task, event, row)
    raise _no_such_change(task, event)


_ASKED = {  # of what a person may ask for: the word
    Kind.CANCEL: "cancelled",
    Kind.ACCEPTED: "reviewed",
    Kind.AGAIN: "reviewed",
    Kind.REJECTED: "reviewed",
    Kind.RESOLVED: "resolved",
}


def _no_such_change(task: Standing, event: Happening) -> StateError:
    details = {"state": str(task.state)}
    word = _ASKED.get(event.kind)
    if word is None:
        return StateError(f"a task that is {task.state} cannot become {event.kind}", where="state", details=details)
    allowed = " or ".join(state for state in State if _INDEX[state, event.kind])
    return StateError(
        f"the task is {task.state} and cannot be {word}",
        where="state",
        cure=f"only one that is {allowed} can; `edgepanda show ID` tells how it got there",
        details=details,
    )


def _apply(task: Standing, event: Happening, row: Row) -> Standing:
    cancel = event.kind is Kind.CANCEL or (task.cancel and event.kind not in _NEW_WORD)
    to = State.CANCELLED if cancel and row.to is State.QUEUED else row.to
    attempt = task.attempt + 1 if row.fence == "next" else task.attempt
    fence = {"keep": task.fence, "retire": None, "next": attempt}[row.fence]
    ended_early = task.state is State.LEASED or (event.kind is Kind.INTERRUPTED and not event.began)
    unbegun = event.kind in (Kind.LOST, Kind.INTERRUPTED) and ended_early and not event.given_back
    anew = event.kind in _NEW_WORD
    runs = 0 if anew else task.runs + (event.kind in _BEGINS)
    lost = 0 if anew else task.lost + unbegun
    return msgspec.structs.replace(task, state=to, attempt=attempt, runs=runs, lost=lost, fence=fence, cancel=cancel)


def why(state: State, event: Happening, task: Standing) -> str:
    """The table's own word for the change that `step` makes, for people."""
    return next((row.why for row in _INDEX[state, event.kind] if row.when(task, event)), "")
