"""What is missing at a broker, from what was seen of it."""

from __future__ import annotations

from typing import Any

import pytest

from edgepanda.cli.broker_check import facts
from edgepanda.error_codes import CODES
from edgepanda.model.broker_needs import LARGEST_NEEDED, Observed, judge

NOW = 1_800_000_000.0
GOOD: dict[str, Any] = {
    "address": "mqtts://broker.lan:8883",
    "host": "broker.lan",
    "tls": True,
    "user": "me",
    "anonymous": False,
    "certificate_until": NOW + 90 * 86_400,
    "topics": True,
    "qos": True,
    "retained": True,
    "retained_wildcard": True,
    "retained_cleared": True,
    "retained_leaks": False,
    "will": True,
    "takeover": True,
    "stranger": False,
    "largest": LARGEST_NEEDED,
    "past_acl": False,
    "keepalive": True,
    "session": False,
    "answer": 0.001,
    "round_trip": 0.002,
    "round_trip_p95": 0.004,
}
LOCAL = {"address": "mqtt://127.0.0.1:1883", "host": "127.0.0.1", "tls": False, "user": "", "anonymous": True}


def found(**other: Any) -> list[tuple[str, bool]]:
    return [(each.code, each.needed) for each in judge(Observed(**(GOOD | other)), NOW)]


def test_a_good_broker_lacks_nothing_and_neither_does_an_open_one_on_this_machine() -> None:
    assert found() == []
    assert found(**LOCAL, certificate_until=None) == []


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"topics": False}, "broker_topics"),
        ({"qos": False}, "broker_no_qos"),
        ({"retained": False}, "broker_no_retain"),
        ({"retained_wildcard": False}, "broker_no_wildcard"),
        ({"retained_cleared": False}, "broker_no_clear"),
        ({"largest": 16384}, "broker_small_messages"),
        ({"largest": 0}, "broker_small_messages"),
        ({"will": False}, "broker_no_will"),
        ({"keepalive": False}, "broker_no_keepalive"),
        ({"takeover": False}, "broker_no_takeover"),
        ({"stranger": True}, "broker_stranger"),
        ({"unanswered": ("will",)}, "broker_unanswered"),
    ],
)
def test_what_is_needed(other: dict[str, Any], code: str) -> None:
    assert found(**other) == [(code, True)]


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"retained_leaks": True}, "broker_leaks"),
        ({"past_acl": True}, "broker_wide_filters"),
        ({"tls": False}, "broker_plaintext"),
        ({"user": ""}, "broker_anonymous"),
        ({"anonymous": True}, "broker_anonymous"),
        ({"certificate_until": NOW + 86_400}, "broker_certificate_ends"),
        ({"round_trip": 0.044}, "broker_delays"),
        ({"answer": 0.3, "round_trip": 0.31, "round_trip_p95": 0.8}, "broker_slow"),
    ],
)
def test_what_is_advised(other: dict[str, Any], code: str) -> None:
    assert found(**other) == [(code, False)]


def test_a_slow_way_alone_is_no_delay() -> None:
    assert found(answer=0.1, round_trip=0.11, round_trip_p95=0.2) == []


def test_with_no_way_in_there_is_one_finding() -> None:
    seen = Observed(address="mqtt://x:1", host="x", failure="broker_tls", failure_text="certificate has expired")
    (finding,) = judge(seen, NOW)
    assert (finding.code, finding.needed, finding.found) == ("broker_tls", True, "certificate has expired")


def test_what_is_needed_comes_first_and_each_has_its_cure() -> None:
    findings = judge(Observed(**(GOOD | {"tls": False, "will": False, "round_trip": 0.05, "qos": False})), NOW)
    assert [each.needed for each in findings] == [True, True, False, False]
    for each in findings:
        assert each.meaning == CODES[each.code].meaning
        assert each.cure == CODES[each.code].cure


def test_every_fact_is_told_and_what_was_not_tried_is_not() -> None:
    assert all(text for name, text in facts(Observed(**GOOD)))
    told = {
        name for name, text in facts(Observed(address="mqtt://x:1", host="x", failure="broker_unreachable")) if text
    }
    assert told == {"reached"}
