"""The site's list of peers, as the coordinator keeps it: a readable document, signed anew at each change."""

from __future__ import annotations

from pathlib import Path

import msgspec

from edgepanda.documents import Documents
from edgepanda.model.ids import check_name
from edgepanda.trust.identity import Identity
from edgepanda.trust.peers import (
    Directory,
    Peer,
    PeerList,
    PeersError,
    add,
    former_names,
    rename,
    revoke,
    sign_list,
    vouched,
)


class PeersFile:
    """Owns `peers.json`, and keeps the directory that the bus checks signatures against in step with it."""

    def __init__(self, path: Path, site: str, site_key: Identity) -> None:
        """Raises `DocumentError` and `StorageError` like `Documents`."""
        self._documents = Documents(path, exclusive=True)
        self._site_key = site_key
        self.directory = Directory(site_key.public)
        self.former: dict[str, str] = {}  # names that nodes have now, by those that they had before
        self.list = self._signed(self._load(site))

    def add(self, peer: Peer) -> None:
        """Let this peer in. An operator's entry needs the proof of a known operator, but for the first one.

        Raises `EdgePandaError`: `invalid_name`, `invalid_key`, `name_taken`, `peers_operator`.
        """
        check_name(peer.name, "peer.name")
        operators = [p for p in self.list.peers if p.role == "operator"]
        if peer.role == "operator" and operators and not vouched(self.list.site, peer, operators):
            raise PeersError("an operator's entry must be signed by an operator", code="peers_operator", where="peer")
        self._keep(add(self.list, peer))

    def revoke(self, name: str) -> None:
        """Let this peer in no longer. Raises `PeersError` (`unknown_peer`)."""
        self._keep(revoke(self.list, name))

    def rename(self, old: str, new: str) -> None:
        """Give a node another name. Raises `PeersError`: `invalid_name`, `unknown_node`, `name_taken`."""
        self._keep(rename(self.list, old, check_name(new, "to")))

    def close(self) -> None:
        """Give up the right to write."""
        self._documents.close()

    def _load(self, site: str) -> PeerList:
        stored = self._documents.single("peers")
        if stored is None:
            return PeerList(site=site, revision=0, peers=())
        return msgspec.convert({**stored, "site": site}, PeerList)

    def _keep(self, peers: PeerList) -> None:
        """One document, so that a list is never half written."""
        stored = {"revision": peers.revision, "peers": [msgspec.to_builtins(p) for p in peers.peers]}
        self._documents.keep_single("peers", stored)
        self.list = self._signed(peers)

    def _signed(self, peers: PeerList) -> PeerList:
        self.directory.replace(peers)
        self.former = former_names(peers)
        return sign_list(self._site_key, peers)
