"""What operators ask of this node over the bus: the methods of its local socket, those that `NODE_METHODS` lists.

A request is for one start of the node and carries a counter, so what was said once does nothing when it is said again,
now or after a restart. Its repetition by the bus, while the answer is on its way, gets the same answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.node.methods import Method, call
from edgepanda.trust.peers import Peer
from edgepanda.wire import messages
from edgepanda.wire.counter import check_counter
from edgepanda.wire.requests import LARGEST_NODE_REQUEST, NODE_METHODS

log = logging.getLogger("edgepanda.node")

MOST_KEPT = 64 * 1024  # bytes of answers that are kept for repetitions; the newest is kept in any case
MOST_REFUSALS = 100  # different ones that are logged
MOST_RUNNING = 16  # requests that are worked at, or held back

Send = Callable[[Peer, messages.Reply], None]


class NodeRequests:
    """Answers requests. `send` gets the asking peer and its reply; raises `EdgePandaError` where that is too large."""

    def __init__(self, methods: Mapping[str, Method], *, incarnation: int, send: Send) -> None:
        self._methods = {name: method for name, method in methods.items() if name in NODE_METHODS}
        self._incarnation, self._send = incarnation, send
        self._counters: dict[str, tuple[int, int]] = {}
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._answered: OrderedDict[tuple[str, str], tuple[messages.Reply, int]] = OrderedDict()
        self._kept = 0
        self._refusals: set[tuple[str, str, str]] = set()

    def take(self, request: messages.Request, sender: Peer) -> None:
        """Answer one request, now or when its method has."""
        key = (sender.kid, request.id)
        if key in self._answered:
            self._send(sender, self._answered[key][0])
        elif key in self._running:
            return  # repeated while it is worked at
        elif len(self._running) >= MOST_RUNNING:
            self.refuse(request.id, sender, _busy())
        else:
            self._running[key] = asyncio.create_task(self._answer(request, sender), name=f"request {request.id}")

    def refuse(self, refused_id: str, sender: Peer, error: EdgePandaError) -> None:
        """A request that could not even be read gets an answer all the same."""
        self._send(sender, messages.Reply(id=refused_id, error=messages.rpc_error(error)))

    def close(self) -> None:
        """Nothing is answered any more."""
        for task in self._running.values():
            task.cancel()

    async def _answer(self, request: messages.Request, sender: Peer) -> None:
        key = (sender.kid, request.id)
        try:
            self._check(request, sender)
            result = await call(self._methods, request.method, request.params)
            reply = messages.Reply(id=request.id, result=result)
        except EdgePandaError as error:
            self._note_refusal(request, sender, error)
            reply = messages.Reply(id=request.id, error=messages.rpc_error(error))
        finally:
            del self._running[key]
        try:
            self._send(sender, reply)
        except EdgePandaError as error:  # too large for one message
            reply = messages.Reply(id=request.id, error=messages.rpc_error(error))
            self._send(sender, reply)
        self._keep(key, reply)

    def _note_refusal(self, request: messages.Request, sender: Peer, error: EdgePandaError) -> None:
        """In the log once for each asker, method and code: whoever asks again and again does not fill it."""
        kind = (sender.kid, request.method[:40], error.code)
        if kind not in self._refusals and len(self._refusals) < MOST_REFUSALS:
            self._refusals.add(kind)
            log.info("refused %.40s of %s: %.400s [%s]", request.method, sender.name, error, error.code)

    def _keep(self, key: tuple[str, str], reply: messages.Reply) -> None:
        size = len(msgspec.json.encode(reply))
        self._answered[key] = (reply, size)
        self._kept += size
        while self._kept > MOST_KEPT and len(self._answered) > 1:
            self._kept -= self._answered.popitem(last=False)[1][1]

    def _check(self, request: messages.Request, sender: Peer) -> None:
        size = len(msgspec.json.encode(request.params))
        if size > LARGEST_NODE_REQUEST:
            raise EdgePandaError(
                f"parameters of {size} bytes; {LARGEST_NODE_REQUEST} are allowed",
                code="oversized",
                where=f"{request.method[:80]} params",
                cure="ask for less at once",
            )
        if request.incarnation != self._incarnation:
            raise EdgePandaError(
                f"this was asked of start {request.incarnation} of the node; this is start {self._incarnation}",
                code="node_restarted",
                where="incarnation",
                cure="ask again",
                details={"incarnation": self._incarnation},
            )
        self._take_counter(request, sender)

    def _take_counter(self, request: messages.Request, sender: Peer) -> None:
        if request.counter is None:
            raise EdgePandaError(
                "a request to a node needs a counter",
                code="counter_missing",
                where="counter",
                cure="a number that rises with each request of this key",
            )
        fresh, highest, window = check_counter(*self._counters.get(sender.kid, (0, 0)), request.counter)
        if not fresh:
            raise EdgePandaError(
                f"counter {request.counter} was used before, or is too old",
                code="counter_used",
                where="counter",
                cure="ask again with a new one",
            )
        self._counters[sender.kid] = (highest, window)


def _busy() -> EdgePandaError:
    text = f"this node works at {MOST_RUNNING} requests already"
    return EdgePandaError(text, code="busy", where="request", cure="ask later, or end a `logs --follow`")
