"""The list of peers: who may change it, and how."""

from __future__ import annotations

import msgspec
import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import (
    Directory,
    Peer,
    PeerList,
    PeersError,
    add,
    check_list,
    former_names,
    rename,
    revoke,
    sign_list,
    vouch,
    vouched,
)

SITE, ALICE, BOB, CAROL, NODE = (Identity.create() for _ in range(5))


def peer(identity: Identity, name: str, role: str, **more: object) -> Peer:
    return Peer(key=encode_key(identity.public), name=name, role=role, **more)  # type: ignore[arg-type]


def listed(revision: int, *peers: Peer, site: str = "home", by: Identity = SITE) -> PeerList:
    return sign_list(by, PeerList(site=site, revision=revision, peers=peers))


def accept(new: PeerList, known: PeerList | None = None) -> PeerList:
    return check_list(new, site="home", site_key=SITE.public, known=known)


ALICE_IN = peer(ALICE, "alice", "operator")
KNOWN = listed(5, ALICE_IN, peer(NODE, "pi", "node"))


def refused(new: PeerList, code: str, known: PeerList | None = KNOWN) -> None:
    with pytest.raises(PeersError) as caught:
        accept(new, known)
    assert caught.value.code == code


def test_the_first_list_is_taken_on_the_sites_word():
    assert accept(KNOWN) is KNOWN


def test_the_same_revision_again_and_a_later_one_are_taken():
    accept(KNOWN, KNOWN)
    accept(listed(6, ALICE_IN), KNOWN)


def test_an_older_revision_is_refused():
    refused(listed(4, ALICE_IN), "peers_older")


@pytest.mark.parametrize(
    "forged",
    [
        listed(6, ALICE_IN, by=ALICE),
        listed(6, ALICE_IN, site="other"),
        msgspec.structs.replace(listed(6, ALICE_IN), revision=7),
        msgspec.structs.replace(listed(6, ALICE_IN), peers=()),
        msgspec.structs.replace(listed(6, ALICE_IN), signature=""),
        msgspec.structs.replace(listed(6, ALICE_IN), signature="no base 64 ä"),
    ],
)
@pytest.mark.parametrize("known", [None, KNOWN])
def test_a_list_that_the_site_did_not_sign_is_refused(forged, known):
    refused(forged, "peers_signature", known)


def test_an_operator_comes_in_by_an_operators_word_only():
    bob = peer(BOB, "bob", "operator")
    refused(listed(6, ALICE_IN, bob), "peers_operator")
    refused(listed(6, ALICE_IN, vouch(NODE, "home", bob)), "peers_operator")
    refused(listed(6, ALICE_IN, vouch(BOB, "home", bob)), "peers_operator")
    refused(listed(6, ALICE_IN, vouch(ALICE, "elsewhere", bob)), "peers_operator")
    accept(listed(6, ALICE_IN, vouch(ALICE, "home", bob)), KNOWN)


@pytest.mark.parametrize("change", [{"name": "bobby"}, {"key": encode_key(CAROL.public)}, {"role": "client"}])
def test_a_word_for_one_peer_is_none_for_another(change):
    bob = vouch(ALICE, "home", peer(BOB, "bob", "operator"))
    assert vouched("home", bob, KNOWN.peers)
    assert not vouched("home", msgspec.structs.replace(bob, **change), KNOWN.peers)


def test_a_node_does_not_become_an_operator_by_the_sites_word():
    refused(listed(6, ALICE_IN, peer(NODE, "pi", "operator")), "peers_operator")


def test_a_node_that_was_away_follows_a_chain_of_words():
    bob = vouch(ALICE, "home", peer(BOB, "bob", "operator"))
    carol = vouch(BOB, "home", peer(CAROL, "carol", "operator"))
    accept(listed(8, ALICE_IN, carol, bob), KNOWN)
    gone = msgspec.structs.replace(bob, revoked=True)
    accept(listed(9, ALICE_IN, carol, gone), KNOWN)
    refused(listed(8, ALICE_IN, carol), "peers_operator")


def test_a_circle_of_words_leads_nowhere():
    bob = vouch(CAROL, "home", peer(BOB, "bob", "operator"))
    carol = vouch(BOB, "home", peer(CAROL, "carol", "operator"))
    refused(listed(6, ALICE_IN, bob, carol), "peers_operator")


def test_a_revoked_operator_lets_nobody_in_and_does_not_come_back():
    alice_gone = msgspec.structs.replace(vouch(BOB, "home", ALICE_IN), revoked=True)
    known = listed(6, alice_gone, peer(BOB, "bob", "operator"))
    carol = vouch(ALICE, "home", peer(CAROL, "carol", "operator"))
    refused(listed(7, alice_gone, carol), "peers_operator", known)
    refused(listed(7, msgspec.structs.replace(alice_gone, revoked=False)), "peers_operator", known)
    accept(listed(7, alice_gone), known)


def test_a_list_with_a_broken_key_is_refused_before_anybody_uses_it():
    with pytest.raises(EdgePandaError) as caught:
        accept(listed(6, Peer(key="ed25519:short", name="x", role="node")))
    assert caught.value.code == "invalid_key"


def test_names_are_unique_until_revoked():
    with pytest.raises(PeersError) as caught:
        add(KNOWN, peer(BOB, "pi", "node"))
    assert caught.value.code == "name_taken"
    without = revoke(KNOWN, "pi")
    assert [p.name for p in add(without, peer(BOB, "pi", "node")).peers if not p.revoked] == ["alice", "pi"]


def test_each_change_is_a_new_unsigned_revision():
    more = add(KNOWN, peer(BOB, "bob", "client"))
    assert (more.revision, more.signature) == (6, "")
    less = revoke(more, "bob")
    assert (less.revision, less.signature) == (7, "")
    assert [p.revoked for p in less.peers] == [False, False, True]


def test_adding_the_same_key_again_replaces_its_entry():
    renamed = add(KNOWN, peer(NODE, "pi-2", "node"))
    assert [p.name for p in renamed.peers] == ["alice", "pi-2"]


def test_who_is_not_there_cannot_be_revoked():
    for peers in (KNOWN, revoke(revoke(KNOWN, "pi"), "alice")):
        with pytest.raises(PeersError) as caught:
            revoke(peers, "alice" if peers is not KNOWN else "nobody")
        assert caught.value.code == "unknown_peer"


def test_no_peer_with_a_broken_key_is_added():
    with pytest.raises(EdgePandaError, match="no public key"):
        add(KNOWN, Peer(key="ed25519:x", name="x", role="node"))


def test_the_directory_knows_the_site_and_forgets_the_revoked():
    directory = Directory(SITE.public)
    assert directory.get(SITE.kid).role == "site"
    assert directory.get(NODE.kid) is None
    directory.replace(KNOWN)
    assert (directory.get(NODE.kid).name, directory.key(NODE.kid)) == ("pi", NODE.public)
    directory.replace(revoke(KNOWN, "pi"))
    assert directory.get(NODE.kid) is directory.key(NODE.kid) is None
    assert directory.key(SITE.kid) == SITE.public


def test_nobody_becomes_the_site_by_an_entry_in_the_list():
    directory = Directory(SITE.public)
    directory.replace(listed(6, peer(BOB, "site", "site"), peer(SITE, "shadow", "node")))
    assert directory.get(BOB.kid) is None
    assert directory.get(SITE.kid).role == "site"


def test_a_renamed_node_keeps_its_key_and_is_known_by_its_former_names():
    first = rename(KNOWN, "pi", "lab")
    second = rename(first, "lab", "attic")
    (node,) = [p for p in second.peers if p.role == "node"]
    assert (node.name, node.key, node.formerly) == ("attic", encode_key(NODE.public), ("lab", "pi"))
    assert second.revision == KNOWN.revision + 2
    assert former_names(second) == {"lab": "attic", "pi": "attic"}
    accept(sign_list(SITE, second), KNOWN)
    back = rename(second, "attic", "pi")
    assert former_names(back) == {"attic": "pi", "lab": "pi"}
    assert former_names(revoke(back, "pi")) == {}


def test_a_former_name_that_somebody_takes_is_nobodys_former_one():
    renamed = rename(KNOWN, "pi", "lab")
    taken = add(renamed, peer(BOB, "pi", "node", formerly=("alice", "lab")))  # its own word is not believed
    assert former_names(taken) == {}
    assert former_names(add(renamed, peer(NODE, "lab", "node"))) == {"pi": "lab"}  # let in again


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [("nobody", "lab", "unknown_node"), ("alice", "lab", "unknown_node"), ("pi", "alice", "name_taken")],
)
def test_what_cannot_be_renamed(old: str, new: str, code: str):
    with pytest.raises(PeersError) as caught:
        rename(KNOWN, old, new)
    assert caught.value.code == code
