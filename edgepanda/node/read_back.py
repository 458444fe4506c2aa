"""What a device says of itself now, after work on it was cut short: all that can still be known of that work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.node.results import LONGEST_TEXT

if TYPE_CHECKING:
    from edgepanda.node.devices import Devices

WITHIN = 3.0  # seconds that a device has to answer
WHOLLY = 6.0  # seconds, with the start of its host, which may have died of the work
LARGEST = 2048  # bytes of an answer: it goes into a report, and a person reads it


async def read_back(devices: Devices, device: str, task: str, attempt: int) -> dict[str, Any]:
    """The answer of the device's own reading action (tier 0, without arguments) under `reads`, or under `unread` why
    there is none; empty if the device has no such action. Raises nothing of its own.
    """
    action = devices.reading_action(device)
    if action is None:
        return {}
    try:
        async with asyncio.timeout(WHOLLY):
            result = await devices.call(device, action, {}, task=task, attempt=attempt, timeout=WITHIN)
    except EdgePandaError as error:
        return {"unread": error.message[:LONGEST_TEXT]}
    except TimeoutError:
        return {"unread": f"no answer in {WHOLLY:g} s"}
    if result.outcome != "succeeded":
        return {"unread": (result.reason or result.narrative or result.outcome)[:LONGEST_TEXT]}
    if len(msgspec.json.encode(result.value)) > LARGEST:
        return {"unread": f"{device} {action} answers more than {LARGEST} bytes"}
    return {"reads": result.value}
