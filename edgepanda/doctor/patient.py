"""What all checks start from: the machine's files, the configuration as far as it can be read, this machine's node."""

from __future__ import annotations

import asyncio
import contextlib
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress
from edgepanda.model.config import Loaded
from edgepanda.unix_socket import listener

NODE_WITHIN = 2.0  # seconds for the node's answer on its socket


class NodeSeen(msgspec.Struct, frozen=True):
    """This machine's node as its socket shows it: `status` if it answered, `error` if not; its process, if known."""

    status: dict[str, Any] | None = None
    error: EdgePandaError | None = None
    denied: bool = False  # there is a socket, and this user may not use it
    pid: int = 0
    uid: int = -1


class Patient:
    """The machine that is looked at. `root` is `/` but in tests; `within`: seconds for each check."""

    def __init__(self, loaded: Loaded | None, *, root: Path = Path("/"), within: float = 10.0) -> None:
        self.loaded, self.root, self.within = loaded, root, within

    @cached_property
    def node(self) -> asyncio.Task[NodeSeen]:
        """What the node says; asked once, awaited by all who want to know."""
        return asyncio.create_task(_ask_node(self.loaded))

    def text(self, name: str) -> str:
        """A file below the root, without the line end; empty where it cannot be read."""
        return read_text(self.root / name)


def broker_address(loaded: Loaded) -> BrokerAddress:
    """As the processes have it, but nothing is made: the embedded broker's own secret is there once it was started.

    Raises `EdgePandaError`.
    """
    broker = loaded.config.broker
    if broker.embedded and broker.users_file and not broker.user and not loaded.broker_secret.exists():
        raise EdgePandaError(
            "this machine's processes have no password for their broker yet",
            code="broker_secret",
            where=str(loaded.broker_secret),
            cure="`edgepanda up` makes it at its first start",
        )
    return loaded.broker_address()


def read_text(path: Path) -> str:
    """A small file's text, stripped; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip("\0 \t\r\n")
    except OSError:
        return ""


async def tool(*words: str, within: float) -> str | None:
    """What a program prints; None where there is none, it fails, or it is not done in time (then it is killed)."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(within):
            printed, _ = await process.communicate()
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        if not isinstance(error, TimeoutError):
            raise
        return None
    return printed.decode(errors="replace") if process.returncode == 0 else None


async def _ask_node(loaded: Loaded | None) -> NodeSeen:
    from edgepanda.cli.local import LocalNode

    if loaded is None or loaded.config.node is None:
        return NodeSeen()
    node = LocalNode.of(loaded)
    try:
        pid, uid = listener(node.path, NODE_WITHIN)
        status: dict[str, Any] = await node.request("status", {}, within=NODE_WITHIN)
    except PermissionError:
        return NodeSeen(denied=True)
    except OSError:
        return NodeSeen()
    except EdgePandaError as error:
        return NodeSeen(error=error)
    return NodeSeen(status=status, pid=pid, uid=uid)
