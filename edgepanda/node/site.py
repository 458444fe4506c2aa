"""What a node believes of its site: which coordinator it obeys, and who the peers are."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from edgepanda.documents import Documents
from edgepanda.errors import EdgePandaError
from edgepanda.model.head import Head
from edgepanda.node.journal import Journal
from edgepanda.trust.peers import Directory, Peer, PeerList, check_list

log = logging.getLogger("edgepanda.node")


def name_at_site(path: Path, key: str) -> str:
    """The name that the list of peers in this file has for a key; empty if there is none. The file may be in use."""
    return _name_of(_stored(Documents(path)), key)


def _stored(documents: Documents) -> PeerList | None:
    stored = documents.single("peers")
    return msgspec.convert(stored, PeerList) if stored else None


def _name_of(peers: PeerList | None, key: str) -> str:
    listed = peers.peers if peers is not None else ()
    return next((p.name for p in listed if p.key == key and not p.revoked), "")


class Site:
    """Checks coordinators against what this node has seen before, and lists of peers against the last one."""

    def __init__(self, path: Path, *, name: str, key: bytes, me: Peer, journal: Journal) -> None:
        self._documents = Documents(path, exclusive=True)
        self._name, self._key, self._me, self._journal = name, key, me, journal
        self._waited = 0  # beats since we claim work, without an answer
        self.epoch = 0  # of the coordinator that we claim work from now; 0: none
        self.proven = False  # it has answered a claim of ours, so its leases are obeyed
        self.problem: EdgePandaError | None = None  # why we obey none
        self._peers = _stored(self._documents)
        self._me = msgspec.structs.replace(me, name=self.name_here or me.name)
        self.directory = Directory(key, self._me)
        self.directory.replace(self._peers)

    @property
    def name_here(self) -> str:
        """The name that the site's list of peers has for this node's key; empty if it has none."""
        return _name_of(self._peers, self._me.key)

    @property
    def revision(self) -> int:
        """Of the list of peers; 0: there is none yet."""
        return self._peers.revision if self._peers is not None else 0

    async def meet(self, epoch: int, ledger: str) -> bool:
        """A coordinator of this ledger and epoch speaks. True if we may claim work from it.

        Refused: another ledger than the accepted one, a lower epoch. What it said may be a repetition of long ago, so
        nothing else is believed until it has proved itself (`prove`).
        """
        try:
            await self._journal.note_coordinator(ledger, epoch)
        except EdgePandaError as error:
            if error.code in ("ledger_foreign", "epoch_stale"):
                if not self.epoch:
                    self._refuse(error)
                return False
            log.error("the coordinator's epoch cannot be kept: %s [%s]", error, error.code)
        if epoch != self.epoch:
            self.epoch, self.proven = epoch, False
        return True

    def prove(self, head: Head) -> bool:
        """The coordinator has answered a claim that we had just made with its head: so it lives, and this is its ledger
        now. False if that lacks what we have seen of it (`ledger_behind`): it is not obeyed.
        """
        try:
            self._check_height(head)
        except EdgePandaError as error:
            self._refuse(error)
            return False
        self._journal.see(head)
        self.problem, self.proven, self._waited = None, True, 0
        return True

    def unanswered(self) -> None:
        """At a beat no claim has been answered yet. The second time in a row it is said, once until an answer comes."""
        self._waited += 1 if self.epoch else 0
        if self._waited > 1 and self.problem is None:
            self.problem = EdgePandaError(
                "the coordinator does not answer this node: it is gone, or does not know this node's key",
                code="not_let_in",
                where="claim",
                cure=f"at the site, as an operator: edgepanda nodes add {self._me.name} {self._me.key}",
            )
            log.warning("%s [%s]", self.problem, self.problem.code)

    def lost(self) -> None:
        """The coordinator is away."""
        self.epoch, self.proven, self._waited = 0, False, 0

    def _refuse(self, error: EdgePandaError) -> None:
        if self.problem is None or self.problem.code != error.code:
            log.error("this coordinator is not obeyed: %s [%s]", error, error.code)
        self.problem = error
        self.lost()

    def _check_height(self, head: Head) -> None:
        witness = self._journal.witness(head.ledger)
        if witness is not None and head.height < witness.height:
            raise EdgePandaError(
                f"its ledger has {head.height} entries, this node has seen {witness.height}",
                code="ledger_behind",
                where=head.ledger,
                cure="an older copy was brought back: bring back the newest, or accept this one with "
                f"`edgepanda node --accept-ledger {head.ledger}`",
            )

    def take_peers(self, peers: PeerList) -> None:
        """The site's list of peers, if it may replace ours. A refused one is logged."""
        try:
            accepted = check_list(peers, site=self._name, site_key=self._key, known=self._peers)
        except EdgePandaError as error:
            log.warning("a list of peers is refused: %s [%s]", error, error.code)
            return
        if accepted == self._peers:
            return  # said again: nothing to write
        self._peers = accepted
        self.directory.replace(accepted)
        try:
            self._documents.keep_single("peers", msgspec.to_builtins(accepted))
        except EdgePandaError as error:
            log.error("the list of peers cannot be kept: %s [%s]", error, error.code)

    def close(self) -> None:
        """Give up the right to write."""
        self._documents.close()
