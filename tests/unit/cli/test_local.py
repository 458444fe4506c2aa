"""`do` without the coordinator: what the node's own socket may take over, and what it may not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edgepanda.cli.common import Settings
from edgepanda.cli.do import _locally, _Try
from edgepanda.cli.local import LocalNode
from edgepanda.errors import EdgePandaError
from edgepanda.node.socket import LocalSocket

AWAY = EdgePandaError("no answer to task.submit within 3 s", code="no_answer", where="mqtt://127.0.0.1:1883")


def card(replay: str) -> dict[str, Any]:
    action = {"tier": 1, "replay": replay, "args": {"properties": {"angle": {"type": "number"}}, "required": ["angle"]}}
    return {
        "node": "desk",
        "revision": 1,
        "incarnation": 1,
        "drivers": {"servo": {"actions": {"move": action}}},
        "devices": {"pan": {"driver": "servo", "state": "ready"}},
    }


class Node:
    """A node's socket with a card, and what was asked of it."""

    def __init__(self, folder: Path, replay: str = "safe") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "edgepanda.toml"
        self.config.write_text("[node]\n")
        self.asked: list[dict[str, Any]] = []
        self.path = folder / ".edgepanda/run/node.sock"
        self._card = card(replay)
        self.socket = LocalSocket(self.path, {"status": self._status, "do": self._do})

    async def _status(self, _params: dict[str, Any]) -> dict[str, Any]:
        return {"card": self._card}

    async def _do(self, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(params)
        return {"task": params["id"], "result": {"outcome": "succeeded", "value": 1, "evidence": [{"kind": "x"}]}}

    def attempt(self, target: str, *words: str) -> _Try:
        return _Try(Settings(str(self.config), False, None, False), target, words, {}, "task-00000001")


async def tried(node: Node, attempt: _Try) -> int:
    await node.socket.start()
    try:
        return await _locally(attempt, AWAY)
    finally:
        await node.socket.stop()


async def test_the_node_does_it_with_the_same_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = Node(tmp_path)
    assert await tried(node, node.attempt("pan.move", "30")) == 0
    assert node.asked == [{"device": "pan", "action": "move", "args": {"angle": 30.0}, "id": "task-00000001"}]
    told = capsys.readouterr()
    assert "desk does it alone" in told.err
    assert "directly" in told.out


@pytest.mark.parametrize(("replay", "published"), [("safe", True), ("safe", False), ("unsafe", False)])
async def test_what_may_be_done_alone(replay: str, published: bool, tmp_path: Path) -> None:
    node = Node(tmp_path, replay)
    attempt = node.attempt("desk/pan.move", "30")
    attempt.published = published
    assert await tried(node, attempt) == 0


async def test_an_unsafe_action_that_was_published_is_not_done_again(tmp_path: Path) -> None:
    node = Node(tmp_path, "unsafe")
    attempt = node.attempt("pan.move", "30")
    attempt.published = True
    with pytest.raises(EdgePandaError) as caught:
        await tried(node, attempt)
    assert caught.value.code == "no_answer"
    assert "edgepanda show task-00000001" in caught.value.cure
    assert node.asked == []


async def test_another_nodes_device_keeps_the_sites_error(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with pytest.raises(EdgePandaError) as caught:
        await tried(node, node.attempt("shed/pan.move", "30"))
    assert caught.value is AWAY


async def test_without_a_node_the_sites_error_stays(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with pytest.raises(EdgePandaError) as caught:
        await _locally(node.attempt("pan.move", "30"), AWAY)
    assert caught.value is AWAY


async def test_what_the_node_refuses_comes_through(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.socket.start()
    try:
        with pytest.raises(EdgePandaError) as caught:
            await LocalNode(node.path).request("fly", {})
    finally:
        await node.socket.stop()
    assert caught.value.code == "unsupported"


async def test_a_socket_in_a_deep_folder(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    node = Node(deep)
    assert len(str(node.path)) > 150
    assert await tried(node, node.attempt("pan.move", "30")) == 0
    assert not node.path.exists()


async def test_a_node_that_does_not_answer_is_waited_for_only_so_long(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    held = asyncio.Event()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    async with server:
        with pytest.raises(EdgePandaError) as caught:
            await LocalNode(path).request("status", {}, within=0.1)
        held.set()
    assert caught.value.code == "no_answer"
