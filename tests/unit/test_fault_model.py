"""The model of the fault harness names every broken promise, and the schedule is its seed's."""

from __future__ import annotations

import itertools

import pytest

from tests.faults.command import PLANTED, PLANTS
from tests.faults.model import Final, Model
from tests.faults.schedule import QUIET, schedule


def good() -> Model:
    model = Model()
    model.verified = []
    for task, replay in (("a", "safe"), ("b", "unsafe")):
        model.submit(task, replay)
        model.answer(task)
        model.record([f"{task} 1 0.5"])
        model.end(task, Final("succeeded", 1, has_result=True, shown=(1,)))
    return model


def test_a_good_run_has_no_problems() -> None:
    assert good().problems() == []
    assert good().counts() == {"submitted": 2, "succeeded": 2, "begun": 2, "again": 0}


def test_safe_tasks_may_begin_again_and_unsafe_ones_may_be_uncertain() -> None:
    model = good()
    model.record(["a 2 0.7"])
    model.end("a", Final("succeeded", 2, has_result=True, shown=(2,)))
    model.end("b", Final("uncertain", 1))
    assert model.problems() == []


@pytest.mark.parametrize(
    ("lines", "finals", "word"),
    [
        (["b 2"], {"b": Final("succeeded", 2)}, "b: unsafe, and begun 2 times"),
        (["a 1"], {}, "a: attempt 1 begun 2 times"),
        ([], {"b": Final("leased", 1)}, "b: stuck in leased"),
        ([], {"a": Final("uncertain", 1)}, "a: safe, and uncertain"),
        ([], {"a": Final("succeeded", 2, shown=(2,))}, "a: its evidence is of attempts (2,)"),
        (["a 2"], {"a": Final("succeeded", 2, shown=(1,))}, "a: succeeded as attempt 2 by the report of attempt (1,)"),
        ([], {"b": Final("expired", 1)}, "b: expired as if it had never begun"),
        (["a 2"], {}, "a: begun as attempt 2, the ledger knows 1"),
        (["c 1"], {}, "c: begun, though nobody asked for it"),
    ],
)
def test_each_broken_promise_has_its_line(lines: list[str], finals: dict[str, Final], word: str) -> None:
    model = good()
    model.record(lines)
    for task, final in finals.items():
        model.end(task, final)
    assert any(line.startswith(word) for line in model.problems()), model.problems()


def test_what_was_answered_is_known_and_what_succeeded_began() -> None:
    model = good()
    for task in ("lost", "never", "refused"):
        model.submit(task, "safe")
    model.answer("lost")
    model.end("never", Final("succeeded", 1))
    model.refuse("refused", "ambiguous")
    assert model.problems() == [
        "lost: lost; the submit was answered, and the ledger does not know it",
        "never: a success of what never began",
        "refused: refused (ambiguous)",
    ]


def test_the_site_is_as_it_was_left() -> None:
    model = good()
    model.verified = ["entry 5 differs"]
    model.let_out, model.peers = {"guest"}, {"guest", "me"}
    model.released, model.standing, model.unanswered = True, ("s",), 1
    assert model.problems() == [
        "the chain: entry 5 differs",
        "the peer guest is back after it was removed",
        "1 requests were never answered",
        "the stop s stands after all were released",
    ]


def test_a_seed_gives_the_same_faults_and_one_victim_has_one_at_a_time() -> None:
    assert schedule(7, 300, 0.5) == schedule(7, 300, 0.5) != schedule(8, 300, 0.5)
    faults = schedule(7, 300, 0.5)
    assert len(faults) > 300
    assert {f.kind for f in faults} >= {"kill", "pause", "kill_host", "pause_host", "swallow", "echo", "stop"}
    assert all(QUIET <= f.at <= 300 - QUIET for f in faults)
    for victim in ("broker", "coordinator", "one", "two"):
        own = [f for f in faults if f.victim == victim and f.kind in ("kill", "pause")]
        assert all(a.at + a.lasts < b.at for a, b in itertools.pairwise(own))


def test_each_planted_fault_has_its_seed() -> None:
    assert set(PLANTS) == {path.stem for path in PLANTED.glob("*.py")} - {"sitecustomize"}
