"""Which filters are within which others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.services.broker_filters import covers, permitted

LEVEL = st.sampled_from(["a", "b", "$c", ""])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join)
FILTER = st.builds(
    lambda levels, tail: "/".join([*levels, *tail]),
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4),
    st.sampled_from([(), ("#",)]),
) | st.just("#")


@pytest.mark.parametrize(
    ("allowed", "wanted", "expected"),
    [
        ("b/+", "b/c", True),
        ("b/+", "b/+", True),
        ("b/+", "b/#", False),
        ("b/+", "b/c/d", False),
        ("b/+", "b", False),
        ("b/#", "b/#", True),
        ("b/#", "b/+/d", True),
        ("b/#", "b", True),
        ("b/c", "b/+", False),
        ("#", "a/b", True),
        ("#", "$SYS/load", False),
        ("+/load", "$SYS/load", False),
        ("$SYS/#", "$SYS/load", True),
        ("+", "#", False),
        ("b", "b/", False),
    ],
)
def test_cases(allowed: str, wanted: str, expected: bool) -> None:
    assert covers(allowed, wanted) is expected


@given(FILTER, FILTER, TOPIC)
def test_what_a_covered_filter_takes_the_covering_one_takes(allowed: str, wanted: str, topic: str) -> None:
    if covers(allowed, wanted) and covers(wanted, topic):
        assert covers(allowed, topic)


@given(FILTER)
def test_a_filter_covers_itself_unless_a_wildcard_would_stand_for_dollar(each: str) -> None:
    assert covers(each, each)


def test_nothing_allowed_permits_nothing() -> None:
    assert not permitted((), "a")
