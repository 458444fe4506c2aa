"""Results that fit into a report. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from edgepanda.model.task import Finished

LARGEST_RESULT = 32 * 1024  # bytes of a result in a report; what is larger belongs into a file
LONGEST_TEXT = 500  # characters of a reason


def fitted(result: Finished) -> Finished:
    """The result, cut where it would not fit into a report: an end that cannot be told would be none."""
    size = len(msgspec.json.encode(result))
    if size <= LARGEST_RESULT:
        return result
    message = f"{result.message[:LONGEST_TEXT]} (cut from {size} bytes: larger results belong into files)".strip()
    result = msgspec.structs.replace(result, message=message, output=result.output[-10:], value=_cut(result.value))
    if len(msgspec.json.encode(result)) <= LARGEST_RESULT:
        return result
    return msgspec.structs.replace(
        result,
        narrative=result.narrative[: 4 * LONGEST_TEXT],
        evidence=tuple({"kind": str(e.get("kind", ""))[:50], **_cut(e)} for e in result.evidence[:8]),
        answers=tuple(msgspec.structs.replace(a, evidence=_cut(a.evidence, 200)) for a in result.answers[:32]),
        artifacts=result.artifacts[:20],
    )


def _cut(value: Any, most: int = 1000) -> Any:
    """The value if it is small, or a word about its size."""
    size = len(msgspec.json.encode(value))
    return value if size <= most else {"cut": True, "bytes": size}
