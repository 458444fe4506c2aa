"""MQTT 3.1.1 byte by byte: for what no well-behaved client does."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

CONNACK, PUBLISH, PUBACK, SUBACK, PINGRESP = 2, 3, 4, 9, 13
PATIENCE = 5.0  # seconds for an answer


class Packet(NamedTuple):
    """A packet that came: its type, and its bytes after the fixed header."""

    kind: int
    body: bytes

    @property
    def topic(self) -> str:
        """Of a PUBLISH."""
        length = int.from_bytes(self.body[:2])
        return self.body[2 : 2 + length].decode()


def text(value: str) -> bytes:
    """A string with its length in front."""
    data = value.encode()
    return len(data).to_bytes(2) + data


def packet(first: int, body: bytes) -> bytes:
    """A packet with its fixed header."""
    length, header = len(body), bytearray([first])
    while True:
        length, byte = divmod(length, 128)
        header.append(byte | (0x80 if length else 0))
        if not length:
            return bytes(header) + body


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> RawClient:
        """A connection on which nothing was said yet."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def connect(
        self,
        client_id: str,
        *,
        user: str = "",
        password: str = "",
        keepalive: int = 0,
        will: str = "",
        clean: bool = True,
    ) -> int | None:
        """CONNECT; the return code, or None when the connection was closed. The will's topic is also its message."""
        flags = (2 if clean else 0) | (4 if will else 0) | (0xC0 if user else 0)
        body = text("MQTT") + bytes([4, flags]) + keepalive.to_bytes(2) + text(client_id)
        body += (text(will) * 2 if will else b"") + (text(user) + text(password) if user else b"")
        self.writer.write(packet(0x10, body))
        answer = await self.next()
        return answer.body[1] if answer is not None and answer.kind == CONNACK else None

    async def subscribe(self, topic_filter: str) -> int | None:
        """SUBSCRIBE at QoS 0; the return code (0x80: refused)."""
        self.writer.write(packet(0x82, b"\0\1" + text(topic_filter) + b"\0"))
        answer = await self.next_of(SUBACK)
        return answer.body[2] if answer is not None else None

    def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> None:
        """PUBLISH at QoS 0."""
        self.writer.write(packet(0x30 | retain, text(topic) + payload))

    async def alive(self) -> bool:
        """True if PINGREQ is answered; other packets on the way are dropped."""
        self.writer.write(packet(0xC0, b""))
        return await self.next_of(PINGRESP) is not None

    async def next(self, within: float = PATIENCE) -> Packet | None:
        """The next packet, or None when the connection is closed or nothing comes in time."""
        try:
            async with asyncio.timeout(within):
                first = (await self.reader.readexactly(1))[0]
                length = shift = 0
                while True:
                    byte = (await self.reader.readexactly(1))[0]
                    length |= (byte & 0x7F) << shift
                    shift += 7
                    if not byte & 0x80:
                        return Packet(first >> 4, await self.reader.readexactly(length))
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            return None

    async def next_of(self, kind: int, within: float = PATIENCE) -> Packet | None:
        """The next packet of this type."""
        while (came := await self.next(within)) is not None and came.kind != kind:
            pass
        return came

    async def closed(self, within: float = PATIENCE) -> bool:
        """True if the broker closes the connection in time; packets on the way are dropped."""
        try:
            async with asyncio.timeout(within):
                while await self.reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        """Hang up without DISCONNECT."""
        self.writer.close()
