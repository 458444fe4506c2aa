"""Proving a ledger: the chain, the payloads that are still there, and the task table against both."""

# ruff: noqa: S608 - the queries are put together from fixed text; every value is bound

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec

from edgepanda.coordinator import chain
from edgepanda.coordinator.chain import MAX_PROBLEMS, Link, Problem
from edgepanda.model.head import Head
from edgepanda.model.states import Kind


class Verification(msgspec.Struct, frozen=True):
    """What a check of a whole ledger found; `problems` has at most the first 100 of each kind.

    `witnesses` is how many heads it was compared with. With none, a tail that was cut, or a chain that was rewritten to
    its end, cannot be found, and `note` says so.
    """

    ok: bool
    ledger: str
    height: int
    head: Head
    problems: list[Problem]
    witnesses: int
    payloads: int
    dropped: int
    tasks: int
    note: str


def verify_snapshot(connection: sqlite3.Connection, ledger: str, witnesses: Sequence[Head]) -> Verification:
    """Check everything that one unchanging view of the ledger shows; reads each row once and keeps none."""
    reader = _Reader(connection)
    report = chain.verify(reader.links(), ledger, witnesses)
    strays = _stray_payloads(connection)
    tasks, wrong_tasks = _check_tasks(connection)
    problems = [*report.problems, *reader.problems, *strays, *wrong_tasks, *_check_states(connection)]
    return Verification(
        ok=not problems,
        ledger=ledger,
        height=report.height,
        head=Head(ledger, report.height, report.hash),
        problems=problems,
        witnesses=len(witnesses),
        payloads=reader.payloads,
        dropped=reader.dropped,
        tasks=tasks,
        note="" if witnesses else "no witness: a tail that was cut off cannot be found without one",
    )


class _Reader:
    """Reads the chain once, for the walk, and checks the payloads on the way."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.payloads = 0
        self.dropped = 0
        self.problems: list[Problem] = []

    def links(self) -> Iterator[Link]:
        rows = self._connection.execute(
            "SELECT seq, at, kind, task, attempt, digest, hash, body FROM chain LEFT JOIN payloads USING (seq) "
            "ORDER BY seq"
        )
        for seq, at, kind, task, attempt, digest, value, body in rows:
            recorded = _hex(digest)
            self._check_payload(seq, recorded, body)
            yield Link(seq, at, kind, task, attempt, recorded, _hex(value))

    def _check_payload(self, seq: int, recorded: str, body: object) -> None:
        if body is None:
            self.dropped += 1
            return
        self.payloads += 1
        whole = isinstance(body, bytes) and chain.digest(body) == recorded
        if not whole and len(self.problems) < MAX_PROBLEMS:
            self.problems.append(
                Problem("payload_changed", seq, f"the payload of event {seq} is not what was recorded")
            )


def _hex(value: object) -> str:
    """Hexadecimal of a stored hash; whatever else somebody put there stays comparable, and unequal to any hash."""
    return value.hex() if isinstance(value, bytes) else f"not a hash: {value!r}"


def _stray_payloads(connection: sqlite3.Connection) -> list[Problem]:
    rows = connection.execute(
        "SELECT seq FROM payloads WHERE NOT EXISTS (SELECT 1 FROM chain WHERE chain.seq = payloads.seq) LIMIT ?",
        (MAX_PROBLEMS,),
    )
    return [Problem("payload_stray", seq, f"a payload belongs to event {seq}, which is not there") for (seq,) in rows]


def _check_tasks(connection: sqlite3.Connection) -> tuple[int, list[Problem]]:
    """How many tasks there are, and those whose first or last event is not in the chain or not theirs."""
    total = connection.execute("SELECT count(*) FROM tasks").fetchone()[0]
    rows = connection.execute(
        "SELECT tasks.id, tasks.seq FROM tasks LEFT JOIN chain AS last ON last.seq = tasks.seq "
        "LEFT JOIN chain AS first ON first.seq = tasks.born "
        "WHERE last.task IS NOT tasks.id OR first.task IS NOT tasks.id LIMIT ?",
        (MAX_PROBLEMS,),
    )
    return total, [Problem("task_without_event", seq, f"task {task} has no event in the chain") for task, seq in rows]


def _check_states(connection: sqlite3.Connection) -> list[Problem]:
    """Tasks whose state, in its column or in the record, is not the one that their newest change recorded; where its
    payload was dropped, nobody knows. One look into the index of events for each task, however many events there are.
    """
    changes = ", ".join(f"'{kind}'" for kind in Kind)
    newest = f"SELECT seq FROM chain WHERE chain.task = tasks.id AND kind IN ({changes}) ORDER BY seq DESC LIMIT 1"
    rows = connection.execute(
        f"WITH newest AS (SELECT id, state, CAST(record AS TEXT) AS record, ({newest}) AS seq FROM tasks), "
        "held AS (SELECT *, CASE WHEN json_valid(record) THEN json_extract(record, '$.standing.state') END AS kept, "
        "CASE WHEN json_valid(CAST(body AS TEXT)) THEN json_extract(CAST(body AS TEXT), '$.state') END AS said "
        "FROM newest LEFT JOIN payloads USING (seq)) "
        "SELECT id, seq, said, state, kept FROM held WHERE said <> state OR kept <> state LIMIT ?",
        (MAX_PROBLEMS,),
    )
    return [
        Problem(
            "task_state_changed",
            seq or 0,
            f"task {task}: its state is {state}, {kept or state} in its record, "
            f"and {said or 'not known'} by event {seq}",
        )
        for task, seq, said, state, kept in rows
    ]
