"""Giving a node another name: nothing that is known of it, or waits for it, is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.coordinator.fleet import Fleet, rows_of
from edgepanda.coordinator.ledger import NodeRow
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer, PeerList
from edgepanda.wire import messages
from tests.rig.desk import Desk, at_desk, card

KEYS = {name: Identity.create() for name in ("n1", "n2")}


def let_in(desk: Desk) -> None:
    for name, key in KEYS.items():
        desk.peers.add(Peer(key=encode_key(key.public), name=name, role="node"))


async def renamed(desk: Desk, old: str, new: str) -> Any:
    return await desk.answer("node.rename", name=old, to=new)


async def test_card_and_queue_go_with_the_node(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        let_in(desk)
        node = desk.joins("n1")
        node.online = False
        await desk.submit("task-0001", "job.safe", node="n1")
        assert await renamed(desk, "n1", "lab") == {"revision": desk.peers.list.revision}
        assert list(desk.fleet.nodes) == ["lab"]
        assert {offer.node for offer in desk.fleet.all_offers()} == {"lab"}
        assert desk.state("task-0001") == "queued"
        desk.joins("lab", incarnation=2)
        await desk.settle()
        assert (desk.state("task-0001"), desk.record("task-0001").node) == ("leased", "lab")
        assert desk.record("task-0001").task.node == "n1"  # as it was submitted
        assert desk.kinds()[-2:] == ["renamed", "leased"]


@pytest.mark.parametrize("state", ["leased", "uncertain"])
async def test_a_node_with_open_attempts_keeps_its_name(tmp_path: Path, state: str) -> None:
    with at_desk(tmp_path) as desk:
        let_in(desk)
        node = desk.joins("n1")
        await desk.submit("task-0001", "job.unsafe")
        if state == "uncertain":
            desk.say(messages.Starting, "task-0001")
            await desk.settle()
            desk.joins("n1", incarnation=2)
            desk.say(messages.Interrupted, "task-0001", began=True)
            await desk.settle()
        assert desk.state("task-0001") == state
        assert await renamed(desk, "n1", "lab") == "node_busy"
        assert (node.name, "renamed" in desk.kinds()) == ("n1", False)


async def test_names_collide_and_nothing_is_changed(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        let_in(desk)
        before = desk.peers.list
        for old, new, code in (
            ("n1", "n2", "name_taken"),
            ("n9", "lab", "unknown_node"),
            ("n1", "Not/OK", "invalid_name"),
            ("me", "lab", "unknown_node"),
        ):
            assert await renamed(desk, old, new) == code
        assert desk.peers.list == before


async def test_a_name_that_tasks_wait_for_is_not_given_to_another_node(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        let_in(desk)
        for name in KEYS:
            desk.joins(name).online = False
        await desk.submit("task-0001", "job.safe", node="n1")
        await renamed(desk, "n1", "lab")
        assert await renamed(desk, "n2", "n1") == "name_taken"
        new = {"key": encode_key(Identity.create().public), "name": "n1", "role": "node"}
        assert await desk.answer("peers.add", peer=new) == "name_taken"
        assert await renamed(desk, "lab", "n1") != "name_taken"  # its own former one
        await renamed(desk, "n1", "lab")
        await desk.answer("task.cancel", id="task-0001")
        assert await renamed(desk, "n2", "n1") == {"revision": desk.peers.list.revision}


async def test_the_same_again_completes_it_and_changes_nothing(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        let_in(desk)
        desk.joins("n1")
        first = await renamed(desk, "n1", "lab")
        assert await renamed(desk, "n1", "lab") == first
        assert list(desk.fleet.nodes) == ["lab"]


def test_after_a_crash_what_is_known_is_found_under_the_new_name() -> None:
    """The list of peers was written, and the ledger was not."""
    peer = Peer(key=encode_key(KEYS["n1"].public), name="lab", role="node", formerly=("n1",))
    peers = PeerList(site="home", revision=2, peers=(peer,))
    row = NodeRow("n1", peer.kid, msgspec.json.encode(card("n1")), 1, 4)
    others = [NodeRow("n1", "anotherkey", None, 0, 0), NodeRow("x", peer.kid, None, 0, 0)]
    fleet = Fleet(rows_of(peers, [*others, row]))
    assert list(fleet.nodes) == ["lab"]
    assert (fleet.nodes["lab"].incarnation, {o.node for o in fleet.all_offers()}) == (4, {"lab"})
    newer = NodeRow("lab", peer.kid, None, 0, 5)
    assert rows_of(peers, [newer, row]) == rows_of(peers, [row, newer]) == [newer]
