"""What the coordinator remembers of stops that it never heard of."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edgepanda.coordinator.stops import SiteStops
from edgepanda.model.stops import Stop
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Directory, Peer, PeerList
from edgepanda.trust.release import sign_release
from edgepanda.wire import requests

OPERATOR = Identity.create()


def node(name: str, *stops: Stop) -> Any:
    return SimpleNamespace(name=name, kid=f"kid-{name}", online=True, stops=stops)


def site(folder: Path, *nodes: Any) -> SiteStops:
    directory = Directory(Identity.create().public)
    me = Peer(key=encode_key(OPERATOR.public), name="me", role="operator")
    directory.replace(PeerList(site="home", revision=1, peers=(me,)))
    book: Any = SimpleNamespace(decision=lambda *_: None)
    fleet: Any = SimpleNamespace(nodes={each.name: each for each in nodes})
    return SiteStops(
        folder / "stops.json",
        book=book,
        fleet=fleet,
        directory=directory,
        site="home",
        kid="kid-site",
        send=lambda *_: None,
    )


def stop(name: str, origin: str) -> Stop:
    return Stop(id=name, at=0.0, door="site", origin=origin)


def release(stops: SiteStops, **ids: str) -> None:
    parts = {}
    for name, stop_id in ids.items():
        proof = sign_release(OPERATOR, "home", f"kid-{name}", (stop_id,))
        parts[f"kid-{name}"] = requests.ReleaseParams(ids=(stop_id,), by=OPERATOR.kid, proof=proof)
    sender = Peer(key=encode_key(OPERATOR.public), name="me", role="operator")
    stops.release(requests.Release(parts=parts, because="seen"), sender, lambda _answer: None)()


async def test_a_stop_that_only_nodes_heard_is_not_taken_once_all_have_released_it(tmp_path: Path) -> None:
    stops = site(tmp_path, node("one", stop("a", "o1")), node("two", stop("b", "o1")))
    release(stops, one="a", two="b")
    stops._take(by="me", reason="", origin="o1")  # it comes late
    assert stops.standing == ()
    stops.close()


async def test_it_is_taken_while_another_node_has_it_in_force(tmp_path: Path) -> None:
    stops = site(tmp_path, node("one", stop("a", "o1")), node("two", stop("b", "o1")))
    release(stops, one="a")
    stops._take(by="me", reason="", origin="o1")
    assert [each.origin for each in stops.standing] == ["o1"]
    release(stops, one="a")  # nothing more than at that node
    assert stops.standing
    stops.close()
