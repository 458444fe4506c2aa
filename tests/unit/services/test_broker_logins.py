"""How fast one address may try passwords."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from edgepanda.services.broker_logins import EACH, FREE, REMEMBERED, LoginPace


def fail(pace: LoginPace, address: str, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        pace.wrong(address, now)


def test_the_first_wrong_ones_are_free_and_then_there_is_one_at_a_time() -> None:
    pace = LoginPace()
    fail(pace, "10.0.0.1", FREE - 1, 5.0)
    assert pace.wait("10.0.0.1", 5.0) == 0.0
    pace.wrong("10.0.0.1", 5.0)
    assert pace.wait("10.0.0.1", 5.0) == EACH
    assert pace.wait("10.0.0.2", 5.0) == 0.0
    assert pace.wait("10.0.0.1", 5.0 + EACH) == 0.0
    pace.wrong("10.0.0.1", 5.0 + EACH)
    assert pace.wait("10.0.0.1", 5.0 + EACH) == EACH
    fail(pace, "10.0.0.1", FREE - 1, 100.0)
    assert pace.wait("10.0.0.1", 100.0) == 0.0


def test_a_network_of_ipv6_is_one_address_and_a_mapped_one_is_its_ipv4() -> None:
    pace = LoginPace()
    for host in range(FREE):
        pace.wrong(f"fd00::{host:x}", 0.0)
    assert pace.wait("fd00::ffff", 0.0) == EACH
    assert pace.wait("fd00:0:0:1::1", 0.0) == 0.0
    fail(pace, "::ffff:10.0.0.9", FREE)
    assert pace.wait("10.0.0.9", 0.0) == EACH


def test_memory_is_bounded() -> None:
    pace = LoginPace()
    for number in range(3 * REMEMBERED):
        pace.wrong(str(ipaddress.ip_address(number)), 0.0)
    assert len(pace) == REMEMBERED


@given(st.lists(st.floats(0, 3), max_size=200))
def test_no_order_of_tries_gets_more_than_its_share(pauses: list[float]) -> None:
    pace, now, tries = LoginPace(), 0.0, 0
    for pause in pauses:
        now += pause
        if not pace.wait("x", now):
            pace.wrong("x", now)
            tries += 1
    assert tries <= FREE + now / EACH + 1
