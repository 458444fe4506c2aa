"""When a device's commander is gone for too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgepanda.node.deadman import DeadMan

LIMITS = {"pan": 5.0, "tilt": 20.0}


def test_each_device_has_its_own_patience_and_is_safe_once() -> None:
    man = DeadMan()
    for name in ("pan", "tilt", "led"):
        man.commanded(name, "site")
    assert man.look(100, in_touch=True, limits=LIMITS) == []
    assert man.look(101, in_touch=False, limits=LIMITS) == []
    assert man.look(105.9, in_touch=False, limits=LIMITS) == []
    assert man.look(106, in_touch=False, limits=LIMITS) == ["pan"]
    assert man.look(107, in_touch=False, limits=LIMITS) == []
    assert man.look(121, in_touch=False, limits=LIMITS) == ["tilt"]


def test_who_is_at_the_machine_needs_no_link() -> None:
    man = DeadMan()
    man.commanded("pan", "site")
    man.commanded("pan", "local")
    man.look(0, in_touch=False, limits=LIMITS)
    assert man.look(1000, in_touch=False, limits=LIMITS) == []


def test_a_link_that_came_back_counts_anew() -> None:
    man = DeadMan()
    man.commanded("pan", "site")
    man.look(0, in_touch=False, limits=LIMITS)
    man.look(4, in_touch=True, limits=LIMITS)
    assert man.look(6, in_touch=False, limits=LIMITS) == []
    assert man.look(11, in_touch=False, limits=LIMITS) == ["pan"]


@given(st.lists(st.tuples(st.floats(0.1, 10), st.booleans(), st.booleans()), max_size=60))
def test_never_before_its_time_and_always_after_it(steps: list[tuple[float, bool, bool]]) -> None:
    man, now, lost_at, watched = DeadMan(), 0.0, None, False
    for pause, in_touch, commanded in steps:
        now += pause
        if commanded:
            man.commanded("pan", "site")
            watched = True
        lost_at = None if in_touch else now if lost_at is None else lost_at
        due = watched and lost_at is not None and now - lost_at >= LIMITS["pan"]
        assert man.look(now, in_touch=in_touch, limits=LIMITS) == (["pan"] if due else [])
        watched = watched and not due
