"""Requests: who may ask, what is answered, what a repetition does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.coordinator import requests as requests_module
from edgepanda.coordinator.requests import MOST_BYTES
from edgepanda.errors import EdgePandaError
from edgepanda.model.task import Finished
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer, vouch
from edgepanda.wire import messages
from tests.rig.desk import Desk, at_desk

DONE = Finished(outcome="succeeded", evidence=({"kind": "seen"},))
NODE = Peer(key=encode_key(b"\1" * 32), name="n1", role="node")


async def code(desk: Desk, method: str, **params: Any) -> Any:
    answer = await desk.answer(method, **params)
    return answer if isinstance(answer, str) else "answered"


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("task.nothing", {}, "unsupported"),
        ("task.get", {}, "malformed"),
        ("task.get", {"id": 5}, "malformed"),
        ("task.get", {"id": "task-none"}, "unknown_task"),
        ("task.get", {"id": "task-none", "more": 1}, "malformed"),
        ("task.list", {"states": ["lost"]}, "malformed"),
        ("task.resolve", {"id": "task-0001", "outcome": "failed", "because": " "}, "malformed"),
        ("task.resolve", {"id": "task-0001", "outcome": "maybe", "because": "x"}, "malformed"),
        ("task.review", {"id": "task-0001", "verdict": "accept"}, "invalid_state"),
        ("node.get", {"name": "n9"}, "unknown_node"),
        ("peers.remove", {"name": "me"}, "not_allowed"),
        ("task.submit", {"id": "task-0001", "capability": "job.unsafe"}, "idempotency_conflict"),
        ("task.submit", {"id": "task-0002", "capability": "job.none"}, "unknown_capability"),
    ],
)
async def test_what_is_wrong_is_named_and_changes_nothing(
    tmp_path: Path, method: str, params: dict[str, Any], expected: str
) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        head = desk.ledger.head
        assert await code(desk, method, **params) == expected
        assert desk.ledger.head == head
        assert desk.requests._waiting == set()


async def test_a_role_that_may_not_ask_is_refused(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        asked = desk.ask("task.cancel", by=NODE, id="task-0001")
        await desk.settle()
        reply = desk.replies[-1]
        assert reply.error is not None
        assert (reply.id, reply.error.data["code"]) == (asked, "not_allowed")


async def test_a_submit_is_answered_after_its_commit_and_its_repetition_with_the_same_task(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        desk.ask("task.submit", id="task-0001", capability="job.safe")
        assert desk.replies == []
        again = desk.ask("task.submit", id="task-0001", capability="job.safe")
        await desk.settle()
        assert [reply.result["duplicate"] for reply in desk.replies] == [False, True]
        assert desk.replies[1].id == again
        await desk.restart()
        assert (await desk.submit("task-0001"))["duplicate"]
        assert desk.kinds("task-0001").count("submitted") == 1


async def test_a_counter_counts_once_ever_and_its_answer_can_be_had_again(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        request = messages.Request(id="request-1", method="task.cancel", params={"id": "task-0001"}, counter=5)
        for _ in range(3):
            desk.requests.take(request, desk.me)
            await desk.settle()
        assert [reply.error for reply in desk.replies[1:]] == [None] * 3
        assert desk.kinds("task-0001").count("cancel") == 1
        await desk.restart()
        desk.requests.take(request, desk.me)
        await desk.settle()
        error = desk.replies[-1].error
        assert error is not None
        assert error.data["code"] == "counter_used"
        missing = messages.Request(id="request-2", method="task.cancel", params={"id": "task-0001"})
        desk.requests.take(missing, desk.me)
        error = desk.replies[-1].error
        assert error is not None
        assert error.data["code"] == "counter_missing"
        assert desk.kinds("task-0001").count("cancel") == 1


async def test_cancel_ends_what_nobody_holds_and_asks_the_node_otherwise(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=1)
        await desk.submit("task-held")
        await desk.submit("task-free")
        assert (await desk.answer("task.cancel", id="task-free"))["state"] == "cancelled"
        assert (await desk.answer("task.cancel", id="task-held"))["state"] == "leased"
        assert [record.id for record in desk.cancelled] == ["task-held"]
        assert await code(desk, "task.cancel", id="task-free") == "invalid_state"


async def test_a_persons_word_goes_on_from_now_with_a_new_place_and_fresh_limits(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", criteria=["so"], limits={"valid_for": 30.0})
        await desk.submit("task-0002")
        desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        desk.now += 1_000.0
        desk.fleet.nodes["n1"].online = False
        await desk.answer("task.review", id="task-0001", verdict="again", because="not quite")
        record = desk.record("task-0001")
        assert (str(record.standing.state), record.deadlines.begin_by) == ("queued", desk.now + 30.0)
        assert record.order > desk.record("task-0002").order
        assert record.standing.runs == 0
        assert "not quite" in record.reason


async def test_wait_answers_when_it_is_settled_or_its_time_is_over(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        desk.ask("task.submit", id="task-0001", capability="job.safe")
        waiting = desk.ask("task.wait", id="task-0001")  # in the same turn as its submit
        short = desk.ask("task.wait", id="task-0001", timeout=0.01)
        now = desk.ask("task.wait", id="task-0001", timeout=0)
        await desk.settle()
        await asyncio.sleep(0.03)
        await desk.settle()
        assert {r.id for r in desk.replies if r.result.get("attempt") == 1 and not r.result.get("duplicate")} >= {short}
        assert now in {r.id for r in desk.replies}
        assert waiting not in {r.id for r in desk.replies}
        desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        assert next(r.result["state"] for r in desk.replies if r.id == waiting) == "succeeded"
        assert desk.requests._waiting == set()


async def test_an_answer_that_is_too_large_is_an_error_that_says_so(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", goal="g" * 5_000)
        desk.largest_reply = 3_000
        assert await code(desk, "task.get", id="task-0001") == "oversized"


async def test_lists_are_cut_to_what_one_message_holds_and_go_on(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=0)
        tasks = [f"task-{number:04}" for number in range(120)]
        for task in tasks:
            desk.ask("task.submit", id=task, capability="job.safe", goal="x" * 400)
        await desk.settle()
        found: list[str] = []
        before = None
        while True:
            page = await desk.answer("task.list", limit=1000, before=before)
            assert len(msgspec.json.encode(page)) <= MOST_BYTES
            found += [row["id"] for row in page["tasks"]]
            before = page["next"]
            if before is None:
                break
        assert found == tasks[::-1]
        events, after = 0, 0
        while True:
            page = await desk.answer("task.events", after=after, limit=100)
            assert len(msgspec.json.encode(page)) <= MOST_BYTES + 2_000
            events += len(page["events"])
            if not page["events"] or not page["more"]:
                break
            after = page["events"][-1]["seq"]
        assert events == desk.ledger.head.height


async def test_lists_are_narrowed(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins(slots=0)
        await desk.submit("task-0001", goal="Face the window")
        await desk.submit("task-0002", "servo.move", device="pan-n1")
        cut = time.time() + 3600

        async def found(**filters: Any) -> list[str]:
            return [row["id"] for row in (await desk.answer("task.list", **filters))["tasks"]]

        assert await found(goal="WINDOW") == ["task-0001"]
        assert await found(device="pan-n1") == ["task-0002"]
        assert await found(device="pan-n1", goal="window") == []
        assert await found(labels={'a"b': "c"}) == []
        assert await found(since=0, until=cut) == ["task-0002", "task-0001"]
        assert await found(since=cut) == []
        assert await found(until=-1e300) == []
        assert await found(until=1e300, goal="%") == []


async def test_a_long_list_of_nodes_says_how_many_there_are(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        for number in range(2_000):
            desk.fleet.node(f"n{number}", "kid")
        answer = await desk.answer("node.list")
        assert answer["total"] == 2_000
        assert 100 < len(answer["nodes"]) < 2_000


async def test_a_fault_of_ours_is_answered_and_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with at_desk(tmp_path) as desk:

        def broken() -> dict[str, int]:
            raise RuntimeError("no counts")

        monkeypatch.setattr(desk.ledger, "counts", broken)
        assert await code(desk, "digest") == "internal"
        assert await code(desk, "digest") == "internal"
        assert desk.requests._waiting == set()


async def test_what_waits_for_one_client_is_bounded_and_hinders_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(requests_module._MOST_OPEN, "task.wait", 3)
    other = Peer(key=encode_key(b"\3" * 32), name="other", role="operator")
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        asked = [desk.ask("task.wait", id="task-0001", timeout=20) for _ in range(4)]
        theirs = desk.ask("task.wait", by=other, id="task-0001", timeout=20)
        await desk.settle()
        refused = [(r.id, r.error.data["code"]) for r in desk.replies if r.error is not None]
        assert refused == [(asked[3], "busy")]
        desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        answered = {r.id for r in desk.replies if r.error is None}
        assert {*asked[:3], theirs} <= answered
        assert await code(desk, "task.wait", id="task-0001", timeout=20) == "answered"
        assert not desk.requests._open


async def test_who_asks_for_a_check_of_the_ledger_shares_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "VERIFY_WAIT", 0.0)
    with at_desk(tmp_path) as desk:
        desk.joins()
        checks: list[int] = []
        verify = desk.ledger.verify
        monkeypatch.setattr(desk.ledger, "verify", lambda **words: checks.append(1) or verify(**words))
        asked = [desk.ask("ledger.verify") for _ in range(5)]
        async with asyncio.timeout(5):
            await asyncio.gather(*desk.requests._background)
            await desk.settle()
        assert {r.id for r in desk.replies if r.error is None} >= set(asked)
        assert checks == [1]


async def test_verify_answers_with_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepanda.coordinator.requests.VERIFY_WAIT", 0.0)
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        asked = desk.ask("ledger.verify")
        async with asyncio.timeout(5):
            await asyncio.gather(*desk.requests._background)
            await desk.settle()
        assert next(r.result["ok"] for r in desk.replies if r.id == asked)


async def test_peers_are_let_in_named_and_revoked_and_it_is_recorded(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        operator, other = (Identity.load_or_create(tmp_path / f"{name}.key") for name in ("one", "two"))
        me = Peer(key=encode_key(operator.public), name="me", role="operator")
        desk.peers.add(me)
        node = msgspec.to_builtins(NODE)
        assert await code(desk, "peers.add", peer=node) == "answered"
        unnamed = {**node, "name": "a/#", "key": encode_key(b"\2" * 32)}
        assert await code(desk, "peers.add", peer=unnamed) == "invalid_name"
        assert await code(desk, "peers.add", peer={**node, "name": "n2", "key": "none"}) == "invalid_key"
        second = Peer(key=encode_key(other.public), name="second", role="operator")
        assert await code(desk, "peers.add", peer=msgspec.to_builtins(second)) == "peers_operator"
        assert await code(desk, "peers.add", peer=msgspec.to_builtins(vouch(operator, "home", second))) == "answered"
        desk.joins("n1")
        assert await code(desk, "peers.remove", name="n1") == "answered"
        assert "n1" not in desk.fleet.nodes
        assert await code(desk, "peers.remove", name="n1") == "unknown_peer"
        assert desk.kinds() == ["joined", "joined", "revoked"]


async def test_a_body_that_cannot_be_read_is_answered(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.requests.refuse_body("r1", desk.me, EdgePandaError("what", code="malformed", where="here"))
        error = desk.replies[0].error
        assert error is not None
        assert (desk.replies[0].id, error.code, error.data["code"]) == ("r1", -32602, "malformed")


async def test_accepting_what_nobody_answered_needs_a_reason(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001", criteria=["so"])
        desk.say(messages.FinishedReport, "task-0001", result=DONE)
        await desk.settle()
        assert await code(desk, "task.review", id="task-0001", verdict="accept", because=" ") == "malformed"
        assert desk.state("task-0001") == "waiting_review"
        await desk.answer("task.review", id="task-0001", verdict="accept", because="I looked")
        assert desk.state("task-0001") == "succeeded"
