"""Limits on the coordinator's clock, and what a reboot makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.coordinator.deadlines import ALONE, SHORT, Deadlines, Now, begin, carried, kept, over_before_begin
from edgepanda.model.task import Limits


def now(boottime: float, boot: str = "a", wall: float = 0.0, synchronised: bool = True) -> Now:
    return Now(boottime=boottime, boot=boot, wall=wall, synchronised=synchronised)


LIMITS = Limits(valid_for=30.0, deliver_within=100.0, deadline=1_000.0)


def test_limits_count_from_the_submit() -> None:
    limits = begin(LIMITS, now(50.0))
    assert (limits.begin_by, limits.deliver_by, limits.end_by, limits.asked) == (80.0, 150.0, 1_050.0, 50.0)


@pytest.mark.parametrize(
    ("moment", "queued", "limit"),
    [(79.9, True, ""), (80.0, True, "valid_for"), (80.0, False, "valid_for")],
)
def test_the_first_limit_that_is_over_is_named(moment: float, queued: bool, limit: str) -> None:
    assert over_before_begin(begin(LIMITS, now(50.0)), moment, queued=queued) == limit


def test_deliver_within_is_for_what_is_queued() -> None:
    limits = begin(Limits(deliver_within=10.0, deadline=20.0), now(0.0))
    assert over_before_begin(limits, 10.0, queued=True) == "deliver_within"
    assert over_before_begin(limits, 10.0, queued=False) == ""
    assert over_before_begin(limits, 20.0, queued=False) == "deadline"


def test_the_same_boot_changes_nothing() -> None:
    limits = begin(LIMITS, now(50.0))
    assert carried(limits, now(60.0, wall=9e9)) is limits


def test_downtime_counts_when_both_clocks_were_right() -> None:
    limits = carried(begin(LIMITS, now(500.0, wall=1_000.0)), now(7.0, "b", wall=1_020.0))
    assert limits.begin_by == 7.0 + 10.0
    assert limits.asked == 7.0 - 20.0
    assert limits.end_by == 7.0 + 980.0


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (False, False)])
def test_without_a_right_clock_a_short_command_is_over_and_a_long_limit_stays(before: bool, after: bool) -> None:
    """A servo's command of before a power cut must not move it at the next start, whenever that is."""
    limits = carried(begin(LIMITS, now(500.0, synchronised=before)), now(7.0, "b", synchronised=after))
    assert over_before_begin(limits, 7.0, queued=True) == "valid_for"
    assert (limits.deliver_by, limits.end_by, limits.asked) == (107.0, 1_007.0, None)
    long = carried(begin(Limits(valid_for=SHORT * 2), now(500.0)), now(7.0, "b", synchronised=False))
    assert over_before_begin(long, 7.0, queued=True) == ""


def test_a_wall_clock_that_was_set_back_adds_no_time() -> None:
    limits = carried(begin(LIMITS, now(500.0, wall=1_000.0)), now(7.0, "b", wall=10.0))
    assert limits.begin_by == 37.0


@given(st.floats(1, 1e6), st.floats(0, 1e6), st.floats(0, 1e6), st.booleans())
def test_no_reboot_makes_a_limit_longer(valid: float, boottime: float, down: float, synchronised: bool) -> None:
    limits = begin(Limits(valid_for=valid), now(boottime, wall=5.0))
    after = carried(limits, now(1.0, "b", wall=5.0 + down, synchronised=synchronised))
    assert after.begin_by is not None
    assert after.begin_by - 1.0 <= valid + 1e-6


# what is kept of long limits

DAY = 86_400.0


def test_what_was_kept_is_not_given_back_by_a_power_cut() -> None:
    limits = begin(Limits(deadline=DAY), now(0.0, synchronised=False))
    assert kept(limits, now(ALONE - 1, synchronised=False), after=ALONE) is limits
    limits = kept(limits, now(ALONE, synchronised=False), after=ALONE)
    assert carried(limits, now(5.0, "b", synchronised=False)).end_by == 5.0 + DAY - ALONE


def test_what_limits_nothing_is_not_kept_again() -> None:
    limits = begin(Limits(), now(0.0))
    assert kept(limits, now(9e9), after=ALONE) is limits


def test_a_clock_that_is_set_after_the_start_counts_the_time_without_power() -> None:
    """A board without a battery: its clock is right before the power cut, wrong at the start, right a minute later."""
    limits = carried(begin(Limits(deadline=DAY), now(0.0, wall=1e9)), now(5.0, "b", wall=7.0, synchronised=False))
    assert limits.end_by == 5.0 + DAY
    limits = kept(limits, now(65.0, "b", wall=1e9 + 7_260.0), after=ALONE)  # two hours down, a minute up
    assert limits.end_by == 5.0 + DAY - 7_200.0
    assert kept(limits, now(66.0, "b", wall=9e9), after=ALONE) is limits  # paid once, whatever the clock says later


def test_two_power_cuts_before_the_clock_is_set_are_both_counted() -> None:
    limits = begin(Limits(deadline=DAY), now(0.0, wall=1e9))
    limits = carried(limits, now(10.0, "b", wall=0.0, synchronised=False))
    limits = kept(limits, now(10.0 + ALONE, "b", wall=0.0, synchronised=False), after=ALONE)
    limits = carried(limits, now(3.0, "c", wall=1e9 + 20_000.0))
    assert limits.end_by == pytest.approx(3.0 + DAY - 20_000.0)


class Life:
    """A task of a day, told as turns of power and clock: real time that is on the books, and what the limit says."""

    def __init__(self, limit: float, synchronised: bool) -> None:
        self.boots, self.real, self.up, self.since_kept = 0, 1e9, 100.0, 0.0
        self.synchronised, self.ever_lost = synchronised, 0.0
        self.limits: Deadlines = begin(Limits(deadline=limit), self.now())
        self.ends = self.real + limit

    def now(self) -> Now:
        wall = self.real if self.synchronised else self.real - 1e8
        return Now(boottime=self.up, boot=str(self.boots), wall=wall, synchronised=self.synchronised)

    def remaining(self) -> float:
        assert self.limits.end_by is not None
        return self.limits.end_by - self.up


TURNS = st.lists(
    st.one_of(
        st.tuples(st.just("runs"), st.floats(0, DAY)),
        st.tuples(st.just("cut"), st.floats(0, DAY), st.booleans()),
        st.tuples(st.just("clock"), st.booleans()),
        st.tuples(st.just("kept")),
    ),
    max_size=12,
)


@given(st.booleans(), TURNS)
def test_no_life_makes_a_limit_longer_than_the_time_since_it_was_kept(synchronised: bool, turns: list[tuple]) -> None:  # type: ignore[type-arg]
    """Time without power counts where the clock was right at both ends; it is never counted twice; what a power cut
    gives back is the time since the limit was kept, and no more.
    """
    life = Life(30 * DAY, synchronised)
    given_back = down = 0.0
    for turn in turns:
        if turn[0] == "runs":
            life.real, life.up = life.real + turn[1], life.up + turn[1]
            life.since_kept += turn[1]
        elif turn[0] == "clock":
            life.synchronised = turn[1]
        elif turn[0] == "kept":
            life.limits, life.since_kept = kept(life.limits, life.now(), after=0.0), 0.0
        else:
            given_back, down = given_back + life.since_kept, down + turn[1]
            life.real, life.up, life.boots, life.since_kept = life.real + turn[1], 1.0, life.boots + 1, 0.0
            life.synchronised = turn[2]
            life.limits = carried(life.limits, life.now())
        left = life.ends - life.real
        assert left - 1e-3 <= life.remaining() <= left + given_back + down + 1e-3
    if synchronised:
        life.synchronised = True
        life.limits = kept(life.limits, life.now(), after=0.0)
        if life.limits.owed is None and all(turn[0] != "clock" for turn in turns):
            assert life.remaining() == pytest.approx(life.ends - life.real, abs=1e-3)
