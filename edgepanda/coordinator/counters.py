"""Counters against replay: which numbers of a client's key have been used.

Every mutating request carries a counter of its client's key. The highest value and a window of the 1,024 values up to
it are kept for as long as the ledger lives, so a number counts once, ever; late ones within the window still do.
"""

from __future__ import annotations

from edgepanda.sqlite import Store
from edgepanda.wire.counter import WINDOW

_BYTES = WINDOW // 8


def window_to_bytes(window: int) -> bytes:
    """The stored form of a window: 128 bytes, big-endian."""
    return window.to_bytes(_BYTES, "big")


class Counters:
    """The counters of all keys as they are with every append that is under way; a failed one is taken back."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: dict[str, int] = {}
        self._failed: set[str] = set()
        rows = store.read("SELECT key, highest, window FROM counters")
        self._values = {key: (highest, int.from_bytes(window, "big")) for key, highest, window in rows}

    def get(self, key: str) -> tuple[int, int]:
        """The highest value and the window of a key; (0, 0) for one that was never seen."""
        return self._values.get(key, (0, 0))

    def begin(self, key: str, highest: int, window: int) -> None:
        """An append that stores this is on its way: what comes meanwhile is checked against it."""
        self._values[key] = (highest, window)
        self._pending[key] = self._pending.get(key, 0) + 1

    def end(self, key: str, *, failed: bool) -> None:
        """That append is over. After a failure the key is read again as soon as nothing of it is under way."""
        if failed:
            self._failed.add(key)
        self._pending[key] -= 1
        if self._pending[key]:
            return
        del self._pending[key]
        if key in self._failed:
            self._failed.discard(key)
            self._reload(key)

    def _reload(self, key: str) -> None:
        rows = self._store.read("SELECT highest, window FROM counters WHERE key = ?", (key,))
        if rows:
            self._values[key] = (rows[0][0], int.from_bytes(rows[0][1], "big"))
        else:
            self._values.pop(key, None)
