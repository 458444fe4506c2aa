"""The ledger's hash chain: how one event is bound to all before it, and how a damaged chain is found out.

    hash(0) = SHA-256("edgepanda-ledger-v1\\0" + ledger id)
    hash(n) = SHA-256(JSON array [hash(n-1), n, at, kind, task, attempt, digest])

The array is compact UTF-8 JSON (no spaces, nothing escaped that need not be), which has one reading only; hashes and
digests are hexadecimal, `at` is wall time in whole milliseconds, a missing task or attempt is null. The time is part of
the link, and not only of the payload, so that it stays proved after the payload was dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from edgepanda.model.head import Head

MAX_PROBLEMS = 100

_encode = msgspec.json.Encoder().encode


class Link(msgspec.Struct, frozen=True):
    """One event as the chain has it; the payload lies elsewhere. `at` is wall time in milliseconds."""

    seq: int
    at: int
    kind: str
    task: str | None
    attempt: int | None
    digest: str
    hash: str


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a ledger, and at which sequence number."""

    code: str
    seq: int
    message: str


class ChainReport(msgspec.Struct, frozen=True):
    """What a walk over the whole chain found: the last link's number and hash, and the first `MAX_PROBLEMS` faults."""

    height: int
    hash: str
    problems: list[Problem]


def genesis(ledger: str) -> str:
    """The hash before the first event of the ledger with this id."""
    return hashlib.sha256(b"edgepanda-ledger-v1\0" + ledger.encode()).hexdigest()


def digest(payload: bytes) -> str:
    """The digest of a payload: SHA-256 in hexadecimal."""
    return hashlib.sha256(payload).hexdigest()


def link(previous: str, seq: int, at: int, kind: str, task: str | None, attempt: int | None, digest: str) -> str:
    """The hash of event `seq` after the hash `previous`; all in hexadecimal, `at` in milliseconds."""
    return hashlib.sha256(_encode((previous, seq, at, kind, task, attempt, digest))).hexdigest()


def verify(rows: Iterable[Link], ledger: str, witnesses: Sequence[Head] = ()) -> ChainReport:
    """Walk the links in stored order and compare them with what witnesses saw.

    Finds `chain_changed` (a link is not what its hash says), `chain_missing` (numbers left out), `chain_reordered`
    (numbers out of order or doubled), `chain_shortened` (a witness saw more), `chain_rewritten` (a witness saw another
    hash), `chain_foreign` (a witness saw another ledger). Each fault is reported where it is, once: the walk goes on
    from the hash that is stored.
    """
    walk = _Walk(ledger, witnesses)
    for row in rows:
        walk.step(row)
    walk.finish()
    return ChainReport(walk.height, walk.hash, walk.problems)


class _Walk:
    """Where a verification is."""

    def __init__(self, ledger: str, witnesses: Sequence[Head]) -> None:
        self.height = 0
        self.hash = genesis(ledger)
        self.problems: list[Problem] = []
        self._unseen: dict[int, set[str]] = {}
        for witness in witnesses:
            if witness.ledger != ledger:
                self._add("chain_foreign", witness.height, f"a witness saw the ledger {witness.ledger}, not {ledger}")
            else:
                self._unseen.setdefault(witness.height, set()).add(witness.hash)
        self._compare()

    def step(self, row: Link) -> None:
        self._check_number(row.seq)
        expected = link(self.hash, row.seq, row.at, row.kind, row.task, row.attempt, row.digest)
        if row.hash != expected and row.seq == self.height + 1:
            self._add("chain_changed", row.seq, f"event {row.seq} is not what was recorded")
        self.height = max(self.height, row.seq)
        self.hash = row.hash
        self._compare()

    def finish(self) -> None:
        for height in sorted(self._unseen):
            if height > self.height:
                self._add("chain_shortened", height, f"a witness saw {height} events, the ledger has {self.height}")
            else:
                self._add("chain_missing", height, f"a witness saw event {height}, which is not there")

    def _check_number(self, seq: int) -> None:
        expected = self.height + 1
        if seq > expected:
            names = f"event {expected} is" if seq == expected + 1 else f"events {expected} to {seq - 1} are"
            self._add("chain_missing", expected, f"{names} missing")
        elif seq < expected:
            self._add("chain_reordered", seq, f"event {seq} comes after event {self.height}")

    def _compare(self) -> None:
        hashes = self._unseen.pop(self.height, None)
        if hashes is not None and hashes != {self.hash}:
            self._add("chain_rewritten", self.height, f"a witness saw another hash at event {self.height}")

    def _add(self, code: str, seq: int, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(code, seq, message))
