"""What EdgePanda needs of a broker, held against what was observed of one. Pure.

`edgepanda.wire.broker_check.observe` does the observing; `edgepanda broker check` shows the findings.
Each code is explained in `edgepanda.error_codes`, the line for the broker's own configuration with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from edgepanda.model.broker import is_loopback

LARGEST_NEEDED = 64 * 1024  # bytes of a payload (`wire.envelope.LARGEST`)
CERTIFICATE_WARNING = 21 * 86_400.0  # seconds before its end
DELAY = 0.025  # seconds more than a bare answer: half a delayed acknowledgement of Linux or Windows, at least
SLOW = 0.5  # seconds for a round trip


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of a broker. None: not tried, or it could not be known. Times in seconds."""

    address: str
    host: str
    tls: bool = False
    failure: str = ""  # `broker_unreachable`, `broker_tls`, `broker_refused`: then nothing else was tried
    failure_text: str = ""
    user: str = ""
    version: str = ""
    certificate_until: float | None = None  # Unix time
    anonymous: bool | None = None  # whoever names no user comes in too
    topics: bool | None = None  # what is said on EdgePanda's topics reaches who subscribes
    qos: bool | None = None  # QoS 1 is granted, acknowledged and delivered
    retained: bool | None = None  # kept for who subscribes later
    retained_wildcard: bool | None = None  # also for a filter with wildcards
    retained_cleared: bool | None = None  # an empty one removes it
    retained_leaks: bool | None = None  # a new client gets what it has not subscribed to
    will: bool | None = None  # sent when a client hangs up
    takeover: bool | None = None  # of two with one client id the newer is heard, the older is cut off
    stranger: bool | None = None  # a wrong password with another's client id disturbs that one
    largest: int | None = None  # bytes of the largest payload that came through, of those tried
    past_acl: bool | None = None  # a wide filter gives what the access list refuses
    keepalive: bool | None = None  # who is silent is cut off
    session: bool | None = None  # kept for an absent client; EdgePanda does without
    answer: float | None = None  # median of PINGREQ to PINGRESP
    round_trip: float | None = None  # median of publish to delivery and acknowledgement, QoS 1, on one connection
    round_trip_p95: float | None = None
    unanswered: tuple[str, ...] = ()  # what was not over in time


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is missing or wrong. `needed`: EdgePanda does not work well without it; else it is advice."""

    code: str
    needed: bool = True
    found: str = ""  # what was seen, where that says more than the code

    @property
    def meaning(self) -> str:
        """What is missing, and what that means for EdgePanda."""
        from edgepanda.error_codes import CODES

        return CODES[self.code].meaning

    @property
    def cure(self) -> str:
        """What to do."""
        from edgepanda.error_codes import CODES

        return CODES[self.code].cure


def judge(seen: Observed, now: float) -> list[Finding]:
    """All that is missing, what is needed first. `now`: Unix time."""
    findings = [*_connection(seen, now), *_messages(seen), *_clients(seen), *_speed(seen)]
    if seen.unanswered:
        findings.append(Finding(code="broker_unanswered", found=", ".join(seen.unanswered)))
    return sorted(findings, key=lambda finding: not finding.needed)


def _connection(seen: Observed, now: float) -> Iterator[Finding]:
    if seen.failure:
        yield Finding(code=seen.failure, found=seen.failure_text)
        return
    far = not is_loopback(seen.host)
    if seen.certificate_until is not None and seen.certificate_until - now < CERTIFICATE_WARNING:
        days = (seen.certificate_until - now) / 86_400
        yield Finding(code="broker_certificate_ends", needed=False, found=f"in {days:.0f} days")
    if far and not seen.tls:
        yield Finding(code="broker_plaintext", needed=False)
    if far and (not seen.user or seen.anonymous):
        yield Finding(code="broker_anonymous", needed=False)


def _messages(seen: Observed) -> Iterator[Finding]:
    if seen.topics is False:
        yield Finding(code="broker_topics")
    if seen.qos is False:
        yield Finding(code="broker_no_qos")
    if seen.retained is False:
        yield Finding(code="broker_no_retain")
    if seen.retained_wildcard is False:
        yield Finding(code="broker_no_wildcard")
    if seen.retained_cleared is False:
        yield Finding(code="broker_no_clear")
    if seen.largest is not None and seen.largest < LARGEST_NEEDED:
        found = f"{seen.largest} bytes came through, {LARGEST_NEEDED} did not" if seen.largest else ""
        yield Finding(code="broker_small_messages", found=found)
    if seen.retained_leaks:
        yield Finding(code="broker_leaks", needed=False)
    if seen.past_acl:
        yield Finding(code="broker_wide_filters", needed=False)


def _clients(seen: Observed) -> Iterator[Finding]:
    if seen.will is False:
        yield Finding(code="broker_no_will")
    if seen.keepalive is False:
        yield Finding(code="broker_no_keepalive")
    if seen.takeover is False:
        yield Finding(code="broker_no_takeover")
    if seen.stranger:
        yield Finding(code="broker_stranger")


def _speed(seen: Observed) -> Iterator[Finding]:
    if seen.round_trip is None or seen.answer is None:
        return
    told = f"{seen.round_trip * 1000:.1f} ms a round trip, {seen.answer * 1000:.1f} ms a bare answer"
    if seen.round_trip - 2 * seen.answer > DELAY:
        yield Finding(code="broker_delays", needed=False, found=told)
    elif (seen.round_trip_p95 or 0.0) > SLOW:
        yield Finding(code="broker_slow", needed=False, found=f"{told}, p95 {seen.round_trip_p95:.2f} s")
