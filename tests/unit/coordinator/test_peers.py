"""The list of peers: kept, signed anew at each change, and the directory in step with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepanda.coordinator.peers import PeersFile
from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer, check_list, vouch


def identity(folder: Path, name: str) -> Identity:
    return Identity.load_or_create(folder / f"{name}.key")


def peer(folder: Path, name: str, role: str = "node") -> Peer:
    return Peer(key=encode_key(identity(folder, name).public), name=name, role=role)  # type: ignore[arg-type]


def opened(folder: Path) -> PeersFile:
    return PeersFile(folder / "peers.json", "home", identity(folder, "site"))


def test_a_list_survives_a_restart_and_nodes_accept_it(tmp_path: Path) -> None:
    peers = opened(tmp_path)
    peers.add(peer(tmp_path, "desk"))
    first = peers.list
    peers.add(peer(tmp_path, "shed"))
    peers.close()
    again = opened(tmp_path)
    assert again.list == peers.list
    assert (again.list.revision, [p.name for p in again.list.peers]) == (2, ["desk", "shed"])
    key = identity(tmp_path, "site").public
    assert check_list(again.list, site="home", site_key=key, known=first) == again.list
    with pytest.raises(EdgePandaError, match="older"):
        check_list(first, site="home", site_key=key, known=again.list)
    again.close()


def test_who_is_revoked_is_in_the_directory_no_more_and_may_come_back(tmp_path: Path) -> None:
    peers = opened(tmp_path)
    desk = peer(tmp_path, "desk")
    peers.add(desk)
    assert peers.directory.get(desk.kid) == desk
    peers.revoke("desk")
    assert peers.directory.get(desk.kid) is None
    with pytest.raises(EdgePandaError):
        peers.revoke("desk")
    peers.add(desk)
    assert peers.directory.key(desk.kid) == desk.public
    peers.close()


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "Desk", "x" * 33])
def test_a_name_that_is_no_level_of_a_topic_is_refused(tmp_path: Path, name: str) -> None:
    peers = opened(tmp_path)
    with pytest.raises(EdgePandaError) as caught:
        peers.add(Peer(key=peer(tmp_path, "desk").key, name=name, role="node"))
    assert caught.value.code == "invalid_name"
    assert peers.list.revision == 0
    peers.close()


def test_a_name_is_taken_once_and_the_second_operator_needs_the_first(tmp_path: Path) -> None:
    peers = opened(tmp_path)
    peers.add(peer(tmp_path, "one", "operator"))
    second = peer(tmp_path, "two", "operator")
    for wrong, code in (
        (second, "peers_operator"),
        (vouch(identity(tmp_path, "else"), "home", second), "peers_operator"),
        (vouch(identity(tmp_path, "one"), "away", second), "peers_operator"),
        (Peer(key=second.key, name="one", role="node"), "name_taken"),
    ):
        with pytest.raises(EdgePandaError) as caught:
            peers.add(wrong)
        assert caught.value.code == code
    peers.add(vouch(identity(tmp_path, "one"), "home", second))
    assert [p.name for p in peers.list.peers] == ["one", "two"]
    peers.close()
