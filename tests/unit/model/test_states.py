"""The table of states: exactly the rows of docs/protocol.md section 6, and promises 1 to 4 for every sequence."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgepanda.model.states import ENDED, LIVE, TABLE, Happening, Kind, Standing, State, StateError, step, why

S, K = State, Kind
OUTCOMES = ("succeeded", "failed", "timed_out", "cancelled")

# The protocol's rows: from, to, and what leads there. A mark of `cancel` turns every way to `queued` into `cancelled`.
PROTOCOL = {
    (S.NEW, S.QUEUED): {K.SUBMITTED},
    (S.NEW, S.WAITING_CONSENT): {K.SUBMITTED},
    (S.WAITING_CONSENT, S.QUEUED): {K.CONSENTED},
    (S.WAITING_CONSENT, S.CANCELLED): {K.DENIED, K.CANCEL},
    (S.QUEUED, S.LEASED): {K.LEASED},
    (S.QUEUED, S.EXPIRED): {K.EXPIRED},
    (S.QUEUED, S.CANCELLED): {K.CANCEL},
    (S.LEASED, S.EXPIRED): {K.EXPIRED},
    (S.LEASED, S.RUNNING): {K.STARTED, K.PERMITTED},
    (S.LEASED, S.QUEUED): {K.DECLINED, K.LOST, K.INTERRUPTED},
    (S.LEASED, S.FAILED): {K.LOST, K.INTERRUPTED},
    (S.LEASED, S.LEASED): {K.CANCEL},
    (S.RUNNING, S.WAITING_ANSWER): {K.ASKED},
    (S.WAITING_ANSWER, S.RUNNING): {K.ANSWERED},
    (S.RUNNING, S.RUNNING): {K.CANCEL},
    (S.WAITING_ANSWER, S.WAITING_ANSWER): {K.CANCEL},
    **{(held, S(outcome)): {K.FINISHED} for held in (S.RUNNING, S.WAITING_ANSWER) for outcome in OUTCOMES},
    **{(held, S.WAITING_REVIEW): {K.FINISHED} for held in (S.RUNNING, S.WAITING_ANSWER, S.UNCERTAIN)},
    **{(held, S.QUEUED): {K.LOST, K.INTERRUPTED, K.FINISHED} for held in (S.RUNNING, S.WAITING_ANSWER)},
    **{(held, S.UNCERTAIN): {K.LOST, K.INTERRUPTED} for held in (S.RUNNING, S.WAITING_ANSWER)},
    (S.RUNNING, S.FAILED): {K.FINISHED, K.LOST, K.INTERRUPTED},
    (S.WAITING_ANSWER, S.FAILED): {K.FINISHED, K.LOST, K.INTERRUPTED},
    (S.WAITING_REVIEW, S.SUCCEEDED): {K.ACCEPTED},
    (S.WAITING_REVIEW, S.QUEUED): {K.AGAIN},
    (S.WAITING_REVIEW, S.FAILED): {K.REJECTED},
    (S.WAITING_REVIEW, S.CANCELLED): {K.CANCEL},
    (S.UNCERTAIN, S.SUCCEEDED): {K.FINISHED, K.RESOLVED},
    (S.UNCERTAIN, S.FAILED): {K.FINISHED, K.RESOLVED},
    (S.UNCERTAIN, S.TIMED_OUT): {K.FINISHED},
    (S.UNCERTAIN, S.CANCELLED): {K.FINISHED},
    (S.UNCERTAIN, S.QUEUED): {K.RESOLVED},
}
BY_PERSON = {K.ACCEPTED, K.RESOLVED}


def test_the_table_has_exactly_the_rows_of_the_protocol():
    table: dict[tuple[State, State], set[Kind]] = {}
    for row in TABLE:
        for source in row.sources:
            table.setdefault((source, row.to), set()).add(row.kind)
    assert table == PROTOCOL


def test_ended_tasks_have_no_way_out():
    assert not [row for row in TABLE if row.sources & ENDED]
    assert frozenset(State) == ENDED | LIVE


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("kind", Kind)
def test_what_the_table_does_not_know_is_an_error_with_a_code(state, kind):
    if any(row.kind is kind and state in row.sources for row in TABLE):
        return
    with pytest.raises(StateError) as caught:
        step(Standing(state=state, attempt=1, fence=1), Happening(kind=kind, attempt=1))
    assert caught.value.code == "invalid_state"
    assert caught.value.details == {"state": str(state)}


@pytest.mark.parametrize("kind", [K.DECLINED, K.STARTED, K.PERMITTED, K.ASKED, K.FINISHED])
@pytest.mark.parametrize("attempt", [None, 1, 3])
def test_a_report_without_the_current_fence_changes_nothing(kind, attempt):
    for state in (S.LEASED, S.RUNNING, S.UNCERTAIN):
        with pytest.raises(StateError) as caught:
            step(Standing(state=state, attempt=2, fence=2), Happening(kind=kind, attempt=attempt, outcome="succeeded"))
        assert caught.value.code == "fence_retired"


def test_a_retired_fence_does_not_count_even_when_it_is_the_newest_attempt():
    queued = Standing(state=S.QUEUED, attempt=1, fence=None)
    with pytest.raises(StateError, match="no longer counts"):
        step(queued, Happening(kind=K.FINISHED, attempt=1, outcome="succeeded"))


@pytest.mark.parametrize("outcome", [None, "timed_out", "cancelled"])
def test_a_person_resolves_as_succeeded_failed_or_retry_only(outcome):
    uncertain = Standing(state=S.UNCERTAIN, attempt=1, fence=1)
    event = Happening(kind=K.RESOLVED, outcome=outcome)
    if outcome is None:
        assert step(uncertain, event).state is S.QUEUED
        return
    with pytest.raises(StateError):
        step(uncertain, event)


def _running(**more: object) -> Standing:
    return Standing(state=S.RUNNING, attempt=1, runs=1, fence=1, **more)  # type: ignore[arg-type]


def test_a_cancelled_task_whose_lease_is_lost_is_not_queued_again():
    marked = step(_running(replay="safe"), Happening(kind=K.CANCEL))
    assert (marked.state, marked.cancel) == (S.RUNNING, True)
    assert step(marked, Happening(kind=K.LOST)).state is S.CANCELLED


def test_finished_first_stays_finished_in_spite_of_a_cancel():
    marked = step(_running(), Happening(kind=K.CANCEL))
    assert step(marked, Happening(kind=K.FINISHED, attempt=1, outcome="succeeded")).state is S.SUCCEEDED


@pytest.mark.parametrize("state", [S.QUEUED, S.WAITING_CONSENT, S.WAITING_REVIEW])
def test_a_cancel_ends_at_once_what_nobody_holds(state):
    assert step(Standing(state=state), Happening(kind=K.CANCEL)).state is S.CANCELLED


def test_a_leased_task_that_is_cancelled_ends_when_its_node_gives_it_back():
    marked = step(Standing(state=S.LEASED, attempt=1, fence=1), Happening(kind=K.CANCEL))
    assert step(marked, Happening(kind=K.DECLINED, attempt=1)).state is S.CANCELLED


def test_a_later_word_of_a_person_lifts_an_earlier_cancel():
    uncertain = step(step(_running(), Happening(kind=K.CANCEL)), Happening(kind=K.LOST))
    assert uncertain.state is S.UNCERTAIN
    assert step(uncertain, Happening(kind=K.RESOLVED)) == Standing(state=S.QUEUED, attempt=1)


def test_a_safe_task_is_tried_again_while_attempts_and_its_time_are_left():
    assert step(_running(replay="safe"), Happening(kind=K.LOST)).state is S.QUEUED
    assert step(_running(replay="safe", max_attempts=1), Happening(kind=K.LOST)).state is S.FAILED
    assert step(_running(replay="safe"), Happening(kind=K.LOST, still_valid=False)).state is S.FAILED


def test_a_lease_that_was_declined_does_not_count_against_the_attempts():
    task = Standing(state=S.QUEUED, replay="safe", max_attempts=2)
    for _ in range(5):
        leased = step(task, Happening(kind=K.LEASED))
        task = step(leased, Happening(kind=K.DECLINED, attempt=leased.fence))
    for number, ends in ((6, S.QUEUED), (7, S.FAILED)):
        leased = step(task, Happening(kind=K.LEASED))
        running = step(leased, Happening(kind=K.STARTED, attempt=leased.fence))
        assert (running.attempt, running.runs) == (number, number - 5)
        task = step(running, Happening(kind=K.LOST))
        assert task.state is ends


def test_a_safe_attempt_that_failed_for_now_is_tried_again_while_attempts_and_its_time_are_left():
    failed = Happening(kind=K.FINISHED, attempt=1, outcome="failed", transient=True)
    assert step(_running(replay="safe"), failed).state is S.QUEUED
    assert step(_running(replay="safe", max_attempts=1), failed).state is S.FAILED
    assert step(_running(replay="safe"), msgspec.structs.replace(failed, still_valid=False)).state is S.FAILED
    assert step(_running(replay="safe"), msgspec.structs.replace(failed, transient=False)).state is S.FAILED
    assert step(_running(replay="unsafe", max_attempts=9), failed).state is S.FAILED
    assert step(_running(replay="safe", cancel=True), failed).state is S.CANCELLED


@pytest.mark.parametrize("replay", ["safe", "unsafe"])
@pytest.mark.parametrize("kind", [K.LOST, K.INTERRUPTED])
def test_what_crashes_its_node_before_it_begins_is_not_tried_for_ever(replay, kind):
    task, most = Standing(state=S.QUEUED, replay=replay, max_attempts=1), 3
    for number in range(1, most + 1):
        leased = step(task, Happening(kind=K.LEASED))
        task = step(leased, Happening(kind=kind, began=False))
        assert (task.state, task.lost) == (S.QUEUED if number < most else S.FAILED, number)


def test_a_node_that_gives_an_attempt_back_unbegun_has_not_crashed_of_it():
    task = Standing(state=S.QUEUED)
    for _ in range(9):
        permitted = step(step(task, Happening(kind=K.LEASED)), Happening(kind=K.PERMITTED, attempt=task.attempt + 1))
        task = step(permitted, Happening(kind=K.INTERRUPTED, began=False, given_back=True))
    assert (task.state, task.lost) == (S.QUEUED, 0)


def test_the_permit_is_for_unsafe_tasks_and_started_for_safe_ones():
    leased = Standing(state=S.LEASED, attempt=1, fence=1)
    for replay, kind in (("unsafe", K.STARTED), ("safe", K.PERMITTED)):
        with pytest.raises(StateError):
            step(msgspec.structs.replace(leased, replay=replay), Happening(kind=kind, attempt=1))


def test_why_is_the_word_of_the_row_that_is_taken():
    assert "nobody knows" in why(S.RUNNING, Happening(kind=K.LOST), _running())
    assert why(S.SUCCEEDED, Happening(kind=K.LOST), _running()) == ""


class Site(RuleBasedStateMachine):
    """One task, the coordinator's table, and nodes that begin only when the rules let them."""

    attempts = st.integers(1, 6)

    @initialize(replay=st.sampled_from(["safe", "unsafe"]), tier=st.integers(0, 2), most=st.integers(1, 3))
    def submit(self, replay, tier, most):
        self.task = Standing(replay=replay, tier=tier, max_attempts=most)
        self.leased: set[int] = set()  # nodes that were given this attempt
        self.permitted: set[int] = set()
        self.began: set[int] = set()
        self.gone: set[int] = set()  # nodes that died and know from their journal that it is over
        self.asked = 0  # how often a person wanted it done again
        self.happen(Happening(kind=K.SUBMITTED))

    def happen(self, event: Happening) -> bool:
        """Apply it; False when the table refuses. Checks what holds for each single change."""
        before, refusal = self.task, ""
        try:
            self.task = step(before, event)
        except StateError as error:
            refusal = error.code
        if refusal:
            assert refusal in ("invalid_state", "fence_retired")
            return False
        after = self.task
        assert before.state not in ENDED
        assert event.attempt in (None, before.fence)
        via = {(before.state, after.state)}
        if after.state is S.CANCELLED and before.cancel:
            via.add((before.state, S.QUEUED))
        assert any(event.kind in PROTOCOL.get(pair, ()) for pair in via)
        if after.state is S.SUCCEEDED:
            by_report = event.kind is K.FINISHED and event.outcome == "succeeded" and not event.unanswered
            assert event.kind in BY_PERSON or (by_report and event.attempt == before.fence)
        if before.state is S.UNCERTAIN and after.state is S.QUEUED:
            assert event.kind is K.RESOLVED
        return True

    @rule(kind=st.sampled_from([K.CONSENTED, K.DENIED, K.CANCEL, K.EXPIRED, K.ANSWERED, K.ACCEPTED, K.REJECTED]))
    def anything_without_a_fence(self, kind):
        self.happen(Happening(kind=kind))

    @rule()
    def lease(self):
        if self.happen(Happening(kind=K.LEASED)):
            assert self.task.fence == self.task.attempt
            assert self.task.attempt not in self.leased
            self.leased.add(self.task.attempt)

    @rule(attempt=attempts)
    def a_node_declines(self, attempt):
        if attempt in self.leased - self.began - self.permitted:
            self.happen(Happening(kind=K.DECLINED, attempt=attempt))

    @rule(attempt=attempts)
    def a_node_begins(self, attempt):
        """`safe`: at once. `unsafe`: with the permit of this attempt, and once."""
        if attempt not in self.leased or attempt in self.gone | self.began:
            return
        if self.task.replay == "safe":
            self.began.add(attempt)
            self.happen(Happening(kind=K.STARTED, attempt=attempt))
        elif attempt in self.permitted:
            self.began.add(attempt)

    @precondition(lambda self: self.task.replay == "unsafe")
    @rule(attempt=attempts)
    def a_node_asks_for_its_permit(self, attempt):
        if attempt not in self.leased or attempt in self.gone:
            return
        before = self.task
        if self.happen(Happening(kind=K.PERMITTED, attempt=attempt)):
            assert before.state is S.LEASED
            assert attempt not in self.permitted
            self.permitted.add(attempt)

    @rule(attempt=attempts, outcome=st.sampled_from(OUTCOMES), unanswered=st.booleans(), transient=st.booleans())
    def a_node_finishes(self, attempt, outcome, unanswered, transient):
        if attempt in self.began:
            said = {"outcome": outcome, "unanswered": unanswered, "transient": transient}
            self.happen(Happening(kind=K.FINISHED, attempt=attempt, **said))

    @rule(attempt=attempts)
    def a_node_asks_a_person(self, attempt):
        if attempt in self.began:
            self.happen(Happening(kind=K.ASKED, attempt=attempt))

    @rule(attempt=attempts, still_valid=st.booleans(), given_back=st.booleans())
    def a_node_restarts(self, attempt, still_valid, given_back):
        """Its journal knows whether it began."""
        if attempt not in self.leased or attempt in self.gone:
            return
        self.gone.add(attempt)
        began = attempt in self.began
        held = self.task.state in (S.RUNNING, S.WAITING_ANSWER)
        said = {"began": began, "still_valid": still_valid, "given_back": given_back}
        event = Happening(kind=K.INTERRUPTED, attempt=attempt, **said)
        if self.happen(event) and self.task.replay == "unsafe" and held and began:
            assert self.task.state is S.UNCERTAIN

    @rule(still_valid=st.booleans())
    def a_lease_is_lost(self, still_valid):
        permitted = self.task.fence in self.permitted
        if self.happen(Happening(kind=K.LOST, still_valid=still_valid)) and permitted:
            assert self.task.state is S.UNCERTAIN

    @rule(outcome=st.sampled_from(["succeeded", "failed", None]))
    def a_person_resolves(self, outcome):
        if self.happen(Happening(kind=K.RESOLVED, outcome=outcome)) and outcome is None:
            self.asked += 1

    @rule()
    def a_person_wants_it_again(self):
        if self.happen(Happening(kind=K.AGAIN)):
            self.asked += 1

    @invariant()
    def at_most_one_attempt_is_live(self):
        if not hasattr(self, "task"):
            return
        holding = self.task.state in (S.LEASED, S.RUNNING, S.WAITING_ANSWER, S.UNCERTAIN)
        assert self.task.fence == (self.task.attempt if holding else None)

    @invariant()
    def nothing_is_tried_for_ever(self):
        if hasattr(self, "task"):
            assert self.task.lost <= 3

    @invariant()
    def unsafe_work_begins_once_unless_a_person_asks_for_more(self):
        if hasattr(self, "task") and self.task.replay == "unsafe":
            assert self.began <= self.permitted
            assert len(self.began) <= 1 + self.asked


Site.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestEverySequence = Site.TestCase
