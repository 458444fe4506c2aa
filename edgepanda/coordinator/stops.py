"""Emergency stops as the coordinator keeps them: recorded, told to every node, released by an operator's signature."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.coordinator.book import Book
from edgepanda.coordinator.fleet import Fleet, Node
from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.model.stops import Stop, plain_reason
from edgepanda.stops_file import StopsFile
from edgepanda.trust.peers import Directory, Peer
from edgepanda.trust.release import check_release
from edgepanda.wire import messages, requests, topics
from edgepanda.wire.bus import Bus, Message

SAY_AGAIN = 0.05  # seconds in which stops that come together are told once

Send = Callable[[str, messages.Body, bool], None]


class SiteStops:
    """The stops of the whole site. Those that nodes have of their own are in the fleet, as their status says."""

    def __init__(
        self, path: Path, *, book: Book, fleet: Fleet, directory: Directory, site: str, kid: str, send: Send
    ) -> None:
        self._book, self._fleet, self._directory = book, fleet, directory
        self._site, self._kid, self._send = site, kid, send
        self._bus: Bus | None = None
        self._saying: asyncio.TimerHandle | None = None
        self._outdated = False  # what the broker retains may be something else than what is in force
        self._file = StopsFile(path, on_stop=lambda: None, on_change=self._changed)

    @property
    def standing(self) -> tuple[Stop, ...]:
        """Those in force, oldest first."""
        return self._file.stops.standing

    def subscribe(self, bus: Bus) -> None:
        """Hear and say stops on this bus."""
        self._bus = bus
        bus.subscribe(topics.STOP, self._on_stop, plain=self._on_plain)

    def greet(self, node: Node) -> None:
        """A node has come, or come again: before anything else it hears what is in force."""
        if self.standing:
            self._send(node.name, self._body(), False)

    def say(self) -> None:
        """Put what is in force on the broker, also where that has forgotten it, or remembers what has ended since."""
        if self._bus is None or not self._bus.up:
            return
        if self.standing:
            self._bus.retain(topics.STOP, self._body())
        elif self._outdated:
            self._bus.clear(topics.STOP)
        self._outdated = False

    def close(self) -> None:
        """Give up the right to write."""
        if self._saying is not None:
            self._saying.cancel()
        self._file.close()

    # requests

    def listed(self) -> dict[str, Any]:
        """All stops in force: the site's, and each node's, with whose signature may release them: a key id each."""
        nodes = {
            node.name: {"kid": node.kid, "online": node.online, "stops": msgspec.to_builtins(node.stops)}
            for node in sorted(self._fleet.nodes.values(), key=lambda node: node.name)
        }
        return {"site": {"kid": self._kid, "stops": msgspec.to_builtins(self.standing)}, "nodes": nodes}

    def release(self, asked: requests.Release, sender: Peer, answer: Callable[[Any], None]) -> Callable[[], None]:
        """Check it and record it; gives what is to be done once that is on disk. Raises `EdgePandaError`."""
        for kid, part in asked.parts.items():
            check_release(self._directory, self._site, kid, part.ids, by=part.by, proof=part.proof)
        names = {node.kid: node.name for node in self._fleet.nodes.values()}
        unknown = [kid for kid in asked.parts if kid != self._kid and kid not in names]
        if unknown:
            raise EdgePandaError(
                f"no node has the key {unknown[0]!r}",
                code="unknown_node",
                where="parts",
                cure="`edgepanda nodes` lists the nodes",
            )
        shown = {names.get(kid, "site"): list(part.ids) for kid, part in asked.parts.items()}
        self._book.decision("stop_released", {"by": sender.name, "because": asked.because, "stops": shown})

        unheard = self._unheard({kid: part.ids for kid, part in asked.parts.items()})

        def done() -> None:
            self._file.release(unheard, sender.name)
            for kid, part in asked.parts.items():
                if kid == self._kid:
                    self._file.release(part.ids, sender.name)
                else:
                    body = messages.Release(id=new_id(), ids=part.ids, by=part.by, proof=part.proof)
                    self._send(names[kid], body, True)
            answer(self.listed())

        return done

    def _unheard(self, asked: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The origins of these stops of nodes that never came here, and that no other node has in force: they are to be
        remembered as released here too, or a late or repeated message would stop the site anew.
        """
        here = {each.origin for each in self.standing}
        ending: set[str] = set()
        staying: set[str] = set()
        for node in self._fleet.nodes.values():
            for each in node.stops:
                (ending if each.id in asked.get(node.kid, ()) else staying).add(each.origin)
        return tuple(sorted(ending - staying - here - {""}))

    # what comes in

    def _on_stop(self, message: Message) -> None:
        if isinstance(message.body, messages.EmergencyStop):
            stop: messages.EmergencyStop = message.body
            self._take(by=message.sender.name, reason=stop.reason, origin=stop.id)
        elif message.retained:
            self._outdated = True  # what we have said ourselves: if it is not so any more, `say` takes it away

    def _on_plain(self, payload: bytes) -> None:
        self._take(by="", reason=plain_reason(payload), origin="")

    def _take(self, *, by: str, reason: str, origin: str) -> None:
        before = self.standing
        self._file.stop(door="site", by=by, reason=reason, origin=origin)
        for new in self.standing:
            if new not in before:
                self._book.decision("stopped", {"id": new.id, "by": by, "reason": new.reason})

    def _changed(self) -> None:
        if self._saying is None:
            self._saying = asyncio.get_running_loop().call_later(SAY_AGAIN, self._say_changed)

    def _say_changed(self) -> None:
        self._saying, self._outdated = None, True
        self.say()

    def _body(self) -> messages.Standing:
        return messages.Standing(id=new_id(), stops=self.standing)
