"""Peers of a site: values, and the rules for accepting a new list."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Literal

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity, decode_key, encode_key, key_id, verify

Role = Literal["site", "node", "operator", "client", "voice", "home_approver"]
Trust = Literal["mesh", "guarded", "open"]


class PeersError(EdgePandaError):
    """A list that must not be taken: `peers_signature`, `peers_older`, `peers_operator`, `name_taken`."""

    code = "peers_signature"


class Peer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Somebody who may speak at the site. `added_by` and `proof` show which operator let an operator in; `formerly` has
    the names that a node had before, as long as nobody else has taken them.
    """

    key: str
    name: str
    role: Role
    trust: Trust = "mesh"
    revoked: bool = False
    added_by: str = ""
    proof: str = ""
    formerly: tuple[str, ...] = ()

    @property
    def kid(self) -> str:
        """The short id of this peer's key."""
        return key_id(self.public)

    @property
    def public(self) -> bytes:
        """The key's 32 bytes."""
        return decode_key(self.key)


class PeerList(msgspec.Struct, frozen=True, kw_only=True):
    """All peers, with a revision that only rises, signed by the site's key."""

    site: str
    revision: int
    peers: tuple[Peer, ...]
    signature: str = ""


def _proof_text(site: str, peer: Peer) -> bytes:
    return b"\0".join([b"edgepanda-peer-v1", site.encode(), peer.key.encode(), peer.name.encode(), peer.role.encode()])


def vouch(operator: Identity, site: str, peer: Peer) -> Peer:
    """The peer with an operator's signature under key, name and role."""
    proof = base64.b64encode(operator.sign(_proof_text(site, peer))).decode()
    return msgspec.structs.replace(peer, added_by=operator.kid, proof=proof)


def vouched(site: str, peer: Peer, operators: Iterable[Peer]) -> bool:
    """True if one of these operators signed this peer's entry."""
    by = {o.kid: o for o in operators if o.role == "operator" and not o.revoked}.get(peer.added_by)
    try:
        signature = base64.b64decode(peer.proof, validate=True)
    except ValueError:
        return False
    return by is not None and verify(by.public, _proof_text(site, peer), signature)


def _list_text(peers: PeerList) -> bytes:
    return b"edgepanda-peers-v1\0" + msgspec.json.encode(msgspec.structs.replace(peers, signature=""))


def sign_list(site_key: Identity, peers: PeerList) -> PeerList:
    """The list with the site's signature."""
    signature = base64.b64encode(site_key.sign(_list_text(peers))).decode()
    return msgspec.structs.replace(peers, signature=signature)


def check_list(new: PeerList, *, site: str, site_key: bytes, known: PeerList | None) -> PeerList:
    """The new list, if it may replace the known one.

    Raises `PeersError`: the site's signature is wrong, the revision is lower than the known one's, or it holds an
    operator for whom nobody has vouched: an operator who was known before, or one for whom such an operator vouched
    (a node that was away sees several additions at once). The first list is trusted on the site's word. Raises
    `EdgePandaError` (`invalid_key`) where a peer's key is none.
    """
    try:
        signature = base64.b64decode(new.signature, validate=True)
    except ValueError:
        signature = b""
    if new.site != site or not verify(site_key, _list_text(new), signature):
        raise PeersError("the list of peers is not signed by this site", where=new.site)
    for peer in new.peers:
        decode_key(peer.key)
    if known is None:
        return new
    if new.revision < known.revision:
        raise PeersError(
            f"revision {new.revision} is older than {known.revision}", code="peers_older", where="revision"
        )
    accepted = _accepted_operators(new, known)
    for peer in new.peers:
        if peer.role == "operator" and not peer.revoked and peer.key not in accepted:
            raise PeersError(
                f"no operator vouched for the operator {peer.name!r}", code="peers_operator", where=peer.name
            )
    return new


def _accepted_operators(new: PeerList, known: PeerList) -> set[str]:
    """Keys of the operators known before, and of those that the new list leads back to them."""
    trusted = [p for p in known.peers if p.role == "operator" and not p.revoked]
    gone = {p.key for p in known.peers if p.role == "operator" and p.revoked}
    waiting = [p for p in new.peers if p.role == "operator"]
    while found := [p for p in waiting if vouched(new.site, p, trusted)]:
        waiting = [p for p in waiting if p not in found]
        # one who was revoked since may have vouched before; one known to be revoked does not return with an old proof
        trusted += [msgspec.structs.replace(p, revoked=False) for p in found if p.key not in gone]
    return {p.key for p in trusted}


def add(peers: PeerList, peer: Peer) -> PeerList:
    """The next revision with this peer in it. Raises `PeersError` (`name_taken`) when another key has the name."""
    decode_key(peer.key)
    former = {name for known in peers.peers if known.key == peer.key for name in known.formerly}
    return _put(peers, msgspec.structs.replace(peer, formerly=tuple(sorted(former - {peer.name}))))


def rename(peers: PeerList, old: str, new: str) -> PeerList:
    """The next revision with a node under another name. Raises `PeersError`: `unknown_node`, `name_taken`."""
    found = [p for p in peers.peers if p.name == old and p.role == "node" and not p.revoked]
    if not found:
        raise PeersError(
            f"there is no node {old!r}", code="unknown_node", where="name", cure="`edgepanda nodes` lists the nodes"
        )
    former = {*found[0].formerly, old} - {new}
    return _put(peers, msgspec.structs.replace(found[0], name=new, formerly=tuple(sorted(former))))


def _put(peers: PeerList, peer: Peer) -> PeerList:
    """The next revision with this entry for its key; a name that it takes is nobody's former one any longer."""
    for other in peers.peers:
        if other.name == peer.name and other.key != peer.key and not other.revoked:
            raise PeersError(
                f"another peer is called {peer.name!r}",
                code="name_taken",
                where="name",
                cure=f"choose another name, or first `edgepanda nodes remove {peer.name}` if its key was made anew",
            )
    kept = []
    for other in peers.peers:
        former = tuple(name for name in other.formerly if name != peer.name)
        if other.key != peer.key:
            kept.append(msgspec.structs.replace(other, formerly=former))
    return msgspec.structs.replace(peers, revision=peers.revision + 1, peers=(*kept, peer), signature="")


def former_names(peers: PeerList) -> dict[str, str]:
    """The name that each renamed node has now, by those that it had before."""
    return {former: peer.name for peer in peers.peers if not peer.revoked for former in peer.formerly}


def revoke(peers: PeerList, name: str) -> PeerList:
    """The next revision with the peer of this name revoked. Raises `PeersError` (`unknown_peer`)."""
    if name not in {p.name for p in peers.peers if not p.revoked}:
        raise PeersError(
            f"there is no peer {name!r}", code="unknown_peer", where="name", cure="`edgepanda nodes` lists the nodes"
        )
    changed = tuple(msgspec.structs.replace(p, revoked=True) if p.name == name else p for p in peers.peers)
    return msgspec.structs.replace(peers, revision=peers.revision + 1, peers=changed, signature="")


class Directory:
    """The peers by key id, as the wire asks for them; the site itself, and who asks, are always known."""

    def __init__(self, site_key: bytes, me: Peer | None = None) -> None:
        self._always = [Peer(key=encode_key(site_key), name="site", role="site"), *([me] if me else [])]
        self._by_kid: dict[str, Peer] = {}
        self._keys: dict[str, bytes] = {}
        self.replace(None)

    def replace(self, peers: PeerList | None) -> None:
        """Take these peers; the revoked ones are left out."""
        listed = [p for p in (peers.peers if peers else ()) if not p.revoked and p.role != "site"]
        self._by_kid = {p.kid: p for p in [*listed, *self._always]}
        self._keys = {kid: p.public for kid, p in self._by_kid.items()}

    def get(self, kid: str) -> Peer | None:
        """The peer with this key id, unless revoked."""
        return self._by_kid.get(kid)

    def key(self, kid: str) -> bytes | None:
        """Its public key."""
        return self._keys.get(kid)
