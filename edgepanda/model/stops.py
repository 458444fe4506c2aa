"""Emergency stops: those in force, and the releases that end them. Pure.

A stop is in force until an operator releases it by its id. Released ids are remembered, so that an old stop which comes
again does nothing; a stop that nobody has an id for (a plain message) is a new one each time, unless the same stands.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MOST_STANDING = 32
"""Stops that are kept apart; what comes on top of that joins the newest, under a new id."""

MOST_PLAIN = 8
"""Of them, those of one door that nobody has an id for: a stranger who says a thousand things stands as these."""

MOST_RELEASED = 1_000
"""Released ids that are remembered."""

MOST_RELEASED_AT_ONCE = 128
"""Ids that one release may name: all that can stand at a node, by both their names, twice over."""

LONGEST_REASON = 200
"""Characters of a reason that are kept."""

Door = Literal["site", "socket", "request", "input", "file"]


class Stop(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One stop in force. `origin`: the id under which it was said; empty for a plain message. `at`: wall seconds."""

    id: str
    at: float
    door: Door
    by: str = ""
    reason: str = ""
    origin: str = ""


class Stops(msgspec.Struct, frozen=True, kw_only=True):
    """All that are in force, oldest first, and the newest released ids (own ones and origins), oldest first."""

    standing: tuple[Stop, ...] = ()
    released: tuple[str, ...] = ()

    @property
    def in_force(self) -> bool:
        """True while nothing may actuate."""
        return bool(self.standing)


def stopped(stops: Stops, new: Stop) -> Stops:
    """With one more stop in force; the same value if it was released before, stands already, or is plain where enough
    plain ones stand (whoever keeps this value sees to it that a release does not end what it had not seen).
    """
    if new.origin and (new.origin in stops.released or any(new.origin == each.origin for each in stops.standing)):
        return stops
    plain = [] if new.origin else [each for each in stops.standing if not each.origin and each.door == new.door]
    if len(plain) >= MOST_PLAIN or any(_same_plain(new, each) for each in plain):
        return stops
    standing = (*stops.standing, new)
    if len(standing) > MOST_STANDING:  # whoever saw the old ids and releases them does not release this one
        standing = (*standing[: MOST_STANDING - 1], new)
    return msgspec.structs.replace(stops, standing=standing)


def released(stops: Stops, ids: tuple[str, ...]) -> Stops:
    """Without the stops of these ids (own ones or origins), which are remembered. Unknown ids are remembered too: the
    stop that they name may still be on its way.
    """
    gone = [each for each in stops.standing if each.id in ids or each.origin in ids]
    named = [*ids, *(name for each in gone for name in (each.id, each.origin) if name)]
    new = [name for name in dict.fromkeys(named) if name not in stops.released]
    return Stops(
        standing=tuple(each for each in stops.standing if each not in gone),
        released=(*stops.released, *new)[-MOST_RELEASED:],
    )


def plain_reason(payload: bytes) -> str:
    """The reason in a message that nobody has signed: its text, or that it is none."""
    text = payload[: 4 * LONGEST_REASON].decode(errors="replace").strip()
    return "said in a form that cannot be read here" if text.startswith("{") else text[:LONGEST_REASON]


def _same_plain(one: Stop, other: Stop) -> bool:
    return (one.by, one.reason) == (other.by, other.reason)
