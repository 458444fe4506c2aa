"""Between a connection and amqtt: whole packets in, within a size and a time; a bounded backlog out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from amqtt.adapters import ReaderAdapter, StreamWriterAdapter

LARGEST_BACKLOG = 16 << 20  # bytes that wait for a client that does not read; it is cut off beyond
LONGEST_HALT = 0.25  # seconds that the next packet of a sender waits for the broker to catch up
_LOOK_AGAIN = 0.002  # seconds
_LENGTH_BYTES = 4  # at most, of a packet's remaining length (MQTT 3.1.1, 2.2.3)


class PacketWriter(StreamWriterAdapter):  # type: ignore[misc]  # amqtt has no types
    """Does not wait for a slow client: what it has not read is bounded, and then it is cut off."""

    def write(self, data: bytes) -> None:
        """Queue bytes for the client."""
        super().write(data)
        if self._writer.transport.get_write_buffer_size() > LARGEST_BACKLOG:
            self.abort()

    async def drain(self) -> None:
        """Nothing to wait for: the backlog is bounded."""

    def abort(self) -> None:
        """Cut the connection, whatever waits to be sent."""
        self._writer.transport.abort()


class PacketReader(ReaderAdapter):  # type: ignore[misc]  # amqtt has no types
    """Hands amqtt the bytes of whole packets, so that none can be too large, and none can stop half-way for ever."""

    def __init__(self, reader: asyncio.StreamReader, writer: PacketWriter, *, largest: int, patience: float) -> None:
        """`largest`: bytes of a packet after its header; `patience`: seconds for the first packet, which is CONNECT."""
        self._reader, self._writer, self._largest = reader, writer, largest
        self._packet = b""
        self.patience: float | None = patience
        self.crowded: Callable[[], bool] = lambda: False  # whether more waits in the broker than it should take in

    async def read(self, n: int = -1) -> bytes:
        """The next `n` bytes of the present packet, or of the next one. Raises `ConnectionResetError`."""
        if not self._packet:
            await self._room()
            self._packet = await self._next()
        if n > len(self._packet):
            self._writer.abort()
            raise ConnectionResetError("a packet says that it is longer than it is")
        taken = self._packet if n < 0 else self._packet[:n]
        self._packet = self._packet[len(taken) :]
        return taken

    def feed_eof(self) -> None:
        """Nothing more is wanted."""
        self._reader.feed_eof()

    async def _room(self) -> None:
        """Let the sender wait while the broker is behind. Not for ever: what it says may be what is waited for."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST_HALT
        while self.crowded() and loop.time() < until:  # noqa: ASYNC110 amqtt has no event for it
            await asyncio.sleep(_LOOK_AGAIN)

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(self.patience):
                return await self._whole()
        except TimeoutError:
            self._writer.abort()
            raise ConnectionResetError("nothing came within one and a half times the keepalive") from None

    async def _whole(self) -> bytes:
        header = bytearray(await self._reader.readexactly(2))
        while header[-1] & 0x80:
            if len(header) > _LENGTH_BYTES:
                self._writer.abort()
                raise ConnectionResetError("a packet's length has more than four bytes")
            header += await self._reader.readexactly(1)
        length = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(header[1:]))
        if length > self._largest:
            self._writer.abort()
            raise ConnectionResetError(f"a packet of {length} bytes, where {self._largest} are allowed")
        return bytes(header) + await self._reader.readexactly(length)
