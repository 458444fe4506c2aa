"""The hardware on the node's card: the last scan, and what was found before and is missing."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.documents import Documents
from edgepanda.errors import EdgePandaError
from edgepanda.model.hardware import Hardware, with_missing

log = logging.getLogger("edgepanda.node")

WITHIN = 20.0  # seconds for a scan; it takes hundredths, but a device may not answer at all


class Inventory:
    """`hardware.json`: what was found at this machine. Nothing here fails a start or ends a node: without the document
    nothing is remembered, and without a scan what is remembered is shown.
    """

    def __init__(
        self, path: Path, *, on_change: Callable[[], None], scan: Callable[[], Hardware] | None = None
    ) -> None:
        self._on_change, self._scan = on_change, scan or _scan
        self._scanning: asyncio.Future[Hardware] | None = None
        self._documents: Documents | None = None
        self._facts = Hardware()
        try:
            self._documents = Documents(path, exclusive=True)
            self._facts = _known(self._documents)
        except (EdgePandaError, msgspec.ValidationError) as error:
            log.error("the hardware that was found before is not remembered: %s", error)

    @property
    def hardware(self) -> dict[str, Any]:
        """For the card."""
        facts: dict[str, Any] = msgspec.to_builtins(self._facts)
        return facts

    async def rescan(self, *, forget: bool = False) -> None:
        """Scan, in a thread of its own; returns when that is done. A second call joins the first one's scan.

        `forget`: leave out what is missing. Raises `EdgePandaError` (`timeout`) when the scan does not end; then what
        is known stays.
        """
        if self._scanning is None or self._scanning.done():
            self._scanning = _in_thread(self._scan)
        try:
            now = await asyncio.wait_for(asyncio.shield(self._scanning), WITHIN)
        except TimeoutError as error:
            raise EdgePandaError(
                f"the scan of the hardware has not ended within {WITHIN:g} s",
                code="timeout",
                where="hardware",
                cure="unplug what was connected last, or restart the machine; what was known before stays on the card",
            ) from error
        self._take(now if forget else with_missing(now, self._facts))

    async def look(self) -> None:
        """The scan at the node's start: what goes wrong is logged."""
        try:
            await self.rescan()
        except EdgePandaError as error:
            log.error("%s [%s]", error, error.code)
        except Exception:
            log.exception("the hardware cannot be scanned")

    def close(self) -> None:
        """Give up the right to write."""
        if self._documents is not None:
            self._documents.close()
            self._documents = None

    def _take(self, facts: Hardware) -> None:
        if facts == self._facts:
            return
        self._facts = facts
        if self._documents is not None:
            try:
                self._documents.keep_single("hardware", {"facts": self.hardware})
            except EdgePandaError as error:
                log.error("the hardware that was found cannot be remembered: %s [%s]", error, error.code)
        self._on_change()


def _known(documents: Documents) -> Hardware:
    row = documents.single("hardware") or {}
    return msgspec.convert(row["facts"], Hardware) if "facts" in row else Hardware()


def _scan() -> Hardware:
    """The modules are loaded by the first scan: a node's start does not wait for them."""
    from edgepanda.node.scan import scan

    return scan()


def _in_thread(scan: Callable[[], Hardware]) -> asyncio.Future[Hardware]:
    """A thread that nobody waits for at the end: a device that does not answer can hold it for ever."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Hardware] = loop.create_future()

    def work() -> None:
        try:
            found, failed = scan(), None
        except Exception as error:
            found, failed = None, error
        try:
            loop.call_soon_threadsafe(settle, found, failed)
        except RuntimeError:
            log.debug("the node has ended before its scan")

    def settle(found: Hardware | None, failed: Exception | None) -> None:
        if future.cancelled():
            return
        if found is not None:
            future.set_result(found)
        else:
            future.set_exception(failed or RuntimeError("the scan found nothing"))

    threading.Thread(target=work, name="hardware scan", daemon=True).start()
    return future
