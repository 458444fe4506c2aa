"""What a list of tasks may be narrowed by beyond the ledger's indexes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

SCANNED = 2_000  # tasks that one page looks into at most, however many there are


class Narrow(msgspec.Struct, frozen=True, kw_only=True):
    """Only tasks with these; None and empty: any. `goal` is a part of the text, in any case of its ASCII letters."""

    device: str | None = None
    by: str | None = None
    goal: str = ""
    labels: Mapping[str, str] = {}

    @property
    def wanted(self) -> bool:
        """False if everything passes."""
        return self != Narrow()

    def condition(self) -> tuple[str, list[Any]]:
        """SQL over a task's `record`, and its values."""
        parts: list[str] = []
        values: list[Any] = []
        for name, value in (("device", self.device), ("by", self.by)):
            if value is not None:
                parts.append(f"json_extract(CAST(record AS TEXT), '$.task.{name}') = ?")
                values.append(value)
        if self.goal:
            parts.append("instr(lower(json_extract(CAST(record AS TEXT), '$.task.goal')), lower(?)) > 0")
            values.append(self.goal)
        for key, value in self.labels.items():
            parts.append(
                "EXISTS (SELECT 1 FROM json_each(CAST(record AS TEXT), '$.task.labels') AS label "
                "WHERE label.key = ? AND label.value = ?)"
            )
            values += [key, value]
        return " AND ".join(parts) or "1", values
