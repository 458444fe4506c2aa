"""Giving a node another name. Its key stays, and so does everything that is known of it."""

from __future__ import annotations

from edgepanda.coordinator.book import Book
from edgepanda.coordinator.fleet import Fleet
from edgepanda.coordinator.leases import HOLDS
from edgepanda.coordinator.peers import PeersFile
from edgepanda.errors import EdgePandaError
from edgepanda.model.states import State
from edgepanda.trust.peers import PeersError

_OPEN = HOLDS | {State.UNCERTAIN}  # a report under the old name may still come


def rename(book: Book, fleet: Fleet, peers: PeersFile, old: str, new: str) -> None:
    """Rename the node on disk and in memory; the entry in the ledger is the caller's. Doing it again completes it.

    The list of peers is written first, and it alone decides: what follows is derived from it anew at each start. Tasks
    keep the name that they were submitted with, and go to the node that was called so.

    Raises `EdgePandaError`: `unknown_node`, `invalid_name`, `name_taken`, `node_busy`.
    """
    if peers.former.get(old) == new:
        return  # it is done
    _check_open(book, old)
    check_waiting(book, peers, new, old)
    peers.rename(old, new)
    fleet.rename(old, new)
    fleet.former = peers.former
    node = fleet.nodes.get(new)
    if node is not None:
        book.keep_node(node.row())


def _check_open(book: Book, old: str) -> None:
    held = [live.record.id for live in book.live.values() if live.record.node == old]
    held = [task for task in held if book.live[task].record.standing.state in _OPEN]
    if held:
        raise EdgePandaError(
            f"{old} has open attempts of {len(held)} tasks, {held[0]} for one; their reports would be lost",
            code="node_busy",
            where="name",
            cure=f"wait for them, or end them: edgepanda cancel {held[0]}",
        )


def check_waiting(book: Book, peers: PeersFile, name: str, called: str = "") -> None:
    """Tasks that wait for a node which was called `name` must not come to another one, which is `called` so far.

    Raises `PeersError` (`name_taken`).
    """
    now = peers.former.get(name)
    if now not in (None, called) and any(live.record.task.node == name for live in book.live.values()):
        raise PeersError(
            f"tasks wait for {now}, which was called {name!r}",
            code="name_taken",
            where="name",
            cure="choose another name, or end them: `edgepanda tasks --state queued` lists them",
        )
