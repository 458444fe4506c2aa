"""What a check says: how bad it is, where, what was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from edgepanda.errors import EdgePandaError

Level = Literal["fault", "warning", "ok"]
LEVELS: tuple[Level, ...] = ("fault", "warning", "ok")
FINE = "ok"  # the code of what is in order


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. A fault keeps something from working; a warning may, or could not be found out."""

    level: Level
    code: str
    where: str
    found: str
    cure: str = ""
    area: str = ""


def ok(*, where: str, found: str) -> Finding:
    """All is well there."""
    return Finding(level="ok", code=FINE, where=where, found=found)


def warning(*, code: str, where: str, found: str, cure: str) -> Finding:
    """It works still, or nobody can tell."""
    return Finding(level="warning", code=code, where=where, found=found, cure=cure)


def fault(*, code: str, where: str, found: str, cure: str) -> Finding:
    """Something does not work."""
    return Finding(level="fault", code=code, where=where, found=found, cure=cure)


def of_error(error: EdgePandaError, level: Level = "fault", *, cure: str = "") -> Finding:
    """What an error says, as a finding; `cure` where more is known here than the error knew."""
    return Finding(level=level, code=error.code, where=error.where, found=error.message, cure=cure or error.cure)


def worst(findings: Iterable[Finding]) -> Level:
    """The worst level among them; `ok` for none."""
    return min((finding.level for finding in findings), key=LEVELS.index, default="ok")
