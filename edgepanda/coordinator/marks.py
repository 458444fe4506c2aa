"""Marks on wall times that nobody had set when they were taken. Pure.

A board without a battery starts with some date or other, and the kernel knows it: such a time is shown to people with a
mark, and stands in the ledger with one, so that it is proved with the rest of the entry.
"""

from __future__ import annotations

from typing import Any

import msgspec

_UNTRUSTED = "untrusted_time"


def marked(data: dict[str, Any], *, trusted: bool) -> bytes:
    """The payload of an event."""
    return msgspec.json.encode(data if trusted else {**data, _UNTRUSTED: True})


def unmarked(payload: bytes | None) -> tuple[dict[str, Any] | None, bool | None]:
    """The data, and whether its time is marked; None of each where the payload was dropped."""
    if payload is None:
        return None, None
    data: dict[str, Any] = msgspec.json.decode(payload)
    return data, bool(data.pop(_UNTRUSTED, False))
