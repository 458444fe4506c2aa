"""Requests to a node: one answer for each, and nothing for what was said before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.node import requests
from edgepanda.node.requests import NodeRequests
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from edgepanda.wire import messages
from edgepanda.wire.envelope import EnvelopeError
from edgepanda.wire.requests import LARGEST_NODE_REQUEST

ME, OTHER = (Peer(key=encode_key(Identity.create().public), name=name, role="operator") for name in ("me", "other"))
START = 5


class Asked:
    """The requests of a node with two methods, what was called, and what was sent."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.sent: list[tuple[str, messages.Reply]] = []
        self.gate = asyncio.Event()
        self.largest = 1 << 16
        methods = {"status": self._status, "logs": self._logs, "do": self._status}
        self.node = NodeRequests(methods, incarnation=START, send=self._send)

    async def _status(self, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(params)
        if "raise" in params:
            raise RuntimeError("a fault")
        return {"name": "desk", "much": "x" * params.get("much", 0)}

    async def _logs(self, params: dict[str, Any]) -> str:
        self.calls.append(params)
        await self.gate.wait()
        return "done"

    def _send(self, peer: Peer, reply: messages.Reply) -> None:
        if len(str(reply.result)) > self.largest:
            raise EnvelopeError("too large", code="oversized", where="reply")
        self.sent.append((peer.name, reply))

    def ask(self, request_id: str = "q1", *, by: Peer = ME, **rest: Any) -> messages.Request:
        fields = {"method": "status", "counter": 1, "incarnation": START, **rest}
        request = messages.Request(id=request_id, **fields)
        self.node.take(request, by)
        return request

    async def settle(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)

    async def code(self, **rest: Any) -> str:
        """The code of the error that such a request gets, or an empty string."""
        self.ask(f"q{len(self.sent)}x", **rest)
        await self.settle()
        error = self.sent[-1][1].error
        return str(error.data["code"]) if error else ""


async def test_a_request_is_answered_to_who_asked() -> None:
    asked = Asked()
    asked.ask(params={"a": 1})
    await asked.settle()
    assert asked.calls == [{"a": 1}]
    assert asked.sent == [("me", messages.Reply(id="q1", result={"name": "desk", "much": ""}))]


async def test_what_the_bus_repeats_is_done_once_and_answered_the_same() -> None:
    asked = Asked()
    for _ in range(3):
        asked.ask("q1", method="logs")
        await asked.settle()
    assert (len(asked.calls), asked.sent) == (1, [])
    asked.gate.set()
    await asked.settle()
    asked.ask("q1", method="logs")
    await asked.settle()
    assert len(asked.calls) == 1
    assert [reply.result for _, reply in asked.sent] == ["done", "done"]


async def test_what_was_said_before_does_nothing_when_its_answer_is_kept_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "MOST_KEPT", 100)
    asked = Asked()
    first = asked.ask("q1", counter=1)
    await asked.settle()
    asked.ask("q2", counter=2, params={"much": 200})
    await asked.settle()
    assert list(asked.node._answered) == [(ME.kid, "q2")]
    asked.node.take(first, ME)
    await asked.settle()
    error = asked.sent[-1][1].error
    assert (len(asked.calls), error.data["code"] if error else "") == (2, "counter_used")


async def test_another_key_has_counters_of_its_own() -> None:
    asked = Asked()
    assert await asked.code(counter=7) == ""
    assert await asked.code(counter=7, by=OTHER) == ""
    assert await asked.code(counter=7) == "counter_used"
    assert await asked.code(counter=6) == ""


@pytest.mark.parametrize("start", [None, 0, START - 1, START + 1])
async def test_another_start_is_refused_and_told_which_this_is(start: int | None) -> None:
    asked = Asked()
    assert await asked.code(incarnation=start) == "node_restarted"
    error = asked.sent[-1][1].error
    assert error is not None
    assert error.data["details"] == {"incarnation": START}
    assert await asked.code() == ""  # its counter was not used up


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"method": "do"}, "unsupported"),  # a local one: work goes through the coordinator
        ({"method": "x" * 500}, "unsupported"),
        ({"counter": None}, "counter_missing"),
        ({"counter": 0}, "counter_used"),
        ({"counter": 2**60}, "counter_used"),
        ({"params": {"raise": True}}, "internal"),
        ({"params": {"a": "x" * LARGEST_NODE_REQUEST}}, "oversized"),
    ],
)
async def test_what_is_wrong_is_answered_with_its_code(fields: dict[str, Any], code: str) -> None:
    asked = Asked()
    assert await asked.code(**fields) == code
    error = asked.sent[-1][1].error
    assert error is not None
    assert error.data["where"]
    assert error.data["cure"]


async def test_an_answer_that_is_too_large_says_so() -> None:
    asked = Asked()
    asked.largest = 50
    assert await asked.code(params={"much": 100}) == "oversized"


async def test_one_who_asks_without_end_is_held_up() -> None:
    asked = Asked()
    for number in range(requests.MOST_RUNNING):
        asked.ask(f"q{number}", method="logs", counter=number + 1)
    assert await asked.code(counter=99) == "busy"
    asked.gate.set()
    await asked.settle()
    assert await asked.code(counter=100) == ""


async def test_a_refusal_is_logged_once_and_so_often_at_most(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", logger="edgepanda.node")
    monkeypatch.setattr(requests, "MOST_REFUSALS", 3)
    asked = Asked()
    for number in range(20):
        await asked.code(method=f"nothing{number // 4}", counter=number + 1)
    assert [record.args[0] for record in caplog.records] == ["nothing0", "nothing1", "nothing2"]  # type: ignore[index]


async def test_one_that_could_not_be_read_is_answered() -> None:
    asked = Asked()
    error = EdgePandaError("unknown type", code="unsupported", where="request")
    asked.node.refuse("q1", ME, error)
    assert asked.sent == [("me", messages.Reply(id="q1", error=messages.rpc_error(error)))]
