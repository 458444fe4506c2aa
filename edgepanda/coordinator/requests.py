"""What peers ask of the coordinator: one method each, typed parameters in, a value or an `EdgePandaError` out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from edgepanda.coordinator import record as records
from edgepanda.coordinator.book import Book, Live
from edgepanda.coordinator.deadlines import Now, begin
from edgepanda.coordinator.fleet import Fleet
from edgepanda.coordinator.marks import unmarked
from edgepanda.coordinator.peers import PeersFile
from edgepanda.coordinator.record import Record, begun
from edgepanda.coordinator.rename import check_waiting, rename
from edgepanda.coordinator.stops import SiteStops
from edgepanda.coordinator.submit import accept
from edgepanda.coordinator.task_filter import Narrow
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import MAX_ATTEMPTS
from edgepanda.model.ids import digest
from edgepanda.model.states import LIVE, NEEDS_PERSON, Happening, Kind, Standing, State
from edgepanda.trust.peers import Peer
from edgepanda.wire import messages, requests
from edgepanda.wire.counter import check_counter
from edgepanda.wire.envelope import plain

log = logging.getLogger("edgepanda.coordinator")

MOST_BYTES = 48 * 1024  # of one answer; pages are cut to it
MOST_ANSWERS = 1_000  # answers to changing requests that are kept for repetitions
COMPANY = 0.02  # seconds that the answer to a submit waits for the answer to a wait for the same task
MOST_REFUSALS = 1_000  # different ones that are logged
MOST_SHOWN = 20  # tasks of a kind in a digest
LONGEST_REASON = 300  # characters of a reason in a list
VERIFY_WAIT = 1.0  # seconds for the witnesses' answer
MOST_WAITS = 1_000  # answers to `task.wait` that are held back for one client
_MOST_OPEN = {"task.wait": MOST_WAITS}

Answer = Callable[[Any], None]
Refuse = Callable[[EdgePandaError], None]


class RequestError(EdgePandaError):
    """`unsupported malformed not_allowed counter_missing counter_used unknown_task idempotency_conflict ...`."""

    code = "malformed"


class Requests:
    """Answers requests. `reply` gets the asking peer and the finished body, once what it says is on disk."""

    def __init__(
        self,
        book: Book,
        fleet: Fleet,
        peers: PeersFile,
        stops: SiteStops,
        *,
        clock: Callable[[], Now],
        reply: Callable[[Peer, messages.Body], None],
        next_order: Callable[[], int],
        cancel_attempt: Callable[[Record], None],
        ask_witnesses: Callable[[], None],
        peers_changed: Callable[[], None],
    ) -> None:
        self._book, self._fleet, self._peers, self._stops, self._clock = book, fleet, peers, stops, clock
        self._reply, self._next_order, self._cancel_attempt = reply, next_order, cancel_attempt
        self._ask_witnesses, self._peers_changed = ask_witnesses, peers_changed
        self._held: dict[str, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        self._waiting: set[tuple[str, str]] = set()
        self._check_turn = asyncio.Lock()  # one check of the whole ledger at a time
        self._next_check: list[tuple[Answer, Refuse]] = []  # who gets the answer of the one that has not begun
        self._open: Counter[tuple[str, str]] = Counter()  # how many of a client's requests wait, by method
        self._answered: OrderedDict[tuple[str, str], messages.Reply] = OrderedDict()
        self._background: set[asyncio.Task[None]] = set()
        self._refusals: set[tuple[str, str, str]] = set()
        self._methods: dict[str, Callable[[Any, Peer, Answer, Refuse], None]] = {
            "task.submit": self._submit,
            "task.get": self._get,
            "task.list": self._list,
            "task.wait": self._wait,
            "task.events": self._events,
            "task.output": self._output,
            "task.cancel": self._cancel,
            "task.resolve": self._resolve,
            "task.review": self._review,
            "node.list": self._node_list,
            "node.get": self._node_get,
            "node.rename": self._node_rename,
            "digest": self._digest,
            "ledger.verify": self._verify,
            "stop.list": self._list_stops,
            "stop.release": self._release_stops,
            "peers.list": self._peers_list,
            "peers.add": self._peers_add,
            "peers.remove": self._peers_remove,
        }

    def take(self, request: messages.Request, sender: Peer) -> None:
        """Answer one request, now or after the commit that it needs."""
        key = (sender.kid, request.id)
        known = self._answered.get(key)
        if known is not None:
            self._reply(sender, known)
            return
        if key in self._waiting:
            return  # repeated while its answer is held back

        def answer(value: Any) -> None:
            self._finish(request, sender, messages.Reply(id=request.id, result=msgspec.to_builtins(value)))

        def refuse(error: EdgePandaError) -> None:
            self._note_refusal(request, sender, error)
            self._finish(request, sender, messages.Reply(id=request.id, error=messages.rpc_error(error)))

        try:
            params = self._checked(request, sender)
            self._check_room(request.method, sender)
            self._waiting.add(key)
            self._open[sender.kid, request.method] += 1
            self._methods[request.method](params, sender, answer, refuse)
        except EdgePandaError as error:
            refuse(error)
        except Exception as error:
            log.exception("a %s of %s failed", request.method, sender.name)
            refuse(_fault(f"the coordinator failed: {error}", request.method))

    def _note_refusal(self, request: messages.Request, sender: Peer, error: EdgePandaError) -> None:
        """In the log once for each asker, method and code: whoever asks again and again does not fill it."""
        key = (sender.kid, request.method[:40], error.code)
        if request.method == "task.wait":
            return  # goes with a submit, whose refusal is told
        if key not in self._refusals and len(self._refusals) < MOST_REFUSALS:
            self._refusals.add(key)
            log.info("refused %.40s of %s: %.400s [%s]", request.method, sender.name, error, error.code)

    def refuse_body(self, refused_id: str, sender: Peer, error: EdgePandaError) -> None:
        """A request that could not even be read gets an answer all the same."""
        self._reply(sender, messages.Reply(id=refused_id, error=messages.rpc_error(error)))

    def _finish(self, request: messages.Request, sender: Peer, reply: messages.Reply) -> None:
        if (sender.kid, request.id) in self._waiting:
            self._waiting.remove((sender.kid, request.id))
            kind = (sender.kid, request.method)
            self._open[kind] -= 1
            if not self._open[kind]:
                del self._open[kind]
        try:
            self._reply(sender, reply)
        except EdgePandaError as error:  # too large for one message
            reply = messages.Reply(id=request.id, error=messages.rpc_error(error))
            self._reply(sender, reply)
        if request.counter is not None:
            self._answered[sender.kid, request.id] = reply
            while len(self._answered) > MOST_ANSWERS:
                self._answered.popitem(last=False)

    def _checked(self, request: messages.Request, sender: Peer) -> Any:
        known = requests.METHODS.get(request.method)
        if known is None:
            raise RequestError(
                f"there is no method {request.method[:80]!r}",
                code="unsupported",
                where="method",
                cure="docs/protocol.md lists the requests; an older coordinator may not know it yet",
            )
        kind, roles, changes = known
        if sender.role not in roles:
            raise RequestError(
                f"{sender.name} ({sender.role}) may not ask for {request.method}",
                code="not_allowed",
                where="method",
                cure=f"this is for: {', '.join(sorted(roles))}",
            )
        if not plain(request.params):
            raise RequestError("too deep, or a number beyond 64 bits", where="params", cure="send less at once")
        try:
            params = msgspec.convert(request.params, kind)
        except msgspec.ValidationError as error:
            cure = f"its parameters are: {', '.join(kind.__struct_fields__) or 'none'}"
            raise RequestError(str(error), where=f"{request.method} params", cure=cure) from error
        if changes:
            self._take_counter(request, sender)
        return params

    def _check_room(self, method: str, sender: Peer) -> None:
        """One client cannot take all of the coordinator's memory or processor. Raises `busy`."""
        most = _MOST_OPEN.get(method)
        if most is not None and self._open[sender.kid, method] >= most:
            raise RequestError(
                f"{most} {method} of {sender.name} wait for their answer already",
                code="busy",
                where=method,
                cure="ask again when one of them is answered",
            )

    def _take_counter(self, request: messages.Request, sender: Peer) -> None:
        if request.counter is None or not 0 < request.counter < 2**62:
            raise RequestError(
                f"{request.method} needs a counter",
                code="counter_missing",
                where="counter",
                cure="a number that rises with each changing request of this key",
            )
        highest, window = self._book.counter(sender.kid)
        fresh, highest, window = check_counter(highest, window, request.counter)
        if not fresh:
            raise RequestError(
                f"counter {request.counter} was used before",
                code="counter_used",
                where="counter",
                cure="this request was taken already, or its counter is too old: look how things stand",
            )
        self._book.count(sender.kid, highest, window)

    # tasks

    def _submit(self, p: requests.Submit, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        submitted = digest(p)
        known = self._book.find(p.id)
        if known is not None:
            if known.record.digest != submitted:
                raise RequestError(
                    f"another task has the id {p.id}", code="idempotency_conflict", where="id", cure="use a new id"
                )
            self._book.then(lambda: answer({**_brief(known.record), "duplicate": True}), refuse)
            return
        task = accept(p, self._candidates(p), sender.name)
        now = self._clock()
        record = Record(
            task=task,
            standing=Standing(
                tier=task.tier, replay=task.replay, max_attempts=task.limits.max_attempts or MAX_ATTEMPTS
            ),
            deadlines=begin(task.limits, now),
            digest=submitted,
            order=self._next_order(),
            **begun(now),
        )
        live = self._book.add(record, Happening(kind=Kind.SUBMITTED), {"task": msgspec.to_builtins(task)})
        self._book.then(lambda: self._answer_submit(live, answer), refuse)

    def _answer_submit(self, live: Live, answer: Answer) -> None:
        """Somebody waits for the task: a short one's end may come in a moment, and both answers travel together."""
        task_id = live.record.id

        def now() -> None:
            self._held.pop(task_id, None)
            answer({**_brief(live.record), "duplicate": False})

        if live.watchers and not self._settled(live.record):
            self._held[task_id] = (asyncio.get_running_loop().call_later(COMPANY, now), now)
        else:
            now()

    def _release(self, task_id: str) -> None:
        held = self._held.get(task_id)
        if held is not None:
            held[0].cancel()
            held[1]()

    def _candidates(self, p: requests.Submit) -> Any:
        if p.capability is not None:
            exact = self._fleet.offers_of(p.capability)
            if exact:
                return exact
        return self._fleet.all_offers()

    def _find(self, task_id: str) -> Live:
        live = self._book.find(task_id)
        if live is None:
            raise RequestError(
                f"there is no task {task_id!r}", code="unknown_task", where="id", cure="`edgepanda tasks` lists them"
            )
        return live

    def _get(self, p: requests.ById, _sender: Peer, answer: Answer, refuse: Refuse) -> None:
        live = self._find(p.id)
        self._book.then(lambda: answer(live.record.view(live.progress)), refuse)

    def _list(self, p: requests.ListTasks, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        unknown = [s for s in p.states if s not in set(State)]
        if unknown:
            raise RequestError(
                f"there is no state {unknown[0]!r}", where="states", cure=f"known are: {', '.join(State)}"
            )
        limit = max(1, min(p.limit, requests.MOST_ROWS))
        while True:
            page = self._book.ledger.list_tasks(
                states=list(p.states) or None,
                capability=p.capability,
                node=p.node,
                before=p.before,
                limit=limit,
                since=p.since,
                until=p.until,
                narrow=Narrow(device=p.device, by=p.by, goal=p.goal, labels=p.labels),
            )
            found = {"tasks": [_brief(records.read(row)) for row in page.tasks], "next": page.next}
            if limit == 1 or len(msgspec.json.encode(found)) <= MOST_BYTES:
                break
            limit //= 2  # a shorter page; `next` goes on where it ends
        answer(found)

    def _wait(self, p: requests.Wait, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        live = self._find(p.id)
        seconds = max(0.0, min(p.timeout, requests.LONGEST_WAIT))
        if self._settled(live.record) or not seconds:
            self._book.then(lambda: answer(live.record.view(live.progress)), refuse)
            return
        done = False

        def give(record: Record | None = None) -> None:
            nonlocal done
            if done or (record is not None and not self._settled(record)):
                return
            done = True
            timer.cancel()
            if give in watchers:
                watchers.remove(give)
            self._book.then(tell, refuse)

        def tell() -> None:  # what is in the ledger now: the append that was waited for may have failed meanwhile
            self._release(p.id)
            try:
                now = self._find(p.id)
            except EdgePandaError as error:
                refuse(error)
            else:
                answer(now.record.view(now.progress))

        timer = asyncio.get_running_loop().call_later(seconds, give)
        watchers = live.watchers
        watchers.append(give)

    def _settled(self, record: Record) -> bool:
        return record.ended or record.standing.state in NEEDS_PERSON

    def _events(self, p: requests.Events, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        if p.id is not None:
            self._find(p.id)
        found = self._book.ledger.events(task=p.id, after=p.after, limit=max(1, min(p.limit, requests.MOST_ROWS)))
        rows: list[dict[str, Any]] = []
        size = 0
        for event in found:
            data, untrusted = unmarked(event.payload)
            row: dict[str, Any] = {"seq": event.seq, "at": event.at, "untrusted": untrusted}
            row |= {"kind": event.kind, "task": event.task, "attempt": event.attempt, "data": data, "hash": event.hash}
            size += len(event.payload or b"") + 300
            if rows and size > MOST_BYTES:
                break
            rows.append(row)
        answer({"events": rows, "more": len(rows) < len(found) or len(found) == p.limit})

    def _output(self, p: requests.ById, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        live = self._find(p.id)
        result = live.record.result
        answer({"id": p.id, "running": not live.record.ended, "lines": list(result.output) if result else live.output})

    def _cancel(self, p: requests.Cancel, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        live = self._find(p.id)
        self._book.change(live, Happening(kind=Kind.CANCEL), {"by": sender.name, "because": p.because})
        if not live.record.ended:
            self._book.then(lambda: self._cancel_attempt(live.record))
        self._book.then(lambda: answer(_brief(live.record)), refuse)

    def _resolve(self, p: requests.Resolve, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        if not p.because.strip():
            raise RequestError("a person's word needs a reason", where="because", cure="say what you saw")
        live = self._find(p.id)
        outcome = None if p.outcome == "retry" else p.outcome
        event = Happening(kind=Kind.RESOLVED, outcome=outcome)
        reason = f"{sender.name} resolved it as {p.outcome}: {p.because}"
        self._by_person(live, event, {"by": sender.name, "as": p.outcome, "because": p.because}, reason)
        self._book.then(lambda: answer(_brief(live.record)), refuse)

    def _review(self, p: requests.Review, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        live = self._find(p.id)
        waits = live.record.standing.state is State.WAITING_REVIEW
        if waits and p.verdict == "accept" and not p.because.strip():  # it makes a success without a report's evidence
            raise RequestError("a person's word needs a reason", where="because", cure="say what you saw")
        kind = {"accept": Kind.ACCEPTED, "again": Kind.AGAIN, "reject": Kind.REJECTED}[p.verdict]
        reason = f"{sender.name}: {p.verdict}" + (f", {p.because}" if p.because else "")
        data = {"by": sender.name, "verdict": p.verdict, "because": p.because}
        self._by_person(live, Happening(kind=kind), data, reason)
        self._book.then(lambda: answer(_brief(live.record)), refuse)

    def _by_person(self, live: Live, event: Happening, data: dict[str, Any], reason: str) -> None:
        code = "" if live.record.standing.state in LIVE else live.record.code
        deadlines = begin(live.record.task.limits, self._clock())
        order = self._next_order()
        after = self._book.change(live, event, data, reason=reason, code=code, deadlines=deadlines, order=order)
        if after.standing.state is State.QUEUED:  # a new word: who declined before is asked again
            live.rests.clear()

    # the site

    def _node_list(self, _p: requests.NoParams, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        views = self._fleet.views(self._clock().boottime, whole=False)
        shown, size = 0, 0
        for view in views:
            size += len(msgspec.json.encode(view)) + 1
            if size > MOST_BYTES:
                break
            shown += 1
        answer({"nodes": views[:shown], "total": len(views)})

    def _node_get(self, p: requests.ByName, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        node = self._fleet.nodes.get(p.name)
        if node is None:
            known = ", ".join(sorted(self._fleet.nodes)) or "none yet"
            raise RequestError(
                f"there is no node {p.name!r}", code="unknown_node", where="name", cure=f"known are: {known}"
            )
        view = node.view(self._clock().boottime, whole=True)
        peer = self._peers.directory.get(node.kid)  # whoever asks the node itself knows its answer by this key
        answer(msgspec.structs.replace(view, key=peer.key if peer else "", incarnation=node.incarnation))

    def _node_rename(self, p: requests.Rename, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        rename(self._book, self._fleet, self._peers, p.name, p.to)
        self._peers_done("renamed", {"by": sender.name, "name": p.name, "to": p.to}, answer, refuse)

    def _digest(self, _p: requests.NoParams, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        live = [entry.record for entry in self._book.live.values()]
        held = (State.LEASED, State.RUNNING)
        answer(
            {
                "head": self._book.ledger.head,
                "epoch": self._book.ledger.epoch,
                "counts": self._book.ledger.counts(),
                "needs_person": [_brief(r) for r in live if r.standing.state in NEEDS_PERSON][:MOST_SHOWN],
                "running": [_brief(r) for r in live if r.standing.state in held][:MOST_SHOWN],
                "queued": [_brief(r) for r in live if r.standing.state is State.QUEUED][:MOST_SHOWN],
                "nodes": self._fleet.views(self._clock().boottime, whole=False)[: requests.MOST_ROWS],
                "problem": self._book.problem.as_dict() if self._book.problem else None,
            }
        )

    def _verify(self, _p: requests.NoParams, _sender: Peer, answer: Answer, refuse: Refuse) -> None:
        """All who ask before a check begins share it: one at a time runs, whoever asks, and however often."""
        self._next_check.append((answer, refuse))
        if len(self._next_check) == 1:
            task = asyncio.create_task(self._check_ledger())
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _check_ledger(self) -> None:
        async with self._check_turn:
            self._ask_witnesses()
            await asyncio.sleep(VERIFY_WAIT)
            asking, self._next_check = self._next_check, []
            witnesses = self._fleet.witnesses()
            try:
                found = await asyncio.to_thread(self._book.ledger.verify, witnesses=list(witnesses.values()))
            except Exception as error:
                typed = error if isinstance(error, EdgePandaError) else None
                for _, refuse in asking:
                    refuse(typed or _fault(f"the check failed: {error}", "ledger.verify"))
                return
            for answer, _ in asking:
                answer({**msgspec.to_builtins(found), "witnesses": msgspec.to_builtins(witnesses)})

    def _list_stops(self, _p: requests.NoParams, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        answer(self._stops.listed())

    def _release_stops(self, p: requests.Release, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        self._book.then(self._stops.release(p, sender, answer), refuse)

    # peers

    def _peers_list(self, _p: requests.NoParams, _sender: Peer, answer: Answer, _refuse: Refuse) -> None:
        answer(self._peers.list)

    def _peers_add(self, p: requests.AddPeer, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        known = self._peers.directory.get(p.peer.kid)
        if known is not None and (known.name, known.role) != (p.peer.name, p.peer.role):
            raise RequestError(  # or else a slip of the keyboard takes the name from a node that works
                f"this key is {known.name!r} ({known.role}) already",
                code="key_known",
                where="peer.key",
                cure=f"each machine has a key of its own; to give this one another name: `edgepanda nodes rename "
                f"{known.name} {p.peer.name}`",
            )
        check_waiting(self._book, self._peers, p.peer.name, known.name if known else "")
        self._peers.add(p.peer)
        data = {"by": sender.name, "name": p.peer.name, "role": p.peer.role, "key": p.peer.key}
        self._peers_done("joined", data, answer, refuse)

    def _peers_remove(self, p: requests.ByName, sender: Peer, answer: Answer, refuse: Refuse) -> None:
        if p.name == sender.name:
            raise RequestError(
                "an operator cannot remove itself", code="not_allowed", where="name", cure="ask another operator"
            )
        self._peers.revoke(p.name)
        self._fleet.forget(p.name)
        self._peers_done("revoked", {"by": sender.name, "name": p.name}, answer, refuse)

    def _peers_done(self, kind: str, data: dict[str, Any], answer: Answer, refuse: Refuse) -> None:
        self._fleet.former = self._peers.former
        self._book.decision(kind, data)
        self._peers_changed()
        self._book.then(lambda: answer({"revision": self._peers.list.revision}), refuse)


def _brief(record: Record) -> dict[str, Any]:
    """A task in a list: enough to recognise it."""
    shown = record.view()
    return {
        "id": shown.id,
        "state": shown.state,
        "capability": shown.capability,
        "device": shown.device,
        "node": shown.node,
        "created": shown.created,
        "updated": shown.updated,
        "age": round(max(0.0, time.time() - shown.created), 1),
        "untrusted": shown.untrusted,
        "attempt": shown.attempt,
        "reason": shown.reason[:LONGEST_REASON],
        "code": shown.code,
        "goal": shown.goal[:120],
    }


def _fault(message: str, where: str) -> EdgePandaError:
    return EdgePandaError(message, where=where, cure="the coordinator's log has the details; report them")
