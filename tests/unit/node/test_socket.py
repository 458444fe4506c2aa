"""The local socket: every line is answered, none ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.node.socket import LONGEST_LINE, MODE, LocalSocket


class Methods:
    """Some methods, and what was asked of them."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.gate: asyncio.Event = asyncio.Event()

    async def status(self, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(params)
        return {"name": "n1"}

    async def refuse(self, _params: dict[str, Any]) -> None:
        raise EdgePandaError("no", code="busy", where="pan")

    async def fail(self, _params: dict[str, Any]) -> None:
        raise RuntimeError("a fault")

    async def wait(self, _params: dict[str, Any]) -> str:
        await self.gate.wait()
        return "done"


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[Path, Methods]]:
    methods, path = Methods(), folder / "run" / "node.sock"
    table = {name: getattr(methods, name) for name in ("status", "refuse", "fail", "wait")}
    server = LocalSocket(path, table)
    await server.start()
    try:
        yield path, methods
    finally:
        await server.stop()


async def said(path: Path, *lines: bytes) -> list[Any]:
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    answers = []
    for line in lines:
        writer.write(line + b"\n")
        answers.append(msgspec.json.decode(await reader.readline()))
    writer.close()
    return answers


async def test_a_request_is_answered_by_its_id(tmp_path: Path) -> None:
    async with served(tmp_path) as (path, methods):
        line = b'{"jsonrpc":"2.0","id":7,"method":"status","params":{"a":1}}'
        assert await said(path, line) == [{"jsonrpc": "2.0", "id": 7, "result": {"name": "n1"}}]
        assert (methods.asked, path.stat().st_mode & 0o777) == ([{"a": 1}], MODE)
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"nonsense", "malformed"),
        (b"", "malformed"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "malformed"),
        (b'{"id":1}', "malformed"),
        (b'{"id":{},"method":"status"}', "malformed"),
        (b'{"id":1,"method":"status","params":[1]}', "malformed"),
        (b'{"id":1,"method":"status","params":{"a":' + b"[" * 200 + b"]" * 200 + b"}}", "malformed"),
        (b'{"id":1,"method":"status","params":{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}}", "malformed"),
        (b'{"id":1,"method":"status","params":{"a":123456789012345678901234567890}}', "malformed"),
        (b'{"id":1,"method":"stop_all"}', "unsupported"),
        (b'{"id":1,"method":"refuse"}', "busy"),
        (b'{"id":1,"method":"fail"}', "internal"),
    ],
)
async def test_what_is_wrong_is_answered_and_the_next_line_is_heard(tmp_path: Path, line: bytes, code: str) -> None:
    async with served(tmp_path) as (path, methods):
        first, second = await said(path, line, b'{"id":2,"method":"status"}')
        assert (first["error"]["data"]["code"], second["result"]) == (code, {"name": "n1"})
        assert methods.asked == [{}]


async def test_a_line_that_is_too_long_is_said_to_be_and_others_go_on(tmp_path: Path) -> None:
    async with served(tmp_path) as (path, _):
        (answer,) = await said(path, b"x" * (LONGEST_LINE + 10))
        assert answer["error"]["data"]["code"] == "oversized"
        assert (await said(path, b'{"id":1,"method":"status"}'))[0]["result"] == {"name": "n1"}


async def test_one_who_waits_or_hangs_up_keeps_nobody_back(tmp_path: Path) -> None:
    async with served(tmp_path) as (path, methods):
        waiting = asyncio.ensure_future(said(path, b'{"id":1,"method":"wait"}'))
        _reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"id":1,"method":"wait"}\n')
        await writer.drain()
        writer.close()
        assert (await said(path, b'{"id":2,"method":"status"}'))[0]["id"] == 2
        methods.gate.set()
        assert (await waiting)[0]["result"] == "done"


async def test_a_socket_that_was_left_over_is_replaced_and_one_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    async with served(tmp_path) as (path, _):
        pass
    path.write_text("left over")
    async with served(tmp_path):
        assert (await said(path, b'{"id":1,"method":"status"}'))[0]["id"] == 1
    (tmp_path / "file").write_text("")
    with pytest.raises(EdgePandaError) as caught:
        await LocalSocket(tmp_path / "file" / "node.sock", {}).start()
    assert (caught.value.code, caught.value.where) == ("socket_unusable", str(tmp_path / "file" / "node.sock"))
