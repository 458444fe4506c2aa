"""The node's local socket: JSON-RPC 2.0, one object a line, for people on this machine when nothing else is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.node.methods import Method, call
from edgepanda.unix_socket import reachable

log = logging.getLogger("edgepanda.node")

LONGEST_LINE = 64 * 1024
MODE = 0o660


class _Call(msgspec.Struct):
    method: str
    id: int | str | None = None
    params: dict[str, Any] = {}


class LocalSocket:
    """Serves `methods` on a Unix socket."""

    def __init__(self, path: Path, methods: dict[str, Method]) -> None:
        self._path, self._methods = path, methods
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen. Raises `EdgePandaError` (`socket_unusable`)."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            with reachable(self._path) as name:
                self._server = await asyncio.start_unix_server(self._serve, name, limit=LONGEST_LINE)
            self._path.chmod(MODE)
        except OSError as error:
            raise EdgePandaError(
                f"cannot listen on the local socket: {error}", code="socket_unusable", where=str(self._path)
            ) from error

    async def stop(self) -> None:
        """Stop listening, hang up."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._connections):
                writer.close()
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while line := await self._line(reader, writer):
                answer = await self._answer(line)
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            return await reader.readline()
        except ValueError:
            error = EdgePandaError(f"a line of more than {LONGEST_LINE} bytes", code="oversized", where="local socket")
            writer.write(msgspec.json.encode(_failure(None, error)) + b"\n")
            return b""

    async def _answer(self, line: bytes) -> dict[str, Any]:
        call_id = None
        try:
            asked = msgspec.json.decode(line, type=_Call)
            call_id = asked.id
            result = await call(self._methods, asked.method, asked.params)
            return {"jsonrpc": "2.0", "id": call_id, "result": result}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            failure = EdgePandaError(
                f"not a request: {error}",
                code="malformed",
                where="local socket",
                cure='send one line: {"jsonrpc": "2.0", "id": 1, "method": "status", "params": {}}',
            )
            return _failure(call_id, failure)
        except EdgePandaError as error:
            log.info("refused on the local socket: %.400s [%s]", error, error.code)
            return _failure(call_id, error)


def _failure(call_id: int | str | None, error: EdgePandaError) -> dict[str, Any]:
    detail = {"code": -32000, "message": str(error), "data": error.as_dict()}
    return {"jsonrpc": "2.0", "id": call_id, "error": detail}
