"""A proxy between MQTT clients and their broker that knows packets: it delays, repeats, reorders and swallows them.

    proxy = Proxy("127.0.0.1", broker.port)
    await proxy.start()                                  # proxy.url is where clients go
    proxy.weather = Weather("epn", swallow=0.1)          # from now on, for connections whose client id begins so
    proxy.weather = CALM

Packets are told apart by MQTT's fixed header. PUBLISH and PUBACK are played with; all others pass in order, so that a
session always stands. TCP loses nothing in the middle of a connection, so whoever lost something is cut off soon.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

PUBLISH, PUBACK = 3, 4
LARGEST = 4 * 1024 * 1024
KEPT = 400  # packets of clients that can be said again later
CUT_WITHIN = 1.0  # seconds after a swallowed packet


@dataclass(frozen=True)
class Weather:
    """What befalls PUBLISH and PUBACK of clients whose id begins with `victim`: shares from 0 to 1; `delay`: at most so
    many seconds.
    """

    victim: str = ""
    delay: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    swallow: float = 0.0
    deaf: bool = False  # nothing passes, in either direction, and no connection ends


CALM = Weather()


@dataclass
class _Way:
    """One direction of a connection."""

    writer: asyncio.StreamWriter
    held: bytes = b""  # a packet that the next one overtakes


@dataclass(eq=False)
class _Pair:
    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    name: str = ""  # the client id
    doomed: bool = False


class Proxy:
    """Serves on a port of its own until `stop`; made and used on one asyncio loop."""

    def __init__(
        self, host: str, port: int, seed: int = 0, *, worth_keeping: Callable[[bytes], bool] = lambda _packet: False
    ) -> None:
        """`worth_keeping`: packets of clients that can be said again however long ago they were said first."""
        self._host, self._port = host, port
        self._chance = random.Random(seed)
        self.weather = CALM
        self.counts: collections.Counter[str] = collections.Counter()
        self._pairs: set[_Pair] = set()
        self._said: collections.deque[tuple[str, bytes]] = collections.deque(maxlen=KEPT)
        self._kept: list[tuple[str, bytes]] = []
        self._worth_keeping = worth_keeping
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, self._host, 0, limit=LARGEST)
        self.url = f"mqtt://{self._host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """End everything."""
        assert self._server is not None
        self._server.close()
        for task in [*self._serving]:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def cut(self, victim: str = "") -> None:
        """End the connections of clients whose id begins so."""
        for pair in [p for p in self._pairs if p.name.startswith(victim)]:
            self._end(pair)

    def echo(self, most: int) -> int:
        """Say again, byte for byte, some of what clients have said before, on connections that they have now."""
        said = 0
        recent = self._chance.sample(list(self._said), min(most, len(self._said)))
        for name, packet in [*recent, *self._kept[-most:]]:
            for pair in self._pairs:
                if pair.name == name and not pair.broker.is_closing():
                    pair.broker.write(packet)
                    said += 1
                    break
        self.counts["echoed"] += said
        return said

    # one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        pair: _Pair | None = None
        try:
            back, forth = await asyncio.open_connection(self._host, self._port, limit=LARGEST)
            pair = _Pair(writer, forth)
            self._pairs.add(pair)
            await _either(
                self._pump(pair, reader, _Way(forth), out=True), self._pump(pair, back, _Way(writer), out=False)
            )
        except OSError:
            self.counts["unreachable"] += 1
        finally:
            self._serving.discard(task)
            if pair is not None:
                self._end(pair)
                self._pairs.discard(pair)
            writer.close()

    def _end(self, pair: _Pair) -> None:
        for writer in (pair.client, pair.broker):
            if not writer.is_closing():
                writer.transport.abort()

    async def _pump(self, pair: _Pair, reader: asyncio.StreamReader, way: _Way, *, out: bool) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                packet = await read_packet(reader)
                if out and packet[0] >> 4 == 1 and not pair.name:
                    pair.name = client_id(packet)
                if out and packet[0] >> 4 == PUBLISH:
                    self._said.append((pair.name, packet))
                    if self._worth_keeping(packet) and len(self._kept) < KEPT:
                        self._kept.append((pair.name, packet))
                await self._pass(pair, packet, way)
                await way.writer.drain()

    async def _pass(self, pair: _Pair, packet: bytes, way: _Way) -> None:
        weather, chance = self.weather, self._chance
        if not pair.name.startswith(weather.victim):
            weather = CALM
        while weather.deaf and self.weather is weather:  # noqa: ASYNC110 weather is a value
            await asyncio.sleep(0.05)
        kind = packet[0] >> 4
        if kind not in (PUBLISH, PUBACK):
            self._write(way, packet)
            return
        if weather.delay:
            self.counts["delayed"] += 1
            await asyncio.sleep(chance.random() * weather.delay)
        if chance.random() < weather.swallow:
            self.counts["swallowed"] += 1
            self._doom(pair)
            return
        if chance.random() < weather.reorder and not way.held:
            self.counts["reordered"] += 1
            way.held = packet
            asyncio.get_running_loop().call_later(0.2, self._write, way, b"")  # there may be no next one
            return
        self._write(way, packet)
        if kind == PUBLISH and chance.random() < weather.repeat:
            self.counts["repeated"] += 1
            way.writer.write(packet)

    def _write(self, way: _Way, packet: bytes) -> None:
        held, way.held = way.held, b""
        if not way.writer.is_closing():
            way.writer.write(packet + held)

    def _doom(self, pair: _Pair) -> None:
        if not pair.doomed:
            pair.doomed = True
            asyncio.get_running_loop().call_later(self._chance.random() * CUT_WITHIN, self._end, pair)


async def _either(*pumps: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_packet(reader: asyncio.StreamReader) -> bytes:
    """One MQTT packet with its fixed header. Raises `IncompleteReadError` at the end of the stream."""
    head = bytearray(await reader.readexactly(1))
    length = shift = 0
    while True:
        byte = (await reader.readexactly(1))[0]
        head.append(byte)
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
        if shift > 21:
            raise OSError("not MQTT: a length of more than four bytes")
    return bytes(head) + await reader.readexactly(length)


def client_id(connect: bytes) -> str:
    """The client id in a CONNECT packet of MQTT 3.1.1."""
    start = 1
    while connect[start] & 0x80:
        start += 1
    start += 1 + 2 + 4 + 1 + 1 + 2  # length, protocol name, level, flags, keep-alive
    size = int.from_bytes(connect[start : start + 2], "big")
    return connect[start + 2 : start + 2 + size].decode(errors="replace")
