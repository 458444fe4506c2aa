"""What a node can be asked: one table of methods, for the local socket and for requests over the bus."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.wire.envelope import plain

log = logging.getLogger("edgepanda.node")

Method = Callable[[dict[str, Any]], Awaitable[Any]]
P = TypeVar("P", bound=msgspec.Struct)


async def call(methods: Mapping[str, Method], name: str, params: dict[str, Any]) -> Any:
    """The plain value that a method gives. Raises `EdgePandaError`: the method's own, `malformed`, `unsupported`, and
    `internal` for a fault of ours, which goes into the log.
    """
    if not plain(params):
        raise EdgePandaError(
            "too deep, or a number beyond 64 bits", code="malformed", where="params", cure="send plain JSON"
        )
    method = methods.get(name)
    if method is None:
        known = ", ".join(sorted(methods))
        raise EdgePandaError(
            f"there is no method {name[:80]!r}", code="unsupported", where="method", cure=f"known: {known}"
        )
    try:
        return msgspec.to_builtins(await method(params))
    except EdgePandaError:
        raise
    except Exception as error:
        log.exception("the request %s failed", name)
        raise EdgePandaError(
            f"the node failed: {error}",
            code="internal",
            where=name,
            cure="the node's log has the details; report them",
        ) from error


def converted(params: dict[str, Any], kind: type[P], method: str, cure: str = "") -> P:
    """The parameters as their type. Raises `EdgePandaError` (`malformed`)."""
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        cure = cure or f"its parameters are: {', '.join(kind.__struct_fields__) or 'none'}"
        raise EdgePandaError(str(error), code="malformed", where=f"{method} params", cure=cure) from error
