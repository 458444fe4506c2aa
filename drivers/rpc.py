"""The frame of driver lines: bounded lines, and JSON-RPC 2.0 requests, notifications and answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edgepanda.drivers.contract import DRIVER_ERROR, MAX_LINE, DriverError

MAX_ID = 2**53


class Request(msgspec.Struct, frozen=True):
    """A request, or without `id` a notification; `params` is still undecoded."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: Annotated[int, msgspec.Meta(ge=0, le=MAX_ID)] | None = None
    jsonrpc: Literal["2.0"] = "2.0"


class RpcError(msgspec.Struct, frozen=True, omit_defaults=True):
    """A JSON-RPC error; `data` holds code, message, where, cure, details of a `DriverError`."""

    code: int
    message: str
    data: Any = None


class Result(msgspec.Struct, frozen=True):
    """The answer to a request that worked."""

    id: int
    result: Any
    jsonrpc: Literal["2.0"] = "2.0"


class Failure(msgspec.Struct, frozen=True):
    """The answer to a request that did not work; `id` is None when the line could not be read."""

    id: int | None
    error: RpcError
    jsonrpc: Literal["2.0"] = "2.0"


class Call(msgspec.Struct, frozen=True):
    """A request as the node writes it."""

    id: int
    method: str
    params: Any
    jsonrpc: Literal["2.0"] = "2.0"


class Notice(msgspec.Struct, frozen=True):
    """A notification as the host writes it."""

    method: str
    params: Any
    jsonrpc: Literal["2.0"] = "2.0"


MISSING = msgspec.Raw()


class Incoming(msgspec.Struct, frozen=True):
    """Any line of a host as the node reads it: an answer or a notification. `result` is `MISSING` if absent."""

    id: int | None = None
    method: str = ""
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw = MISSING
    error: RpcError | None = None


def failure(request: int | None, error: DriverError) -> Failure:
    """The answer that carries a `DriverError`."""
    return Failure(request, RpcError(DRIVER_ERROR, error.message, error.as_dict()))


class LineBuffer:
    """Cuts a byte stream into lines of at most `limit` bytes; longer ones are dropped and counted in `overlong`."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        self.overlong = 0
        self._limit = limit
        self._part = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their newlines; blank ones are left out."""
        *ends, rest = data.split(b"\n")
        lines = []
        for end in ends:
            line, self._part = self._part + end if self._part else end, b""
            if self._skipping:
                self._skipping = False
            elif len(line) >= self._limit:
                self.overlong += 1
            elif line.strip():
                lines.append(line)
        if not self._skipping:
            self._part += rest
            if len(self._part) >= self._limit:
                self.overlong += 1
                self._skipping, self._part = True, b""
        return lines
