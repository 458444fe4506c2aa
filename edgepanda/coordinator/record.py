"""What the coordinator keeps of a task. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from edgepanda.coordinator.deadlines import Deadlines, Now
from edgepanda.coordinator.ledger_rows import TaskRow
from edgepanda.model.states import ENDED, NEEDS_PERSON, Standing
from edgepanda.model.task import Finished, Task
from edgepanda.wire.requests import TaskView

REMEMBERED = 32  # newest attempts of a task whose reports are told apart; what is older is acknowledged and no more


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current state of a task, as it stands in the ledger's table. Times are wall seconds, for people."""

    task: Task
    standing: Standing
    deadlines: Deadlines
    digest: str  # of what was submitted
    created: float
    updated: float
    order: int = 0  # rises with each submit
    node: str | None = None  # who holds or held the newest attempt
    excluded: dict[str, int] = {}  # nodes that cannot do it, with the revision of the card that they had then
    seqs: dict[str, int] = {}  # newest report of each `node.attempt`
    result: Finished | None = None
    code: str = ""
    reason: str = ""
    untrusted: tuple[str, ...] = ()  # which of `created` and `updated` come from a clock that nobody had set

    @property
    def id(self) -> str:
        """The task's."""
        return self.task.id

    @property
    def ended(self) -> bool:
        """True in a state with no way out."""
        return self.standing.state in ENDED

    def seen(self, node: str, attempt: int, seq: int) -> bool:
        """True if a report of this node and attempt with this or a higher number was taken before, or if the attempt is
        none that could still be of interest: long retired, or never granted.
        """
        newest = self.standing.attempt
        known = max(0, newest - REMEMBERED) <= attempt <= newest
        return not known or self.seqs.get(f"{node}.{attempt}", 0) >= seq

    def with_seq(self, node: str, attempt: int, seq: int) -> dict[str, int]:
        """`seqs` with this report in it. Kept by node, so that nobody can hide another node's reports."""
        key, oldest = f"{node}.{attempt}", self.standing.attempt - REMEMBERED
        kept = {k: v for k, v in self.seqs.items() if int(k.rpartition(".")[2]) >= oldest}
        return {**kept, key: max(seq, self.seqs.get(key, 0))}

    def row(self) -> TaskRow:
        """The form that the ledger keeps."""
        return TaskRow(
            id=self.id,
            state=str(self.standing.state),
            capability=self.task.capability,
            node=self.node,
            created=self.created,
            updated=self.updated,
            digest=self.digest,
            record=_encode(self),
        )

    def view(self, progress: str = "") -> TaskView:
        """The form that clients see."""
        task, standing = self.task, self.standing
        return TaskView(
            id=task.id,
            state=str(standing.state),
            capability=task.capability,
            created=self.created,
            updated=self.updated,
            device=task.device,
            node=self.node,
            args=task.args,
            goal=task.goal,
            constraints=task.constraints,
            criteria=task.criteria,
            labels=task.labels,
            limits=task.limits,
            priority=task.priority,
            tier=task.tier,
            replay=task.replay,
            attempt=standing.attempt,
            cancel=standing.cancel,
            by=task.by,
            door=task.door,
            reason=self.reason,
            code=self.code,
            result=self.result,
            progress=progress,
            ended=self.ended,
            needs_person=standing.state in NEEDS_PERSON,
            untrusted=self.untrusted,
        )


def begun(now: Now) -> dict[str, Any]:
    """The times of a new record, with their marks."""
    return {"created": now.wall, "updated": now.wall, "untrusted": () if now.synchronised else ("created", "updated")}


def updated(before: Record, now: Now) -> dict[str, Any]:
    """The time of a record that changes now, with its mark."""
    kept = tuple(name for name in before.untrusted if name == "created")
    return {"updated": now.wall, "untrusted": kept if now.synchronised else (*kept, "updated")}


def read(row: TaskRow) -> Record:
    """The record in a row of the ledger."""
    return _decode(row.record)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Record).decode
