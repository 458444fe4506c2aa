"""What a device says of itself now, after work on it was cut short: all that can still be known of that work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.node.results import LONGEST_TEXT

if TYPE_CHECKING:
    from edgepanda.node.devices import Devices
    from edgepanda.node.journal import AttemptRow

WITHIN = 3.0  # seconds that a device has to answer
LARGEST = 2048  # bytes of an answer: it goes into a report, and a person reads it


async def read_back(devices: Devices, row: AttemptRow) -> dict[str, Any]:
    """The answer of the device's own reading action (tier 0, without arguments) under `reads`, or under `unread` why
    there is none; empty if the device has no such action. Raises nothing of its own.
    """
    action = devices.reading_action(row.device or row.capability)
    if action is None or row.device is None:
        return {}
    try:
        result = await devices.call(row.device, action, {}, task=row.task, attempt=row.attempt, timeout=WITHIN)
    except EdgePandaError as error:
        return {"unread": error.message[:LONGEST_TEXT]}
    if result.outcome != "succeeded":
        return {"unread": (result.reason or result.narrative or result.outcome)[:LONGEST_TEXT]}
    if len(msgspec.json.encode(result.value)) > LARGEST:
        return {"unread": f"{row.device} {action} answers more than {LARGEST} bytes"}
    return {"reads": result.value}
