"""How fast one address may try passwords."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from edgepanda.services.broker_logins import EACH, FREE, LONGEST_WAIT, REMEMBERED, LoginPace


def test_the_first_tries_are_free_and_further_ones_wait_and_are_then_refused() -> None:
    pace = LoginPace()
    assert [pace.take("10.0.0.1", 5.0) for _ in range(FREE)] == [0.0] * FREE
    waits = [pace.take("10.0.0.1", 5.0) for _ in range(6)]
    assert waits == [2.0, 4.0, 6.0, 8.0, None, None]
    assert pace.take("10.0.0.2", 5.0) == 0.0
    assert pace.take("10.0.0.1", 5.0 + (FREE + 4) * EACH) == 0.0


def test_a_right_password_costs_nothing() -> None:
    pace = LoginPace()
    for _ in range(1000):
        assert pace.take("10.0.0.1", 0.0) == 0.0
        pace.give_back("10.0.0.1")


def test_a_network_of_ipv6_is_one_address_and_a_mapped_one_is_its_ipv4() -> None:
    pace = LoginPace()
    for host in range(FREE):
        pace.take(f"fd00::{host:x}", 0.0)
    assert pace.take("fd00::ffff", 0.0) == EACH
    assert pace.take("fd00:0:0:1::1", 0.0) == 0.0
    for _ in range(FREE):
        pace.take("::ffff:10.0.0.9", 0.0)
    assert pace.take("10.0.0.9", 0.0) == EACH


def test_memory_is_bounded() -> None:
    pace = LoginPace()
    for number in range(3 * REMEMBERED):
        pace.take(str(ipaddress.ip_address(number)), 0.0)
    assert len(pace) == REMEMBERED


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=200))
def test_no_order_of_tries_gets_more_than_its_share(steps: list[tuple[float, bool]]) -> None:
    pace, now, tries = LoginPace(), 0.0, 0
    for pause, _ in steps:
        now += pause
        wait = pace.take("x", now)
        if wait is not None:
            assert wait <= LONGEST_WAIT
            tries += 1
    assert tries <= FREE + (now + LONGEST_WAIT) / EACH + 1
