"""The newest point of a ledger that somebody has seen."""

from __future__ import annotations

import msgspec


class Head(msgspec.Struct, frozen=True):
    """The ledger's id, the sequence number of its last event (0: none yet), and the chain's hash there (hexadecimal).

    Whoever keeps a head is a witness: a ledger that is shorter, or has another hash there, has been tampered with.
    """

    ledger: str
    height: int
    hash: str
