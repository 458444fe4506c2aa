"""Whom a node obeys: never a lower epoch, another ledger, or one that lacks what was seen of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from edgepanda.model.head import Head
from edgepanda.node.journal import Journal
from edgepanda.node.site import Site
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer, PeerList, add, sign_list, vouch


class Place:
    """A node's site on disk, and the site's own key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = Identity.load_or_create(folder / "site.key")
        self.me = Peer(key=encode_key(Identity.load_or_create(folder / "me.key").public), name="n1", role="node")
        self.open()

    def open(self) -> None:
        self.journal = Journal.open(self.folder / "journal.db")
        self.site = Site(self.folder / "peers.json", name="home", key=self.key.public, me=self.me, journal=self.journal)

    def close(self) -> None:
        self.site.close()
        self.journal.close()

    def restart(self) -> None:
        self.close()
        self.open()

    def peers(self, *peers: Peer, revision: int = 0) -> PeerList:
        made = PeerList(site="home", revision=revision, peers=())
        for peer in peers:
            made = add(made, peer)
        return sign_list(self.key, made)

    def peer(self, name: str, role: str = "node") -> Peer:
        key = Identity.load_or_create(self.folder / f"{name}.key").public
        return msgspec.convert({"key": encode_key(key), "name": name, "role": role}, Peer)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


async def test_a_coordinator_is_met_and_then_proves_itself(place: Place) -> None:
    assert await place.site.meet(3, "ledger")
    assert (place.site.epoch, place.site.proven) == (3, False)
    assert place.site.prove(Head("ledger", 10, "h"))
    assert (place.site.proven, place.site.problem) == (True, None)
    assert await place.site.meet(3, "ledger")
    assert place.site.proven
    assert await place.site.meet(4, "ledger")
    assert (place.site.epoch, place.site.proven) == (4, False)


@pytest.mark.parametrize(("epoch", "ledger", "code"), [(2, "ledger", "epoch_stale"), (9, "another", "ledger_foreign")])
async def test_an_older_or_another_one_is_refused_also_after_a_restart(
    place: Place, epoch: int, ledger: str, code: str
) -> None:
    await place.site.meet(3, "ledger")
    place.site.prove(Head("ledger", 10, "h"))
    assert not await place.site.meet(epoch, ledger)
    assert (place.site.epoch, place.site.proven, place.site.problem) == (3, True, None)
    place.restart()
    assert not await place.site.meet(epoch, ledger)
    assert place.site.problem is not None
    assert (place.site.problem.code, place.site.epoch) == (code, 0)
    assert await place.site.meet(3, "ledger")


async def test_a_ledger_that_lacks_what_was_seen_is_not_obeyed(place: Place) -> None:
    await place.site.meet(3, "ledger")
    place.site.prove(Head("ledger", 10, "h"))
    await place.site.meet(4, "ledger")
    assert not place.site.prove(Head("ledger", 9, "h"))
    assert place.site.problem is not None
    assert (place.site.problem.code, place.site.epoch, place.site.proven) == ("ledger_behind", 0, False)
    await place.site.meet(4, "ledger")
    assert place.site.prove(Head("ledger", 11, "h"))
    assert place.site.problem is None


async def test_who_is_away_must_prove_itself_anew(place: Place) -> None:
    await place.site.meet(3, "ledger")
    place.site.prove(Head("ledger", 10, "h"))
    place.site.lost()
    assert (place.site.epoch, place.site.proven) == (0, False)


async def test_a_list_of_peers_replaces_ours_only_if_it_may(place: Place) -> None:
    one, two = place.peer("one"), place.peer("two")
    place.site.take_peers(place.peers(one, revision=5))
    assert place.site.directory.get(one.kid) == one
    stranger = Identity.load_or_create(place.folder / "stranger.key")
    for wrong in (
        place.peers(one, two, revision=3),
        sign_list(stranger, place.peers(two, revision=9)),
        sign_list(place.key, msgspec.structs.replace(place.peers(two, revision=9), site="away")),
    ):
        place.site.take_peers(wrong)
        assert place.site.directory.get(two.kid) is None
    place.restart()
    assert place.site.directory.get(one.kid) == one
    place.site.take_peers(place.peers(two, revision=9))
    assert (place.site.directory.get(one.kid), place.site.directory.get(two.kid)) == (None, two)


async def test_only_an_operator_lets_in_an_operator(place: Place) -> None:
    first, second = place.peer("first", "operator"), place.peer("second", "operator")
    place.site.take_peers(place.peers(first))
    place.site.take_peers(place.peers(first, second, revision=3))
    assert place.site.directory.get(second.kid) is None
    by_first = vouch(Identity.load_or_create(place.folder / "first.key"), "home", second)
    place.site.take_peers(place.peers(first, by_first, revision=3))
    assert place.site.directory.get(second.kid) == by_first


async def test_a_list_that_is_known_is_not_written_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = place.peers(place.peer("one"))
    place.site.take_peers(peers)
    written: list[str] = []
    table = place.site._documents.table
    monkeypatch.setattr(place.site._documents, "table", lambda name: (written.append(name), table(name))[1])
    place.site.take_peers(peers)
    assert written == []
