"""Topic filters of MQTT 3.1.1 as sets of topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def covers(allowed: str, wanted: str) -> bool:
    """True if every topic that `wanted` (a filter or a topic) stands for belongs to `allowed` too.

    So `b/+` covers `b/c` and `b/+`, but neither `b/#` nor `b/c/d`; `b/#` covers `b` (MQTT 3.1.1, 4.7.1.2). A wildcard
    in the first level does not reach topics that begin with `$` (4.7.2).
    """
    ours, theirs = allowed.split("/"), wanted.split("/")
    if theirs[0].startswith("$") and ours[0] in ("+", "#"):
        return False
    for index, level in enumerate(ours):
        if level == "#":
            return True
        if index == len(theirs) or theirs[index] == "#":
            return False
        if level not in ("+", theirs[index]):
            return False
    return len(ours) == len(theirs)


def permitted(allowed: Iterable[str], wanted: str) -> bool:
    """True if one of the allowed filters covers what is wanted."""
    return any(covers(each, wanted) for each in allowed)
