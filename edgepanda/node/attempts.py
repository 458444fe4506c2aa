"""All attempts of a node, each from its lease to its last report.

`safe` actions act at once; an `unsafe` one is journaled, asks for its permit, and notes that it passed it before it
acts. So after a crash the journal tells what never began and what was cut short.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from edgepanda.drivers.contract import CallResult
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Action
from edgepanda.model.consent import consent_required
from edgepanda.model.ids import new_id
from edgepanda.model.task import Answer, Finished, Outcome, Task
from edgepanda.node.arbiter import Arbiter, superseded
from edgepanda.node.attempt import LONGEST_LINE, Attempt, Key, NeverBegan, Why, is_unknown, new_row, stopped
from edgepanda.node.devices import Devices
from edgepanda.node.journal import AttemptRow, Journal
from edgepanda.node.logs import ABOUT
from edgepanda.node.memory import Memory
from edgepanda.node.read_back import read_back
from edgepanda.node.reporter import Reporter
from edgepanda.node.results import LONGEST_TEXT, fitted
from edgepanda.wire import messages
from edgepanda.wire.clock import boottime
from edgepanda.wire.messages import Held

log = logging.getLogger("edgepanda.node")

SHOW_AFTER = 0.02  # seconds that a safe attempt may take before its start is reported apart from its end
PERMIT_WITHIN = 60.0  # seconds that an attempt waits for its permit before it gives the lease back
MOST_KNOWN = 10_000  # attempts that are remembered against repeated leases
JOINED_FOR = 30.0  # seconds that a joined attempt goes on without a word of the coordinator
KEEP_WITHIN = 5.0  # seconds within which a direct command is kept as its device's newest
HEAR_EVERY, HEAR_TIMES = 0.1, 100  # a cancel is repeated until the driver has the call that it is meant for


class Attempts:
    """All attempts of this node: leased ones, and direct commands (number 0)."""

    def __init__(
        self,
        *,
        devices: Devices,
        arbiter: Arbiter,
        memory: Memory,
        journal: Journal,
        reporter: Reporter,
        work_dir: Path,
    ) -> None:
        self._devices, self._arbiter, self._memory = devices, arbiter, memory
        self._journal, self._reporter, self._work_dir = journal, reporter, work_dir
        self._first_seq = journal.incarnation << 20  # reports of a later start count higher
        self._known: OrderedDict[Key, None] = OrderedDict()  # ended ones
        self._cancels: set[asyncio.Task[None]] = set()
        self._looking: dict[Key, asyncio.Task[None]] = {}  # at devices whose work a restart cut short
        self.running: dict[Key, Attempt] = {}
        self._ending = False
        self._keeping: asyncio.TimerHandle | None = None
        self.on_begin: Callable[[Attempt], None] = lambda _attempt: None  # one that acts
        self.no_disk: EdgePandaError | None = None  # why nothing is kept over a restart of the machine
        self.may_actuate: Callable[[], bool] = lambda: True  # False while an emergency stop is in force

    # questions

    def held(self) -> tuple[Held, ...]:
        """What the claim lists: leased attempts that run or wait, and ended ones whose end is not acknowledged."""
        running = [Held(a.task.id, a.number, a.began) for a in self.running.values() if a.number > 0]
        ended = [Held(task, number, True) for task, number in self._reporter.unacknowledged if number > 0]
        looking = [Held(task, number, True) for task, number in self._looking if number > 0]
        return (*running, *looking, *ended)

    def in_use(self) -> set[str]:
        """The names of the work folders that are needed: what runs, and what the coordinator has not acknowledged."""
        open_ones = (row.key for row in self._journal.open_attempts())
        keys = {*self.running, *self._reporter.unacknowledged, *open_ones}
        return {self._work_name(*key) for key in keys}

    # leases

    def accept(self, lease: messages.Lease, *, slots: int, draining: bool) -> None:
        """Take a lease, or say why not. One that comes again is answered as before."""
        key = (lease.task.id, lease.attempt)
        if key in self.running:
            self._tell_start(self.running[key])
            return
        if key in self._known or self._journal.attempt(*key) is not None:
            return  # its last word is on its way until it is acknowledged
        if lease.until_ms <= boottime() * 1000:
            return  # it is over for the coordinator too: nobody waits for an answer
        try:
            if draining:
                raise EdgePandaError("this node is ending", code="draining", where=lease.task.id)
            self._reporter.check_room()
            if len(self.running) >= slots:
                raise EdgePandaError(f"all {slots} slots are taken", code="busy", where="node.slots")
            attempt = self._prepared(lease)
        except EdgePandaError as error:
            self._decline(lease.task.id, lease.attempt, self._first_seq + 1, error)
            return
        self.start(attempt)

    def _known_result(self, lease: messages.Lease) -> Finished | None:
        """The result of a direct command of this task, which the site may not know of.

        Raises `EdgePandaError` that declines the lease: `busy` while the command runs, `unsupported` where nobody knows
        what it did; unless the site does know, and a person wants the command itself tried again.
        """
        task = lease.task
        if (task.id, 0) in self.running:
            raise EdgePandaError("a direct command of this id runs", code="busy", where=task.id)
        row = self._journal.attempt(task.id, 0)
        result = row.result if row is not None else self._reporter.unwritten(task.id, 0)
        if result not in (None, b"null"):
            return msgspec.json.decode(result, type=Finished)
        if row is None or msgspec.json.decode(row.lease, type=Task) == task:
            return None
        raise EdgePandaError(
            "a direct command of this id was cut short",
            code="unsupported",
            where=task.id,
            cure="look what became of the device, then submit it under another id",
        )

    def _prepared(self, lease: messages.Lease) -> Attempt:
        """The attempt that a lease asks for. Raises `EdgePandaError` with the code that declines it."""
        task, now = lease.task, int(boottime() * 1000)
        if lease.begin_by_ms is not None and lease.begin_by_ms <= now:
            raise EdgePandaError("it may no longer begin", code="expired", where=task.id)
        if self._journal.is_buried(task.id, lease.attempt):
            raise EdgePandaError("it was cancelled before its lease came", code="cancelled", where=task.id)
        known = self._known_result(lease)
        device = task.device or task.capability
        action = task.capability.rpartition(".")[2] if task.device else "run"
        spec = self._devices.action(device, action)
        self._check_allowed(spec, task, device)
        if task.replay == "safe" and spec.replay == "unsafe":
            raise EdgePandaError(
                "doing it again is not safe by this node's card",
                code="unsupported",
                where=task.capability,
                cure="the card has changed; submit it again",
            )
        attempt = Attempt(task, lease.attempt, device=device, action=action, spec=spec, seq=self._first_seq)
        attempt.until_ms, attempt.begin_by_ms, attempt.end_by_ms = lease.until_ms, lease.begin_by_ms, lease.end_by_ms
        attempt.result = known
        lane = self._arbiter.lane(device)
        if known is None and spec.on_busy == "preempt" and spec.tier > 0:
            if lease.order < lease.newest or lane.is_old(lease.order, lease.submitted_ms):
                raise superseded(device)
            lane.note_leased(lease.order)
            self._journal.note_newest(device, lane.newest)
        return attempt

    def _check_allowed(self, spec: Action, task: Task, device: str) -> None:
        """Whether it may be done now. Raises `EdgePandaError`: `stopped` where an emergency stop forbids it, the
        disk's own where nobody would know after a power cut that it began, `consent_required`.
        """
        if spec.tier > 0 and not self.may_actuate():
            raise EdgePandaError(
                "an emergency stop is in force",
                code="stopped",
                where=device,
                cure="`edgepanda status` shows who stopped and why; `edgepanda release` ends it",
            )
        if "unsafe" in (spec.replay, task.replay) and self.no_disk is not None:
            raise EdgePandaError(
                "it must not be done twice, and there is no disk to keep that it began",
                code=self.no_disk.code,
                where=device,
                cure=self.no_disk.cure,
            )
        if spec.tier >= 2:
            raise consent_required(task.capability)

    def halt(self, why: Why = "stopped", device: str | None = None) -> None:
        """Whatever acts, or waits to act, ends: at a device, or everywhere."""
        for attempt in list(self.running.values()):
            if attempt.spec.tier > 0 and device in (None, attempt.device):
                self.stop(attempt, why)

    def _decline(self, task: str, attempt: int, seq: int, error: EdgePandaError) -> None:
        code = "unsupported" if error.code in ("unknown_device", "consent_required") else error.code
        log.info("declined %s.%d: %s [%s]", task, attempt, error, error.code)
        self._remember((task, attempt))
        message = error.message[:LONGEST_TEXT]
        self._reporter.say(
            messages.Declined(id=new_id(), task=task, attempt=attempt, seq=seq, code=code, message=message)
        )

    def renew(self, renewed: messages.Renewed) -> None:
        """Leases last longer."""
        for task, number in renewed.attempts:
            attempt = self.running.get((task, number))
            if attempt is not None and attempt.until_ms is not None:
                attempt.until_ms = max(attempt.until_ms, renewed.until_ms)

    def permit(self, permit: messages.Permit) -> None:
        """An `unsafe` attempt may begin. A permit that nobody waits for changes nothing."""
        attempt = self.running.get((permit.task, permit.attempt))
        if attempt is not None and not attempt.permit.done():
            attempt.permit.set_result(None)

    def cancel(self, cancel: messages.Cancel) -> None:
        """End an attempt, now or, if its lease has not come yet, when it comes."""
        key = (cancel.task, cancel.attempt)
        attempt = self.running.get(key)
        if attempt is not None:
            self.stop(attempt, "fence_retired" if cancel.reason == "fence_retired" else "cancelled")
        elif key not in self._known and self._journal.attempt(*key) is None:
            self._reporter.keep(self._journal.bury(*key))

    # running

    def start(self, attempt: Attempt) -> asyncio.Task[Finished]:
        """Let it run; the result is also reported."""
        self.running[attempt.key] = attempt
        attempt.runner = asyncio.create_task(self._run(attempt), name=f"attempt {attempt.task.id}.{attempt.number}")
        return attempt.runner

    def stop(self, attempt: Attempt, why: Why) -> None:
        """Ask it to end; its report says how it did."""
        if attempt.why:
            return
        attempt.why = why
        if attempt.began:
            task = asyncio.create_task(self._end_call(attempt), name=f"cancel {attempt.task.id}.{attempt.number}")
            self._cancels.add(task)
            task.add_done_callback(self._cancels.discard)
        elif attempt.runner is not None and attempt.entered:  # cancelled before its first step it would say nothing
            attempt.runner.cancel()

    async def _end_call(self, attempt: Attempt) -> None:
        """The call may not have been sent yet, while its host starts again: said until it is heard."""
        try:
            for _ in range(HEAR_TIMES):
                if attempt.key not in self.running or await self._devices.cancel(attempt.device, *attempt.key):
                    return
                await asyncio.sleep(HEAR_EVERY)
        except Exception:
            log.exception("%s.%d could not be stopped", *attempt.key)

    def tick(self) -> None:
        """End attempts whose lease is over: a `safe` one may already run elsewhere; an `unsafe` one finishes."""
        now = boottime() * 1000
        for attempt in list(self.running.values()):
            over = attempt.until_ms is not None and now >= attempt.until_ms
            if over and (attempt.task.replay == "safe" or not attempt.began):
                log.warning("the lease of %s.%d is over", *attempt.key)
                self.stop(attempt, "lease_over")

    async def _run(self, attempt: Attempt) -> Finished:
        lane = self._arbiter.lane(attempt.device)
        turn = None
        telling = asyncio.get_running_loop().call_later(SHOW_AFTER, self._show_start, attempt)
        attempt.entered = True
        ABOUT.set((attempt.task.id, attempt.number, attempt.device))  # for what is logged; this coroutine is a task
        try:
            if not attempt.began:
                _check_time(attempt)
            if attempt.result is not None:
                return await self._tell_again(attempt, attempt.result)
            joined = attempt.began
            on_busy = "queue" if joined else attempt.spec.on_busy
            turn = await lane.take(on_busy, lambda: self.stop(attempt, "superseded"))
            if not joined:
                self._devices.breakers.check(attempt.device)
                await self._may_begin(attempt)
            telling.cancel()
            telling = asyncio.get_running_loop().call_later(SHOW_AFTER, self._show_start, attempt)
            return self._finish(attempt, await self._act(attempt))
        except NeverBegan as error:
            return self._not_begun(attempt, EdgePandaError(str(error), code=error.code, where=attempt.device))
        except asyncio.CancelledError:
            if attempt.began:
                raise  # this process ends; its journal says what was open
            return self._not_begun(attempt, stopped(attempt))
        except EdgePandaError as error:
            return await self._failed(attempt, error) if attempt.began else self._not_begun(attempt, error)
        except Exception as error:
            log.exception("attempt %s.%d failed inside the node", *attempt.key)
            failure = EdgePandaError(
                f"the node failed: {error}",
                code="internal",
                where=attempt.device,
                cure="the node's log has the details; report them",
                details={"unreadable": True},
            )
            return await self._failed(attempt, failure) if attempt.began else self._not_begun(attempt, failure)
        finally:
            telling.cancel()
            if turn is not None:
                lane.give_back(turn)
            self.running.pop(attempt.key, None)
            self._remember(attempt.key)

    def _show_start(self, attempt: Attempt) -> None:
        if attempt.began:  # what ends in a moment has a line for its end alone: a line costs as much as a message
            log.info("%s.%d is under way: %s on %s", *attempt.key, attempt.task.capability, attempt.device)
        self._tell_start(attempt)

    def _tell_start(self, attempt: Attempt) -> None:
        """It takes longer than a moment: say where it stands. What has asked for its permit has said so."""
        if attempt.number == 0 or attempt.asked:
            return
        fields: dict[str, Any] = {"id": new_id(), "task": attempt.task.id, "attempt": attempt.number}
        if attempt.began and attempt.task.replay == "safe":
            self._reporter.say(messages.Started(seq=attempt.next_seq(), **fields))
        elif not attempt.began:
            self._reporter.say(messages.Accepted(seq=attempt.next_seq(), **fields))

    async def _may_begin(self, attempt: Attempt) -> None:
        """Everything that must hold before it acts. Raises `NeverBegan`."""
        keeps = attempt.task.replay == "unsafe" or self._devices.attaches(attempt.device)
        if keeps:
            state: Literal["starting", "began"] = "starting" if attempt.task.replay == "unsafe" else "began"
            row = new_row(attempt.task, attempt.number, attempt.device, attempt.action, state, str(self._work(attempt)))
            attempt.journaled = True  # also if we are stopped meanwhile: the write goes on
            try:
                await self._reporter.keep(self._journal.record(row))
            except EdgePandaError:
                attempt.journaled = False
                raise
        if attempt.task.replay == "unsafe" and attempt.number > 0:
            await self._get_permit(attempt)
        _check_time(attempt)
        if attempt.task.replay == "unsafe":
            await self._reporter.keep(self._journal.advance(attempt.task.id, attempt.number, "began"))
            _check_time(attempt)  # that may have taken long
        attempt.began = True
        if attempt.spec.tier > 0:
            self.on_begin(attempt)

    async def _tell_again(self, attempt: Attempt, result: Finished) -> Finished:
        """What a direct command of this task has done is not done again; an `unsafe` one needs its permit to count."""
        if attempt.task.replay == "unsafe":
            await self._get_permit(attempt)
        attempt.began = True
        return self._report(attempt, result)

    async def _get_permit(self, attempt: Attempt) -> None:
        attempt.asked = True
        starting = messages.Starting(id=new_id(), task=attempt.task.id, attempt=attempt.number, seq=attempt.next_seq())
        self._reporter.say(starting)
        try:
            async with asyncio.timeout(PERMIT_WITHIN):
                await attempt.permit
        except TimeoutError:
            raise NeverBegan("no permit came", "no_permit") from None
        finally:
            self._reporter.acknowledged((starting.id,))

    async def _act(self, attempt: Attempt) -> CallResult:
        task = attempt.task
        if self._devices.remembers(attempt.device) and attempt.spec.tier > 0:
            self._memory.before_move(attempt.device)
        work = self._work(attempt)
        if self._devices.attaches(attempt.device):
            work.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            result = await self._devices.call(
                attempt.device,
                attempt.action,
                task.args,
                task=task.id,
                attempt=attempt.number,
                work=work,
                timeout=self._timeout(attempt),
                criteria=task.criteria,
                goal=task.goal,
                constraints=task.constraints,
                on_progress=lambda fraction, text: self._progress(attempt, fraction, text),
            )
        except EdgePandaError as error:
            hasty = error.code == "timeout" and self._timeout(attempt) < attempt.spec.timeout  # whoever asked was
            if not attempt.why and not hasty:
                self._devices.breakers.failed(attempt.device, error)
            raise
        else:
            self._devices.breakers.succeeded(attempt.device)
            return result
        finally:
            if self._devices.remembers(attempt.device):
                self._memory.at_rest(attempt.device)

    def _timeout(self, attempt: Attempt) -> float:
        timeout = attempt.task.limits.timeout or attempt.spec.timeout
        if attempt.end_by_ms is not None:
            timeout = min(timeout, max(0.0, attempt.end_by_ms / 1000 - boottime()))
        return timeout

    def _work(self, attempt: Attempt) -> Path:
        return self._work_dir / self._work_name(*attempt.key)

    @staticmethod
    def _work_name(task: str, attempt: int) -> str:
        return f"{task}.{attempt}"

    def _progress(self, attempt: Attempt, fraction: float | None, text: str) -> None:
        if attempt.number > 0:
            self._reporter.hint(
                messages.Progress(
                    id=new_id(),
                    task=attempt.task.id,
                    attempt=attempt.number,
                    seq=0,
                    fraction=fraction,
                    text=text[:LONGEST_LINE],
                )
            )

    # ends

    def _finish(self, attempt: Attempt, result: CallResult) -> Finished:
        finished = Finished(
            outcome=result.outcome,
            code="" if result.outcome == "succeeded" else result.reason or "failed",
            value=result.value,
            evidence=result.evidence,
            answers=tuple(Answer(criterion=a.criterion, met=a.met, evidence=a.evidence) for a in result.answers),
            artifacts=result.artifacts,
            narrative=result.narrative,
            output=(*attempt.head, *attempt.tail),
        )
        return self._report(attempt, finished)

    async def _failed(self, attempt: Attempt, error: EdgePandaError) -> Finished:
        """It began, and ended with an error."""
        left = is_unknown(error) and self._ending and self._devices.attaches(attempt.device)
        if error.details.get("reason") == "exit" or left:
            return Finished(
                outcome="failed", code="draining", message="it goes on without this node, which joins it later"
            )
        unread = bool(error.details.get("unreadable")) and attempt.task.replay == "unsafe"
        if attempt.why in ("lease_over", "fence_retired", "draining") or is_unknown(error) or unread:
            asks = is_unknown(error) and attempt.task.replay == "unsafe" and not attempt.why and not self._ending
            known = await read_back(self._devices, attempt.device, *attempt.key) if asks else {}
            return self._interrupted(attempt, error, known)
        outcome: Outcome = {"timeout": "timed_out", "cancelled": "cancelled"}.get(error.code, "failed")  # type: ignore[assignment]
        code, message = error.code, str(error)
        if attempt.why == "superseded":
            outcome, code, message = "failed", "superseded", str(superseded(attempt.device))
        if attempt.why in ("stopped", "link_loss"):
            what = "an emergency stop" if attempt.why == "stopped" else "the loss of its commander (link_loss)"
            outcome, code, message = "failed", attempt.why, f"ended by {what}"
        details = dict(error.details)
        evidence = tuple(details.pop("evidence", ()))
        finished = Finished(
            outcome=outcome,
            code=code,
            message=message,
            evidence=evidence,
            value=details or None,
            output=(*attempt.head, *attempt.tail),
        )
        return self._report(attempt, finished)

    def _not_begun(self, attempt: Attempt, error: EdgePandaError) -> Finished:
        """It never acted: a lease goes back; a direct command has failed."""
        outcome: Outcome = "cancelled" if error.code == "cancelled" else "failed"
        finished = Finished(outcome=outcome, code=error.code, message=str(error)[:LONGEST_TEXT])
        if attempt.why == "fence_retired" and not attempt.journaled:
            return finished  # nobody waits for it
        if attempt.number == 0 or (error.code in ("superseded", "cancelled") and attempt.task.replay == "safe"):
            return self._report(attempt, finished)
        if attempt.journaled:
            self._interrupt_report(attempt, began=False, known={"code": error.code})
        else:
            self._decline(attempt.task.id, attempt.number, attempt.next_seq(), error)
        return finished

    def _interrupted(self, attempt: Attempt, error: EdgePandaError, read: dict[str, Any]) -> Finished:
        """Nobody knows how far it came."""
        known = {"code": error.code, "message": error.message[:LONGEST_TEXT], **read}
        self._interrupt_report(attempt, began=True, known=known)
        return Finished(outcome="failed", code="interrupted", message=error.message)

    def _interrupt_report(self, attempt: Attempt, *, began: bool, known: dict[str, Any]) -> None:
        report = messages.Interrupted(
            id=new_id(),
            task=attempt.task.id,
            attempt=attempt.number,
            seq=attempt.next_seq(),
            began=began,
            known=known,
            direct=attempt.task if attempt.number == 0 else None,
        )
        log.info("%s.%d was cut short: %s", *attempt.key, known.get("code", "by a restart"))
        self._reporter.end(report, self._endednew_row(attempt), journaled=attempt.journaled)

    def _report(self, attempt: Attempt, finished: Finished) -> Finished:
        finished = fitted(finished)
        report = messages.FinishedReport(
            id=new_id(),
            task=attempt.task.id,
            attempt=attempt.number,
            seq=attempt.next_seq(),
            result=finished,
            direct=attempt.task if attempt.number == 0 else None,
        )
        log.info("%s.%d ends: %s", *attempt.key, " ".join(filter(None, (finished.outcome, finished.code))))
        self._reporter.end(report, self._endednew_row(attempt), journaled=attempt.journaled)
        return finished

    def _endednew_row(self, attempt: Attempt) -> AttemptRow:
        return new_row(attempt.task, attempt.number, attempt.device, attempt.action, "began")

    def _remember(self, key: Key) -> None:
        self._known[key] = None
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    # direct commands

    async def direct(self, task: Task, action: str) -> Finished:
        """Run a direct command: attempt 0 of a task made on the spot, told to the coordinator afterwards."""
        device = task.device or task.capability
        known = self._done_before(task.id)
        if known is not None:
            return await known
        self._reporter.check_room()
        spec = self._devices.action(device, action)
        task = msgspec.structs.replace(task, tier=spec.tier, replay=spec.replay)
        self._check_allowed(spec, task, device)
        attempt = Attempt(task, 0, device=device, action=action, spec=spec, seq=self._first_seq)
        if spec.tier > 0:
            self._note_direct(device)
        return await asyncio.shield(self.start(attempt))

    def _note_direct(self, device: str) -> None:
        """The site does not know of it yet, so it does not wait long for company on its way to the disk."""
        lane = self._arbiter.lane(device)
        lane.note_direct(int(boottime() * 1000))
        self._journal.note_newest(device, lane.newest)
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().call_later(KEEP_WITHIN, self._keep_newest)

    def _keep_newest(self) -> None:
        self._keeping = None
        self._reporter.keep(self._journal.keep_newest())

    def _done_before(self, task: str) -> Awaitable[Finished] | None:
        """The result of a command that is asked for once more by its id, now or when it is done."""
        for attempt in self.running.values():
            if attempt.task.id == task and attempt.runner is not None:
                return asyncio.shield(attempt.runner)
        row = self._journal.attempt(task, 0)
        result = row.result if row is not None else self._reporter.unwritten(task, 0)
        if result is None and row is None:
            return None
        if result in (None, b"null"):
            raise EdgePandaError(
                "this command was cut short; nobody knows what it did",
                code="interrupted",
                where=task,
                cure="look what became of the device, then give a new command",
            )
        return _given(msgspec.json.decode(result, type=Finished))

    # after a restart

    def recover(self) -> None:
        """Say of each attempt that an earlier run left open what became of it, and join commands that still run."""
        for row in self._journal.open_attempts():
            try:
                self._recover(row)
            except Exception:  # one entry that cannot be read does not keep the node from starting
                log.exception("%s.%d, which an earlier run left open, cannot be recovered", *row.key)

    def _recover(self, row: AttemptRow) -> None:
        if row.state == "finished":
            self._remember(row.key)
        elif row.state == "began" and self._attachable(row):
            self._join(row)
        else:
            self._remember(row.key)
            self._abandon(row)

    def _attachable(self, row: AttemptRow) -> bool:
        name = row.device or row.capability
        return name in self._devices.things and self._devices.attaches(name)

    def _join(self, row: AttemptRow) -> None:
        task = msgspec.json.decode(row.lease, type=Task)
        name = row.device or row.capability
        try:
            spec = self._devices.action(name, row.action)
        except EdgePandaError:
            self._abandon(row)
            return
        log.info("joining %s.%d, which an earlier run began", row.task, row.attempt)
        attempt = Attempt(task, row.attempt, device=name, action=row.action, spec=spec, seq=self._first_seq)
        attempt.journaled = attempt.began = True
        if row.attempt > 0:
            attempt.until_ms = int((boottime() + JOINED_FOR) * 1000)
        self.start(attempt)

    def _abandon(self, row: AttemptRow) -> None:
        began = row.state == "began"
        log.warning("%s.%d was %s by a restart", row.task, row.attempt, "cut short" if began else "not begun")
        if began and row.device in self._devices.things:
            looking = asyncio.create_task(self._look(row), name=f"look {row.task}.{row.attempt}")
            self._looking[row.key] = looking
            looking.add_done_callback(lambda _: self._looking.pop(row.key, None))
        else:
            self._cut_short(row, {})

    async def _look(self, row: AttemptRow) -> None:
        """Say that it was cut short, with what its device reads now."""
        known: dict[str, Any] = {}
        try:
            known = await read_back(self._devices, str(row.device), *row.key)
        except Exception:
            log.exception("%s could not be read back", row.device)
        self._cut_short(row, known)

    def _cut_short(self, row: AttemptRow, known: dict[str, Any]) -> None:
        began = row.state == "began"
        task = msgspec.json.decode(row.lease, type=Task) if row.attempt == 0 else None
        report: messages.Interrupted | messages.FinishedReport
        if row.attempt > 0 or began:
            report = messages.Interrupted(
                id=new_id(),
                task=row.task,
                attempt=row.attempt,
                seq=self._first_seq + 1,
                began=began,
                known={"code": "restarted", **known},
                direct=task,
            )
        else:
            finished = Finished(outcome="failed", code="interrupted", message="the node restarted before it began")
            report = messages.FinishedReport(
                id=new_id(), task=row.task, attempt=0, seq=self._first_seq + 1, result=finished, direct=task
            )
        self._reporter.end(report, row, journaled=True)

    async def drain(self, seconds: float) -> None:
        """Wait for what runs, at most so long; then stop what is left, but for commands, which outlive us."""
        self._ending = True
        runners = [a.runner for a in self.running.values() if a.runner is not None]
        if runners:
            log.info("waiting up to %g s for %d attempts", seconds, len(runners))
            await asyncio.wait(runners, timeout=seconds)
        left = [a for a in self.running.values() if not (a.began and self._devices.attaches(a.device))]
        for attempt in left:
            self.stop(attempt, "draining")
        ending = [a.runner for a in left if a.runner is not None]
        if ending:
            await asyncio.wait(ending, timeout=3.0)


async def _given(result: Finished) -> Finished:
    return result


def _check_time(attempt: Attempt) -> None:
    """Raises `NeverBegan` where the attempt may not act any more."""
    now = boottime() * 1000
    if attempt.begin_by_ms is not None and now >= attempt.begin_by_ms:
        raise NeverBegan("it may no longer begin", "expired")
    if attempt.until_ms is not None and now >= attempt.until_ms:
        raise NeverBegan("its lease is over", "lease_over")
    if attempt.why:
        raise NeverBegan("it was stopped before it began", attempt.why)
