"""A task's time limits on the coordinator's own clock, and how they outlive a restart. Pure."""

from __future__ import annotations

import msgspec

from edgepanda.model.task import Limits

SHORT = 3600.0  # seconds: a `valid_for` of less does not outlive a reboot of unknown length


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
    set_at: Now


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

    In the same boot nothing changes. After a reboot what remained when they were set remains, less the time between by
    the wall clock, if that clock was synchronised at both ends and did not run backwards. If it was not, nobody knows
    how old the command is: a short `valid_for` counts as over, for what it guards are devices that would move.
    """
    if old.set_at.boot == now.boot:
        return old
    trusted = old.set_at.synchronised and now.synchronised
    passed = max(0.0, now.wall - old.set_at.wall) if trusted else 0.0
    shift = now.boottime - old.set_at.boottime - passed

    def moved(moment: float | None) -> float | None:
        return None if moment is None else moment + shift

    begin_by = moved(old.begin_by)
    if begin_by is not None and not trusted and begin_by - now.boottime < SHORT:
        begin_by = min(begin_by, now.boottime)
    return Deadlines(
        begin_by=begin_by,
        deliver_by=moved(old.deliver_by),
        end_by=moved(old.end_by),
        asked=moved(old.asked) if trusted else None,
        set_at=now,
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
