"""Limits on the coordinator's clock, and what a reboot makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.coordinator.deadlines import SHORT, Now, begin, carried, over_before_begin
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
