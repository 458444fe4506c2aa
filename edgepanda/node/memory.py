"""Where devices were last: positions that outlive a restart, and that are never believed after an interrupted move.

Before a device is commanded, its entry is marked as moving; 5 s after it came to rest the position is written. A mark
that is found at start means that nobody knows.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from tinydb.table import Document

from edgepanda.documents import Documents
from edgepanda.errors import EdgePandaError

log = logging.getLogger("edgepanda.node")

REST = 5.0  # seconds at rest before a position is written


class Memory:
    """`positions.json`: the last state values of each device whose driver wants them kept."""

    def __init__(self, path: Path) -> None:
        self._documents = Documents(path, exclusive=True)
        self._marked: set[str] = set()
        self._values: dict[str, dict[str, Any]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._written: dict[str, dict[str, Any]] = {}
        for row in self._documents.table("positions").all():
            if isinstance(row.get("values"), dict) and not row.get("moving"):
                self._written[str(row.get("device"))] = row["values"]

    def known(self, device: str) -> dict[str, Any] | None:
        """What was last written at rest, or None: not known."""
        row = self._row(device)
        if row is None or row.get("moving"):
            return None
        values = row.get("values")
        return values if isinstance(values, dict) else None

    def before_move(self, device: str) -> None:
        """Mark it as moving, durably, before it is commanded. Nothing is written if the mark stands."""
        self._cancel_timer(device)
        if device not in self._marked:
            self._write(device, {"moving": True})
            self._written.pop(device, None)
            self._marked.add(device)

    def state(self, device: str, values: dict[str, Any]) -> None:
        """Its driver says where it is. One that has moved by itself, to its safe state for example, is written anew."""
        self._values[device] = {**self._values.get(device, {}), **values}
        written = self._written.get(device)
        if device not in self._marked and written is not None and written != {**written, **values}:
            self.before_move(device)
            self.at_rest(device)

    def at_rest(self, device: str) -> None:
        """Nobody commands it any longer; write the position if that stays so."""
        self._cancel_timer(device)
        self._timers[device] = asyncio.get_running_loop().call_later(REST, self._settle, device)

    def forget(self, device: str) -> None:
        """It was taken out of the configuration: whatever gets its name next may stand anywhere."""
        self._cancel_timer(device)
        self._marked.discard(device)
        self._values.pop(device, None)
        self._written.pop(device, None)
        found = [row.doc_id for row in self._documents.table("positions").all() if row.get("device") == device]
        if found:
            try:
                self._documents.table("positions").remove(doc_ids=found)
            except EdgePandaError as error:
                log.error("the position of %s cannot be forgotten: %s [%s]", device, error, error.code)

    def close(self) -> None:
        """Write what is at rest, and give up the right to write."""
        for device in list(self._timers):
            self._settle(device)
        self._documents.close()

    def _settle(self, device: str) -> None:
        self._cancel_timer(device)
        if device in self._marked and device in self._values:
            self._written[device] = dict(self._values[device])
            self._write(device, {"values": self._written[device]})
            self._marked.discard(device)

    def _cancel_timer(self, device: str) -> None:
        timer = self._timers.pop(device, None)
        if timer is not None:
            timer.cancel()

    def _row(self, device: str) -> dict[str, Any] | None:
        for row in self._documents.table("positions").all():
            if row.get("device") == device:
                return dict(row)
        return None

    def _write(self, device: str, row: dict[str, Any]) -> None:
        table = self._documents.table("positions")
        found = [r.doc_id for r in table.all() if r.get("device") == device]
        doc_id = found[0] if found else 1 + max((r.doc_id for r in table.all()), default=0)
        try:
            table.upsert(Document({"device": device, "moving": False, "values": None, **row}, doc_id=doc_id))
        except EdgePandaError as error:
            # A position that cannot be kept is unknown after a restart: said, and no reason to refuse to move.
            log.error("the position of %s cannot be kept: %s [%s]", device, error, error.code)
