"""Emergency stop at a node: who may stop it (anyone), what that does at once, and who may release it (an operator)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.model.stops import Stop, plain_reason
from edgepanda.node.attempts import Attempts
from edgepanda.node.devices import Devices
from edgepanda.node.methods import Method, converted
from edgepanda.stops_file import StopsFile
from edgepanda.trust.peers import Directory
from edgepanda.trust.release import check_release
from edgepanda.wire import messages, topics
from edgepanda.wire.bus import Bus, Message
from edgepanda.wire.requests import ReleaseParams, StopParams

log = logging.getLogger("edgepanda.node")


class Emergency:
    """The stops in force here. While there is one, nothing that acts begins (`Attempts.may_actuate`)."""

    def __init__(
        self,
        path: Path,
        *,
        site: str,
        kid: str,
        directory: Directory,
        devices: Devices,
        attempts: Attempts,
        on_change: Callable[[], None],
    ) -> None:
        """`kid`: the key id of this node. `on_change`: the set differs; claim and status must be said anew."""
        self._site, self._kid, self._directory = site, kid, directory
        self._devices, self._attempts = devices, attempts
        self._file = StopsFile(path, on_stop=self.halt, on_change=on_change)
        self._halting: set[asyncio.Task[None]] = set()
        attempts.may_actuate = lambda: not self.in_force

    @property
    def in_force(self) -> bool:
        """True while nothing may actuate."""
        return self._file.in_force

    @property
    def standing(self) -> tuple[Stop, ...]:
        """The stops in force, oldest first."""
        return self._file.stops.standing

    def subscribe(self, bus: Bus) -> None:
        """Hear what anyone says on the stop topic."""
        bus.subscribe(topics.STOP, self._on_stop, plain=self._on_plain)

    def methods(self) -> dict[str, Method]:
        """What the local socket and, of operators, the bus may ask."""
        return {"stop": self._stop, "release": self._release}

    def stop_by_input(self, device: str, data: Any) -> None:
        """A device that is a stop button was pressed."""
        self._file.stop(door="input", by=device, reason=str(data or ""))

    def take(self, body: messages.Standing) -> None:
        """What the coordinator says is in force."""
        self._file.take(body.stops)

    def take_release(self, body: messages.Release) -> None:
        """A release that came through the coordinator; one without an operator's signature is logged."""
        try:
            self._check_and_release(body.ids, body.by, body.proof)
        except EdgePandaError as error:
            log.warning("a release is refused: %s [%s]", error, error.code)

    def halt(self) -> None:
        """Every device to its safe state, now, and nothing that acts goes on."""
        task = asyncio.create_task(self._devices.safe())
        self._halting.add(task)
        task.add_done_callback(self._halting.discard)
        self._attempts.halt()

    async def kept(self) -> None:
        """Returns once a power cut changes nothing of what is in force."""
        await self._file.kept()

    def close(self) -> None:
        """Write what is not written."""
        self._file.close()

    # doors

    def _on_stop(self, message: Message) -> None:
        if isinstance(message.body, messages.EmergencyStop):
            stop: messages.EmergencyStop = message.body
            self._file.stop(door="site", by=message.sender.name, reason=stop.reason, origin=stop.id)
        else:
            self.take(message.body)

    def _on_plain(self, payload: bytes) -> None:
        self._file.stop(door="site", reason=plain_reason(payload))

    async def _stop(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = converted(params, StopParams, "stop")
        self._file.stop(door="request", by=asked.by, reason=asked.reason, origin=asked.id or new_id())
        await self.kept()
        return {"stops": msgspec.to_builtins(self.standing)}

    async def _release(self, params: dict[str, Any]) -> dict[str, Any]:
        asked = converted(params, ReleaseParams, "release")
        self._check_and_release(asked.ids, asked.by, asked.proof)
        await self.kept()
        return {"stops": msgspec.to_builtins(self.standing)}

    def _check_and_release(self, ids: tuple[str, ...], by: str, proof: str) -> None:
        operator = check_release(self._directory, self._site, self._kid, ids, by=by, proof=proof)
        self._file.release(ids, operator.name)
