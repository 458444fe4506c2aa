"""Stops that overlap, come again, and are released: whatever the order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgepanda.model.stops import MOST_RELEASED, MOST_STANDING, Stop, Stops, released, stopped


def stop(number: int, origin: str = "", reason: str = "") -> Stop:
    return Stop(id=f"s{number}", at=float(number), door="site", origin=origin, reason=reason)


def test_two_overlapping_stops_need_two_releases() -> None:
    both = stopped(stopped(Stops(), stop(1, "a")), stop(2, "b"))
    assert released(both, ("s1",)).in_force
    assert not released(released(both, ("s1",)), ("b",)).in_force


def test_a_released_stop_that_comes_again_does_nothing() -> None:
    after = released(stopped(Stops(), stop(1, "a")), ("s1",))
    assert stopped(after, stop(2, "a")) == after
    assert stopped(after, stop(3, "c")).in_force


def test_a_release_that_comes_before_its_stop_holds() -> None:
    assert not stopped(released(Stops(), ("a",)), stop(1, "a")).in_force


def test_a_plain_message_stops_anew_each_time() -> None:
    first = stopped(Stops(), stop(1, reason="help"))
    assert stopped(first, stop(2, reason="help")) == first
    assert stopped(released(first, ("s1",)), stop(3, reason="help")).in_force


steps = st.lists(
    st.one_of(
        st.tuples(st.just("stop"), st.integers(0, 60), st.sampled_from(["", *"abcdefgh"])),
        st.tuples(st.just("release"), st.lists(st.integers(0, 60), max_size=3), st.sampled_from(["", *"abcdefgh"])),
    ),
    max_size=80,
)


@given(steps)
def test_a_stop_is_in_force_until_it_is_named(todo: list[tuple[str, object, str]]) -> None:
    now = Stops()
    for kind, what, origin in todo:
        before = now
        if kind == "stop":
            assert isinstance(what, int)
            new = stop(what, origin, reason=str(what))
            now = stopped(before, new)
            assert now.in_force or origin in before.released
            assert {each.id for each in before.standing[: MOST_STANDING - 1]} <= {each.id for each in now.standing}
        else:
            assert isinstance(what, list)
            ids = tuple(f"s{number}" for number in what) + ((origin,) if origin else ())
            now = released(before, ids)
            kept = {each for each in before.standing if each.id not in ids and (each.origin or "-") not in ids}
            assert set(now.standing) == kept
        assert len(now.standing) <= MOST_STANDING


def test_the_bounds_hold_and_the_newest_is_never_lost() -> None:
    now = Stops()
    for number in range(MOST_STANDING + 5):
        now = stopped(now, stop(number, f"o{number}"))
    assert len(now.standing) == MOST_STANDING
    seen = tuple(each.id for each in now.standing)
    assert released(stopped(now, stop(999, "late")), seen).in_force
    now = released(now, tuple(f"x{number}" for number in range(MOST_RELEASED + 5)))
    assert len(now.released) == MOST_RELEASED
