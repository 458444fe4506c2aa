"""The packet proxy of the fault harness, between plain sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from tests.rig.proxy import Proxy, Weather, client_id, read_packet

CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03epn"


def publish(text: str) -> bytes:
    body = b"\x00\x01t" + text.encode()
    return bytes([0x30, len(body)]) + body


@contextlib.asynccontextmanager
async def between() -> AsyncIterator[tuple[Proxy, asyncio.StreamWriter, asyncio.Queue[bytes]]]:
    """A proxy before a server that takes down packets, and a connected client."""
    came: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                came.put_nowait(await read_packet(reader))
        came.put_nowait(b"")  # the end
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = Proxy("127.0.0.1", server.sockets[0].getsockname()[1], worth_keeping=lambda packet: b"stop" in packet)
    await proxy.start()
    _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(proxy.url).port)
    writer.write(CONNECT)
    assert await came.get() == CONNECT
    try:
        yield proxy, writer, came
    finally:
        writer.close()
        await proxy.stop()
        server.close()


def test_the_client_id_is_read_from_the_first_packet() -> None:
    assert client_id(CONNECT) == "epn"


async def test_in_calm_weather_every_packet_passes_in_order() -> None:
    async with between() as (_, writer, came):
        sent = [publish(str(n)) for n in range(50)]
        writer.write(b"".join(sent))
        assert [await came.get() for _ in sent] == sent


async def test_packets_are_repeated_and_reordered() -> None:
    async with between() as (proxy, writer, came):
        proxy.weather = Weather("epn", repeat=1.0)
        writer.write(publish("a"))
        assert [await came.get(), await came.get()] == [publish("a")] * 2
        proxy.weather = Weather("epn", reorder=1.0)
        writer.write(publish("b") + publish("c"))
        assert [await came.get(), await came.get()] == [publish("c"), publish("b")]
        writer.write(publish("d"))  # nothing overtakes it, and it comes all the same
        assert await came.get() == publish("d")


async def test_other_victims_weather_does_not_matter() -> None:
    async with between() as (proxy, writer, came):
        proxy.weather = Weather("epc", swallow=1.0)
        writer.write(publish("a"))
        assert await came.get() == publish("a")


async def test_whoever_lost_a_packet_is_cut_off() -> None:
    async with between() as (proxy, writer, came):
        proxy.weather = Weather("epn", swallow=1.0)
        writer.write(publish("a"))
        assert await came.get() == b""
        assert proxy.counts["swallowed"] == 1


async def test_what_was_said_is_said_again() -> None:
    async with between() as (proxy, writer, came):
        writer.write(publish("stop"))
        assert await came.get() == publish("stop")
        assert proxy.echo(10) == 2  # as a recent packet, and as one worth keeping
        assert [await came.get(), await came.get()] == [publish("stop")] * 2
