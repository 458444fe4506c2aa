"""MQTT 3.1.1 for trying a broker: a client that can do what a well-behaved one does not, and sees all that comes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from typing import NamedTuple

from edgepanda.model.broker import BrokerAddress
from edgepanda.wire.link import CONNECT_WITHIN, LinkError, tls_context

CONNACK, PUBLISH, PUBACK, SUBACK, PINGRESP = 2, 3, 4, 9, 13
REFUSED = 0x80


class Hungup(ConnectionError):
    """The broker has closed the connection."""


class Came(NamedTuple):
    """A message that was delivered."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Will(NamedTuple):
    """What the broker says when this client hangs up, with QoS 1."""

    topic: str
    payload: bytes
    retain: bool


class Probe:
    """One connection. Messages wait in `came`; `closed` is set when the broker hangs up."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """For `open`."""
        self._reader, self._writer = reader, writer
        self._answers: dict[tuple[int, int], asyncio.Future[bytes]] = {}
        self._ids = itertools.count(1)
        self.came: asyncio.Queue[Came] = asyncio.Queue()
        self.closed = asyncio.Event()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, address: BrokerAddress) -> Probe:
        """A connection on which nothing was said yet. Raises `LinkError` (`broker_unreachable`, `broker_tls`)."""
        where, tls = str(address), {}
        if address.tls:
            tls = {"ssl": tls_context(address), "server_hostname": address.server_name or address.host}
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                reader, writer = await asyncio.open_connection(address.host, address.port, **tls)  # type: ignore[arg-type]
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason or error
            raise LinkError(f"TLS: {reason}", code="broker_tls", where=where) from error
        except TimeoutError:
            raise LinkError("nobody answers there", where=where) from None
        except OSError as error:
            raise LinkError(f"{error.strerror or error}", where=where) from error
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer)

    @property
    def certificate(self) -> dict[str, object]:
        """The broker's, as `ssl` tells it; empty without TLS."""
        inside = self._writer.get_extra_info("ssl_object")
        return dict(inside.getpeercert() or {}) if inside is not None else {}

    def acknowledge_late(self) -> None:
        """Our kernel shall acknowledge what comes with what we say next, as it does in a long conversation."""
        with contextlib.suppress(OSError):
            self._writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)

    async def connect(
        self,
        client_id: str,
        *,
        user: str = "",
        password: str = "",
        keepalive: int = 60,
        clean: bool = True,
        will: Will | None = None,
    ) -> tuple[int, bool]:
        """CONNECT: the return code (0: let in), and whether there was a session. Raises `Hungup`."""
        flags = (
            (2 if clean else 0) | (0x0C if will else 0) | (0x20 if will and will.retain else 0) | (0xC0 if user else 0)
        )
        body = _text(b"MQTT") + bytes([4, flags]) + keepalive.to_bytes(2) + _text(client_id.encode())
        if will is not None:
            body += _text(will.topic.encode()) + _text(will.payload)
        if user:
            body += _text(user.encode()) + _text(password.encode())
        answer = await self._ask(0x10, body, CONNACK, 0)
        return answer[1], bool(answer[0] & 1)

    async def subscribe(self, topic_filter: str, qos: int = 1) -> int:
        """SUBSCRIBE: the granted QoS, or `REFUSED`. Raises `Hungup`."""
        number = next(self._ids)
        body = number.to_bytes(2) + _text(topic_filter.encode()) + bytes([qos])
        return (await self._ask(0x82, body, SUBACK, number))[2]

    async def publish(self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False) -> None:
        """PUBLISH; with QoS 1 returns when it is acknowledged. Raises `Hungup`."""
        first, body = 0x30 | qos << 1 | retain, _text(topic.encode())
        if not qos:
            return self._send(first, body + payload)
        number = next(self._ids)
        await self._ask(first, body + number.to_bytes(2) + payload, PUBACK, number)

    async def ping(self) -> None:
        """PINGREQ; returns with its answer. Raises `Hungup`."""
        await self._ask(0xC0, b"", PINGRESP, 0)

    async def next(self, topic: str) -> Came:
        """The next message on this topic; others on the way are dropped. Raises `Hungup`."""
        while (came := await self._next()).topic != topic:
            pass
        return came

    async def until(self, topic: str) -> list[Came]:
        """All messages that come before the next one on this topic. Raises `Hungup`."""
        before: list[Came] = []
        while (came := await self._next()).topic != topic:
            before.append(came)
        return before

    async def disconnect(self) -> None:
        """Say goodbye, so that no will is sent."""
        if not self.closed.is_set():
            self._send(0xE0, b"")
            with contextlib.suppress(OSError):
                await self._writer.drain()
        await self.hang_up()

    async def hang_up(self) -> None:
        """Close the connection without a word."""
        self._listener.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listener
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    async def _next(self) -> Came:
        getting = asyncio.ensure_future(self.came.get())
        ending = asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait({getting, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                raise Hungup
            return getting.result()
        finally:
            getting.cancel()
            ending.cancel()

    async def _ask(self, first: int, body: bytes, kind: int, number: int) -> bytes:
        if self.closed.is_set():
            raise Hungup
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[kind, number] = answer
        self._send(first, body)
        return await answer

    def _send(self, first: int, body: bytes) -> None:
        length, header = len(body), bytearray([first])
        while True:
            length, byte = divmod(length, 128)
            header.append(byte | (0x80 if length else 0))
            if not length:
                break
        self._writer.write(bytes(header) + body)

    async def _listen(self) -> None:
        try:
            while True:
                first = (await self._reader.readexactly(1))[0]
                self._take(first, await self._reader.readexactly(await self._length()))
        except (OSError, asyncio.IncompleteReadError, IndexError, UnicodeDecodeError):
            pass  # it hung up, or does not speak MQTT
        finally:
            self.closed.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(Hungup())
                    answer.exception()  # whoever waited may be gone

    async def _length(self) -> int:
        length = shift = 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return length

    def _take(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == PUBLISH:
            size, qos = 2 + int.from_bytes(body[:2]), first >> 1 & 3
            if qos:
                self._send(0x40, body[size : size + 2])
            payload = body[size + (2 if qos else 0) :]
            return self.came.put_nowait(Came(body[2:size].decode(), payload, qos, bool(first & 1)))
        number = int.from_bytes(body[:2]) if kind in (PUBACK, SUBACK) else 0
        answer = self._answers.pop((kind, number), None)
        if answer is not None and not answer.done():
            answer.set_result(body)


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data
