"""The broker: whether it can be reached, how long a message takes, and whether it does what we need.

The trying out and the judging are those of `edgepanda broker check`, without what takes seconds.
"""

from __future__ import annotations

import msgspec

from edgepanda.doctor.finding import Finding, Level, ok
from edgepanda.model.broker import BrokerAddress
from edgepanda.model.broker_needs import Observed
from edgepanda.model.broker_needs import judge as needs

_UNTRIED = ("broker_unanswered",)


class BrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen. `embedded`: it is the one that this configuration's `edgepanda up` starts."""

    seen: Observed
    now: float  # Unix time
    embedded: bool = False


async def read(address: BrokerAddress, *, base: str, embedded: bool, within: float, now: float) -> BrokerFacts:
    """Tries it out below topics of its own; leaves nothing behind, takes `within` seconds at most, and never raises."""
    from edgepanda.wire.broker_check import observe

    seen = await observe(address, base=base, within=within, quick=True)
    return BrokerFacts(seen=seen, now=now, embedded=embedded)


def judge(facts: BrokerFacts) -> list[Finding]:
    """What is needed and missing is a fault; advice, and what was not answered in time, is a warning."""
    found = []
    for each in needs(facts.seen, facts.now):
        level: Level = "fault" if each.needed and each.code not in _UNTRIED else "warning"
        told = each.found or each.meaning.rstrip(".")
        cure = each.cure
        if facts.embedded and each.code == "broker_unreachable":
            cure = "`edgepanda up` starts it, with all that this configuration enables"
        found.append(Finding(level=level, code=each.code, where=facts.seen.address, found=told, cure=cure))
    return found or [ok(where=facts.seen.address, found=_fine(facts.seen))]


def _fine(seen: Observed) -> str:
    quick = "" if seen.round_trip is None else f"{seen.round_trip * 1000:.1f} ms there and back; "
    return f"{quick}retained messages, wills and {(seen.largest or 0) // 1024} KiB pass"
