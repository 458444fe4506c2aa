"""The short form of `python -m tests.faults.hostile`."""

from __future__ import annotations

import pytest

from tests.faults.hostile import attack, printed


@pytest.mark.parametrize(("broker", "count"), [("mosquitto", 1500), ("embedded", 500)])
def test_no_payload_of_a_stranger_ends_a_loop_or_stays_in_memory(broker: str, count: int) -> None:
    outcome = attack(count, 1, broker)
    assert not outcome.broken, printed(outcome)
    assert outcome.payloads == count
    assert len(outcome.kinds) == 15
