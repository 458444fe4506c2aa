"""Which exit code an outcome has; the table itself is in `table.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.wire.requests import TaskView

OK, FAILED, USAGE, UNREACHABLE, NEEDS_PERSON, INTERRUPTED = 0, 1, 2, 3, 4, 130

_UNREACHABLE = frozenset({"broker_unreachable", "broker_refused", "broker_tls", "no_answer", "node_away"})
_USAGE = frozenset(
    {
        "usage",
        "invalid_args",
        "limit",
        "ambiguous",
        "malformed",
        "oversized",
        "operator_key_missing",
        "site_key_missing",
        "device_exists",
        "pin_conflict",
    }
)
_USAGE_FAMILIES = ("config_", "invalid_", "unknown_")


def exit_code(error: EdgePandaError) -> int:
    """The exit code of an error."""
    code = error.code
    if code in _UNREACHABLE:
        return UNREACHABLE
    if code == "consent_required":
        return NEEDS_PERSON
    if code in _USAGE or (code.startswith(_USAGE_FAMILIES) and code != "invalid_state"):
        return USAGE
    return FAILED


def task_code(view: TaskView) -> int:
    """The exit code of a task as it stands."""
    if view.needs_person:
        return NEEDS_PERSON
    if not view.ended:
        return UNREACHABLE
    return OK if view.state == "succeeded" else FAILED
