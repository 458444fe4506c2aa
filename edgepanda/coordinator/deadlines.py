"""A task's time limits on the coordinator's own clock, and how they outlive a restart. Pure."""

from __future__ import annotations

import msgspec

from edgepanda.model.task import Limits

SHORT = 3600.0  # seconds: a `valid_for` of less does not outlive a reboot of unknown length
ALONE = 3600.0  # seconds after which what remains of a limit is worth a write of its own
IN_COMPANY = 600.0  # seconds after which it goes along with a write that happens anyway


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """One moment: seconds since this boot, the boot's id, and wall seconds with whether they can be trusted."""

    boottime: float
    boot: str
    wall: float
    synchronised: bool = False


class Deadlines(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Moments in seconds of the boot's clock; None: no such limit."""

    begin_by: float | None = None
    deliver_by: float | None = None
    end_by: float | None = None
    asked: float | None = None  # when the command was given; None: before a reboot of unknown length
    set_at: Now  # as of when they were kept last: a power cut gives back no more than the time since then
    owed: float | None = None  # the wall second in which this boot had begun, had nothing been down; see `kept`


def begin(limits: Limits, now: Now) -> Deadlines:
    """Count from now."""

    def moment(limit: float | None) -> float | None:
        return None if limit is None else now.boottime + limit

    return Deadlines(
        begin_by=moment(limits.valid_for),
        deliver_by=moment(limits.deliver_within),
        end_by=moment(limits.deadline),
        asked=now.boottime,
        set_at=now,
    )


def carried(old: Deadlines, now: Now) -> Deadlines:
    """The same limits on this boot's clock.

    In the same boot nothing changes. After a reboot what remained when they were kept remains, less the time between by
    the wall clock, if that clock was synchronised at both ends and did not run backwards. If it was not, nobody knows
    how old the command is: a short `valid_for` counts as over, for what it guards are devices that would move. Of
    longer limits the time between is owed until the clock is synchronised, if it was so before.
    """
    if old.set_at.boot == now.boot:
        return old
    until = _accounted(old)
    owed = None if until is None else until - now.boottime
    moved = _shifted(old, now.boottime - old.set_at.boottime)
    begin_by = moved.begin_by
    if now.synchronised and owed is not None:
        return _paid(moved, owed, now)
    if begin_by is not None and begin_by - now.boottime < SHORT:
        begin_by = min(begin_by, now.boottime)
    return msgspec.structs.replace(moved, begin_by=begin_by, asked=None, set_at=now, owed=owed)


def kept(limits: Deadlines, now: Now, *, after: float) -> Deadlines:
    """The limits as they are worth keeping now; themselves, if they were kept within `after` seconds, or limit nothing.

    What the time without power owes is paid as soon as the clock is synchronised, so a board without a battery, whose
    clock is set seconds after its start, counts it too.
    """
    if limits.set_at.boot != now.boot or not limited(limits):
        return limits
    if limits.owed is not None and now.synchronised:
        return _paid(limits, limits.owed, now)
    if now.boottime - limits.set_at.boottime < after:
        return limits
    return msgspec.structs.replace(limits, set_at=now)


def limited(limits: Deadlines) -> bool:
    """True if there is any limit."""
    return any(moment is not None for moment in (limits.begin_by, limits.deliver_by, limits.end_by))


def _accounted(limits: Deadlines) -> float | None:
    """Up to which wall second all time was counted when they were kept; None if no clock could tell."""
    if limits.owed is not None:
        return limits.owed + limits.set_at.boottime
    return limits.set_at.wall if limits.set_at.synchronised else None


def _paid(limits: Deadlines, owed: float, now: Now) -> Deadlines:
    """With the time without power taken off."""
    down = max(0.0, now.wall - now.boottime - owed)
    return msgspec.structs.replace(_shifted(limits, -down), set_at=now, owed=None)


def _shifted(limits: Deadlines, seconds: float) -> Deadlines:
    def moved(moment: float | None) -> float | None:
        return None if moment is None else moment + seconds

    return msgspec.structs.replace(
        limits,
        begin_by=moved(limits.begin_by),
        deliver_by=moved(limits.deliver_by),
        end_by=moved(limits.end_by),
        asked=moved(limits.asked),
    )


def over_before_begin(limits: Deadlines, boottime: float, *, queued: bool) -> str:
    """Which limit forbids that the task still begins: `valid_for`, `deadline`, `deliver_within`, or an empty string."""
    if limits.begin_by is not None and boottime >= limits.begin_by:
        return "valid_for"
    if limits.end_by is not None and boottime >= limits.end_by:
        return "deadline"
    if queued and limits.deliver_by is not None and boottime >= limits.deliver_by:
        return "deliver_within"
    return ""
