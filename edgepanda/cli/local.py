"""This machine's node through its local socket: JSON-RPC 2.0, one object a line."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from edgepanda.errors import EdgePandaError
from edgepanda.spare_folder import spare_socket
from edgepanda.unix_socket import reachable

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded

LONGEST_ANSWER = 4 * 1024 * 1024  # bytes
CONNECT_WITHIN = 2.0  # seconds


class LocalNode:
    """The node at a socket."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of(cls, loaded: Loaded) -> Self:
        """The node of a configuration."""
        return cls(spare_socket(loaded.state_dir) or loaded.run_dir / "node.sock")

    @property
    def present(self) -> bool:
        """Whether there is a socket; its node may be gone."""
        return os.path.exists(self.path)  # false also where the folder may not be looked into

    async def card(self) -> dict[str, Any] | None:
        """What the node can do; None where no node answers."""
        try:
            status: dict[str, Any] = await self.request("status", {}, within=CONNECT_WITHIN)
        except EdgePandaError:
            return None
        card: dict[str, Any] | None = status.get("card")
        return card

    async def request(self, method: str, params: dict[str, Any], *, within: float | None = None) -> Any:
        """Ask; waits as long as it takes, or `within` seconds. Raises `EdgePandaError`: the node's, or `no_answer`."""
        try:
            async with asyncio.timeout(within):
                return await self._request(method, params)
        except (OSError, TimeoutError, ValueError, EOFError) as error:
            raise EdgePandaError(
                "this machine's node does not answer", code="no_answer", where=str(self.path), cure="is it running?"
            ) from error

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        async with asyncio.timeout(CONNECT_WITHIN):
            with reachable(self.path) as name:
                reader, writer = await asyncio.open_unix_connection(name, limit=LONGEST_ANSWER)
        try:
            writer.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
        answer = json.loads(line)
        if "error" in answer:
            raise EdgePandaError.from_dict(answer["error"].get("data", {}))
        return answer["result"]
