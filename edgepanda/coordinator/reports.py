"""What nodes say about their attempts, and what follows from it.

A report counts if its attempt is the task's fence and its number is new. An older number is a repetition: it is
acknowledged and nothing else. A retired fence is recorded and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from edgepanda.coordinator.book import Book, Live
from edgepanda.coordinator.deadlines import Now, begin, over_before_begin
from edgepanda.coordinator.leases import Leases, SendTo, retire
from edgepanda.coordinator.record import Record, begun
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import RETRY_BACKOFF
from edgepanda.model.ids import digest, is_task_id
from edgepanda.model.states import Happening, Kind, Standing, State, StateError
from edgepanda.model.task import TRANSIENT, backoff, judge
from edgepanda.wire import messages

log = logging.getLogger("edgepanda.coordinator")

FOR_GOOD = frozenset({"invalid_args", "limit", "unsupported"})  # such a refusal holds until the node's card changes
OUTPUT_LINES = 200  # of a running attempt that are kept in memory


class Reports:
    """Applies reports to the book."""

    def __init__(
        self,
        book: Book,
        leases: Leases,
        *,
        clock: Callable[[], Now],
        send: SendTo,
        acknowledge: Callable[[str, str], None],
        tell: Callable[[messages.Event], None] = lambda _event: None,
    ) -> None:
        """`acknowledge` takes the node's name and the id of the report that is now on disk; `tell` takes what watchers
        see and the ledger does not keep: progress and live output.
        """
        self._book, self._leases, self._clock, self._send = book, leases, clock, send
        self._acknowledge, self._tell = acknowledge, tell

    def take(self, report: messages.Report, node: str) -> None:
        """One report of a known node."""
        if isinstance(report, messages.Progress):
            self._progress(report)
            return
        live = self._book.find(report.task)
        if live is None:
            live = self._direct(report, node)  # from here on a task like any other, whose attempt 0 runs on that node
        if live is None or self._repeated(live, report, node):
            self._acknowledged(report, node)
            self._again(report, live, node)
            return
        before = live.record
        try:
            self._apply(report, live, node)
        except StateError as error:
            live.record = before
            self._stale(report, live, node, error)
        self._acknowledged(report, node)

    def _repeated(self, live: Live, report: messages.Report, node: str) -> bool:
        """Taken before. A `starting` may be overtaken by a later report, so for it the state decides."""
        standing = live.record.standing
        if isinstance(report, messages.Starting) and standing.fence == report.attempt:
            return standing.state is not State.LEASED
        return live.record.seen(node, report.attempt, report.seq)

    def output(self, output: messages.Output) -> None:
        """Lines of a running attempt."""
        live = self._book.live.get(output.task)
        if live is not None and live.record.standing.fence == output.attempt:
            live.output.extend(output.lines)
            del live.output[:-OUTPUT_LINES]
            self._passing("output", output, {"stream": output.stream, "lines": output.lines})

    def _passing(self, kind: str, said: messages.Output | messages.Progress, data: dict[str, Any]) -> None:
        now = self._clock()
        event = messages.Event(
            id=said.id, seq=0, at=now.wall, kind=kind, task=said.task, attempt=said.attempt, data=data
        )
        self._tell(event if now.synchronised else msgspec.structs.replace(event, untrusted=True))

    def _acknowledged(self, report: messages.Report, node: str) -> None:
        """When it is on disk. `starting` is answered by its permit or a cancel, and repeated until one arrives."""
        if isinstance(report, messages.Starting):
            return
        self._book.then(lambda: self._acknowledge(node, report.id))

    def _progress(self, report: messages.Progress) -> None:
        live = self._book.live.get(report.task)
        if live is not None and live.record.standing.fence == report.attempt:
            percent = f"{report.fraction:.0%} " if report.fraction is not None else ""
            live.progress = f"{percent}{report.text}".strip()
            self._passing("progress", report, {"fraction": report.fraction, "text": report.text})

    def _again(self, report: messages.Report, live: Live | None, node: str) -> None:
        """A repeated `starting` whose permit was lost on the way gets it once more."""
        if not isinstance(report, messages.Starting) or live is None:
            return
        standing = live.record.standing
        if standing.fence == report.attempt and standing.state is State.RUNNING:
            self._book.then(lambda: self._permit(live, report.attempt))
        elif standing.fence != report.attempt:
            self._book.then(lambda: self._send(node, retire(report.task, report.attempt), False))

    def _apply(self, report: messages.Report, live: Live, node: str) -> None:
        if live.record.node != node:
            raise StateError(f"{node} does not hold {report.task}", code="fence_retired", where=report.task)
        seqs = live.record.with_seq(node, report.attempt, report.seq)
        said_before = isinstance(report, messages.Started) and live.record.standing.state is State.RUNNING
        if isinstance(report, messages.Accepted) or said_before:  # a lease that came twice is answered twice
            self._check_fence(live, report)
            self._book.keep(live, msgspec.structs.replace(live.record, seqs=seqs))
        elif isinstance(report, messages.Declined):
            self._declined(report, live, node, seqs)
        elif isinstance(report, messages.Starting):
            self._starting(report, live, seqs)
        elif isinstance(report, messages.Started):
            self._change(live, Kind.STARTED, report, {}, seqs=seqs)
        elif isinstance(report, messages.Interrupted):
            self._interrupted(report, live, seqs)
        elif isinstance(report, messages.FinishedReport):
            self._finished(report, live, seqs)

    def _change(self, live: Live, kind: Kind, report: messages.Report, data: dict[str, Any], **fields: Any) -> None:
        self._book.change(live, Happening(kind=kind, attempt=report.attempt), data, **fields)

    def _check_fence(self, live: Live, report: messages.Report) -> None:
        if live.record.standing.fence != report.attempt:
            raise StateError(f"attempt {report.attempt} no longer counts", code="fence_retired", where=report.task)

    def _declined(self, report: messages.Declined, live: Live, node: str, seqs: dict[str, int]) -> None:
        excluded = dict(live.record.excluded)
        if report.code in FOR_GOOD:
            excluded[node] = self._leases.card_of(node)
        data = {"node": node, "code": report.code, "message": report.message}
        reason = f"{node} declined: {report.message or report.code}"
        fields = {"seqs": seqs, "excluded": excluded, "code": report.code}
        self._change(live, Kind.DECLINED, report, data, **fields)
        if live.record.standing.state is State.QUEUED and report.code == "superseded":
            self._leases.expire(live, "superseded", code="superseded")
        elif live.record.standing.state is State.QUEUED:
            self._book.keep(live, msgspec.structs.replace(live.record, reason=reason))
            self._leases.rest(live, node)

    def _starting(self, report: messages.Starting, live: Live, seqs: dict[str, int]) -> None:
        over = over_before_begin(live.record.deadlines, self._clock().boottime, queued=False)
        if over or live.record.standing.cancel:
            self._check_fence(live, report)
            kind = Kind.EXPIRED if over else Kind.LOST
            self._book.change(live, Happening(kind=kind), {"limit": over} if over else {}, seqs=seqs)
            self._book.then(lambda: self._send(str(live.record.node), retire(report.task, report.attempt), False))
            return
        self._change(live, Kind.PERMITTED, report, {}, seqs=seqs)
        self._book.then(lambda: self._permit(live, report.attempt))

    def _permit(self, live: Live, attempt: int) -> None:
        record = live.record
        if record.standing.fence == attempt and record.standing.state is State.RUNNING:
            head = self._book.ledger.head
            permit = messages.Permit(id=f"{record.id}.{attempt}.permit", task=record.id, attempt=attempt, head=head)
            self._send(str(record.node), permit, False)

    def _interrupted(self, report: messages.Interrupted, live: Live, seqs: dict[str, int]) -> None:
        self._check_fence(live, report)
        if live.record.standing.state is State.UNCERTAIN:  # its lease was over first; what the node knows is kept
            known = {"node": live.record.node, "began": report.began, "known": report.known, "state": "uncertain"}
            self._book.note(live, "interrupted", msgspec.structs.replace(live.record, seqs=seqs), known)
            return
        over = over_before_begin(live.record.deadlines, self._clock().boottime, queued=False)
        live.record = msgspec.structs.replace(live.record, seqs=seqs)
        began = report.began or report.attempt == 0  # a direct command does not go to the queue
        event = Happening(
            kind=Kind.INTERRUPTED,
            attempt=report.attempt,
            still_valid=not over,
            began=began,
            given_back=report.known.get("code") != "restarted",
        )
        node = str(live.record.node)
        self._leases.lost(live, over, event, {"began": report.began, "known": report.known})
        if live.record.standing.state is State.QUEUED:
            self._leases.rest(live, node)

    def _finished(self, report: messages.FinishedReport, live: Live, seqs: dict[str, int]) -> None:
        self._check_fence(live, report)
        standing = live.record.standing
        unheard = standing.state is State.LEASED and standing.replay == "safe"  # a short action reports its end alone
        implied = Happening(kind=Kind.STARTED, attempt=report.attempt) if unheard else None
        verdict = judge(live.record.task.criteria, report.result)
        now, pause = self._clock().boottime, self._pause(live)
        event = Happening(
            kind=Kind.FINISHED,
            attempt=report.attempt,
            outcome=verdict.outcome,
            unanswered=bool(verdict.unanswered),
            transient=verdict.code in TRANSIENT,
            still_valid=not over_before_begin(live.record.deadlines, now + pause, queued=False),
        )
        data = {
            "outcome": verdict.outcome,
            "code": verdict.code,
            "unanswered": verdict.unanswered,
            "result": msgspec.to_builtins(report.result),
        }
        code = verdict.code if verdict.outcome != "succeeded" else ""
        self._book.change(live, event, data, implied=implied, seqs=seqs, result=report.result, code=code)
        if live.record.standing.state is State.QUEUED:
            live.again_at = now + pause
            said = report.result.message or code
            reason = f"attempt {report.attempt} failed: {said} [{code}]; it is tried again after {pause:g} s"
            self._book.keep(live, msgspec.structs.replace(live.record, reason=reason, result=None))

    def _pause(self, live: Live) -> float:
        """Seconds until the task may begin again, if its attempt fails now."""
        record = live.record
        begins_now = record.standing.state is State.LEASED  # and its end is all that is heard of it
        return backoff(record.task.limits.retry_backoff or RETRY_BACKOFF, record.standing.runs + begins_now)

    def _stale(self, report: messages.Report, live: Live, node: str, error: EdgePandaError) -> None:
        """It comes too late, or from somebody who does not hold the task: recorded once, changes nothing."""
        said = type(report).__name__
        log.warning("a %s of %s about %s changes nothing: %s [%s]", said, node, report.task, error, error.code)
        after = msgspec.structs.replace(live.record, seqs=live.record.with_seq(node, report.attempt, report.seq))
        data = {"node": node, "attempt": report.attempt, "said": type(report).__struct_config__.tag, "code": error.code}
        self._book.note(live, "ignored", after, data)
        ends = isinstance(report, messages.FinishedReport | messages.Declined | messages.Interrupted)
        if error.code == "fence_retired" and not ends:
            self._book.then(lambda: self._send(node, retire(report.task, report.attempt), False))

    # direct commands: work that a node did on its own, told afterwards

    def _direct(self, report: messages.Report, node: str) -> Live | None:
        """The task of a direct command, merged by its id; None if this is no such report."""
        task = report.direct if isinstance(report, messages.FinishedReport | messages.Interrupted) else None
        if task is None or report.attempt != 0 or task.id != report.task or not is_task_id(task.id):
            log.warning("%s reports on %s, which nobody here knows", node, report.task)
            return None
        now = self._clock()
        task = msgspec.structs.replace(task, node=node)
        record = Record(
            task=task,
            standing=Standing(state=State.RUNNING, tier=task.tier, replay=task.replay, fence=0, runs=1, max_attempts=1),
            deadlines=begin(task.limits, now),
            digest=digest(task),
            order=self._leases.next_order(),
            **begun(now),
            node=node,
            reason="a direct command on its own node",
        )
        live = Live(record)
        self._book.note(live, "direct", record, {"node": node, "task": msgspec.to_builtins(task)})
        return live
