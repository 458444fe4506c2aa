"""Success needs evidence, and a positive answer with evidence to each criterion."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepanda.model.task import Answer, Finished, Verdict, judge

SHOWN = ({"kind": "read_back", "value": 41.9},)


def test_success_without_evidence_is_a_failure():
    assert judge((), Finished(outcome="succeeded")) == Verdict("failed", "no_evidence")


def test_success_with_evidence_and_no_criteria():
    assert judge((), Finished(outcome="succeeded", evidence=SHOWN)) == Verdict("succeeded")


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "cancelled"])
def test_what_did_not_succeed_stays_as_it_was_reported(outcome):
    report = Finished(outcome=outcome, code="io", answers=(Answer(criterion="x", met=True, evidence=1),))
    assert judge(("x", "y"), report) == Verdict(outcome, "io")


def test_one_criterion_that_is_not_met_makes_it_fail():
    answers = (Answer(criterion="a", met=True, evidence=1), Answer(criterion="b", met=False))
    report = Finished(outcome="succeeded", evidence=SHOWN, answers=answers)
    assert judge(("a", "b"), report) == Verdict("failed", "criterion_not_met")


@pytest.mark.parametrize("evidence", [None, "", {}, []])
def test_an_answer_without_evidence_counts_as_none(evidence):
    report = Finished(
        outcome="succeeded", evidence=SHOWN, answers=(Answer(criterion="a", met=True, evidence=evidence),)
    )
    assert judge(("a",), report).unanswered == ("a",)


@pytest.mark.parametrize("evidence", [0, False, 0.0, "0"])
def test_a_value_of_nought_is_evidence(evidence):
    report = Finished(
        outcome="succeeded", evidence=SHOWN, answers=(Answer(criterion="a", met=True, evidence=evidence),)
    )
    assert judge(("a",), report) == Verdict("succeeded")


def test_answers_to_other_questions_do_not_count():
    report = Finished(outcome="succeeded", evidence=SHOWN, answers=(Answer(criterion="b", met=False),))
    assert judge(("a",), report) == Verdict("succeeded", unanswered=("a",))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    st.lists(st.builds(Answer, criterion=st.sampled_from("abc"), met=st.booleans(), evidence=st.none() | st.just(1))),
)
def test_a_success_without_reserve_has_an_answer_with_evidence_to_each_criterion(criteria, answers):
    verdict = judge(criteria, Finished(outcome="succeeded", evidence=SHOWN, answers=tuple(answers)))
    if verdict == Verdict("succeeded"):
        assert all(any(a.criterion == c and a.met and a.evidence == 1 for a in answers) for c in criteria)
        assert all(a.met for a in answers if a.criterion in criteria)
