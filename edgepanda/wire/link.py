"""One connection to the broker at a time: paho-mqtt driven by the asyncio loop (docs/decisions/0005-wire.md).

The link connects, subscribes inside the connect path, notices a dead connection by its keepalive, and tries again
for ever with back-off and jitter. It knows bytes and topics, nothing of envelopes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress

log = logging.getLogger("edgepanda.wire")

CONNECT_WITHIN = 5.0  # seconds for TCP, and again for TLS
ANSWER_WITHIN = 15.0  # seconds for the broker to take us and our subscriptions
KEEPALIVE = 20  # seconds; a dead connection is noticed within one and a half of these
FIRST_WAIT, LONGEST_WAIT = 1.0, 5.0  # seconds between attempts: what waits is told within ten of the broker's return
LONGEST_REFUSED = 60.0  # seconds between attempts where the broker is there and does not want us
_REFUSED = ("broker_refused", "broker_tls")
STEADY = 10.0  # seconds after which a connection counts as good and the back-off starts anew
IN_FLIGHT = 20  # unacknowledged QoS 1 messages; with more, some brokers stand still
QUEUED = 10_000  # messages that wait for the socket or the in-flight window; further ones are dropped


class LinkError(EdgePandaError):
    """Why there is no connection: `broker_unreachable`, `broker_refused`, `broker_tls`."""

    code = "broker_unreachable"


class Will(msgspec.Struct, frozen=True):
    """What the broker says for us when we are gone; always retained."""

    topic: str
    payload: bytes


def longer(wait: float, error: EdgePandaError | None) -> float:
    """The seconds to the attempt after the next, when the next comes after `wait`. Pure."""
    refused = error is not None and error.code in _REFUSED
    return min(wait * 2, LONGEST_REFUSED if refused else LONGEST_WAIT)


class Link:
    """Keeps one connection up. All callbacks run on the loop."""

    def __init__(
        self,
        address: BrokerAddress,
        client_id: str,
        *,
        subscriptions: Sequence[tuple[str, int]],
        will: Callable[[], Will | None],
        on_message: Callable[[str, bytes, bool], None],
        on_up: Callable[[], None],
        on_down: Callable[[], None],
    ) -> None:
        self._address = address
        self._client_id = client_id
        self._subscriptions = subscriptions  # the caller may add to it until `run`
        self._will = will
        self._on_message = on_message
        self._on_up = on_up
        self._on_down = on_down
        self._client: mqtt.Client | None = None
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[EdgePandaError | None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._writing = False  # a write is due: asked of the loop, or held
        self._blocked = False  # the socket takes no more at the moment
        self.up = False
        self.last_error: EdgePandaError | None = None
        self.tried = asyncio.Event()  # set after each attempt, so that a short-lived program can give up

    async def run(self) -> None:
        """Connect, and again whenever the connection is lost, until cancelled."""
        wait = FIRST_WAIT
        try:
            while True:
                began = self._loop.time()
                error = await self._one_connection()
                if self._loop.time() - began > STEADY:
                    wait = FIRST_WAIT
                self._note(error)
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 jitter, no secret
                wait = longer(wait, error)
        finally:
            self._drop()

    def publish(self, topic: str, payload: bytes, *, qos: int, retain: bool) -> bool:
        """Hand it to the connection; False when there is none or its queue is full."""
        if not self.up or self._client is None:
            return False
        if qos == 0 and len(self._client._out_packet) >= QUEUED:  # paho bounds only what will be acknowledged
            return False
        return self._client.publish(topic, payload, qos=qos, retain=retain).rc == mqtt.MQTT_ERR_SUCCESS

    def hold(self) -> None:
        """What is published from now on goes to the socket at `write_now`. Not inside a callback of paho's."""
        self._writing = True

    def write_now(self) -> None:
        """Give what was published since `hold` to the socket, without waiting for the next turn of the loop."""
        self._write()

    async def flush(self, timeout: float = 2.0) -> None:
        """Wait until all that was published is written, and acknowledged by the broker where it will be."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._client is not None and (self._client.want_write() or self._client._out_messages):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

    def close(self) -> None:
        """Say goodbye to the broker, so that the will is not sent."""
        if self._client is not None:
            self._client.on_disconnect = None
            self._client.disconnect()
            self._write()
        self._drop()

    def _note(self, error: EdgePandaError | None) -> None:
        if error is None:
            return
        if self.last_error is None or error.code != self.last_error.code:
            log.warning("no connection to the broker: %s [%s]; trying on", error, error.code)
        self.last_error = error
        self.tried.set()

    async def _one_connection(self) -> EdgePandaError | None:
        """Returns when the connection is over, with the reason."""
        self._lost = self._loop.create_future()
        self._ready = self._loop.create_future()
        try:
            client = self._make_client()
            self._client = client
            await self._connect(client)
        except EdgePandaError as error:
            return error
        except ssl.SSLError as error:
            self._drop()
            return LinkError(
                f"TLS: {error.reason or error}",
                code="broker_tls",
                where=str(self._address),
                cure="check ca_file and server_name",
            )
        except (OSError, ValueError) as error:
            self._drop()
            reason = getattr(error, "strerror", None) or error
            cure = "is the broker running, and the address right?"
            return LinkError(f"{reason}", where=str(self._address), cure=cure)
        self._watch(client)
        ticker = asyncio.create_task(self._tick(client))
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                waits: set[asyncio.Future[Any]] = {self._ready, self._lost}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not self._lost.done():
                self._went_up()
                await self._lost
            return self._lost.result()
        except TimeoutError:
            return LinkError("the broker does not answer", where=str(self._address))
        finally:
            ticker.cancel()
            self._drop()

    async def _connect(self, client: mqtt.Client) -> None:
        """Off the loop, and on a thread that nobody waits for: a program may end while a host does not answer."""
        done = self._loop.create_future()

        def finish(error: Exception | None) -> None:
            if done.done():
                client._sock_close()  # nobody wants it any more
            elif error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        def run() -> None:
            failure = None
            try:
                client.connect(self._address.host, self._address.port, KEEPALIVE)
            except Exception as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(finish, failure)

        threading.Thread(target=run, name="edgepanda-connect", daemon=True).start()
        await done

    def _went_up(self) -> None:
        self.up = True
        self.last_error = None
        log.info("connected to %s", self._address)
        self.tried.set()
        _guarded(self._on_up)

    def _make_client(self) -> mqtt.Client:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            clean_session=True,
            protocol=mqtt.MQTTv311,
            reconnect_on_failure=False,
        )
        client.connect_timeout = CONNECT_WITHIN
        client.max_inflight_messages_set(IN_FLIGHT)
        client.max_queued_messages_set(QUEUED)
        if self._address.username:
            client.username_pw_set(self._address.username, self._address.password)
        if self._address.tls:
            client.tls_set_context(tls_context(self._address))
        will = self._will()
        if will is not None:
            client.will_set(will.topic, will.payload, qos=1, retain=True)
        client.on_socket_open = _no_delay
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_message = self._take
        client.on_disconnect = self._disconnected
        client.on_socket_register_write = self._want_write
        return client

    # paho's callbacks; all but the first run on the loop

    def _connected(self, client: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _props: Any) -> None:
        if reason.is_failure:
            self._end(
                LinkError(
                    f"the broker refuses us: {reason}",
                    code="broker_refused",
                    where=str(self._address),
                    cure="check user name and password",
                )
            )
        elif self._subscriptions:
            client.subscribe(list(self._subscriptions))
        else:
            self._set_ready()

    def _subscribed(self, _client: Any, _data: Any, _mid: int, reasons: list[ReasonCode], _props: Any) -> None:
        refused = [f for (f, _), r in zip(self._subscriptions, reasons, strict=False) if r.is_failure]
        if refused:
            self._end(
                LinkError(
                    f"the broker refuses to subscribe us to {', '.join(refused)}",
                    code="broker_refused",
                    where=str(self._address),
                    cure="check the broker's access list",
                )
            )
        else:
            self._set_ready()

    def _take(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        """An exception must not reach paho: it would lose its place in the stream."""
        try:
            self._on_message(message.topic, bytes(message.payload), message.retain)
        except Exception:
            log.exception("a message could not be handled")

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, reason: ReasonCode, _props: Any) -> None:
        self._end(LinkError(f"the connection is lost: {reason}", where=str(self._address)))

    def _set_ready(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _end(self, error: EdgePandaError | None) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(error)

    # the socket on the loop

    def _watch(self, client: mqtt.Client) -> None:
        sock = client.socket()
        if sock is None:
            self._end(LinkError("the connection is lost", where=str(self._address)))
            return
        client.on_socket_close = self._unwatch
        self._loop.add_reader(sock.fileno(), self._read, client, sock)
        self._write()

    def _unwatch(self, _client: Any, _data: Any, sock: Any) -> None:
        self._loop.remove_reader(sock.fileno())
        self._loop.remove_writer(sock.fileno())
        self._blocked = False

    def _read(self, client: mqtt.Client, sock: Any) -> None:
        result = client.loop_read()
        while result == mqtt.MQTT_ERR_SUCCESS and isinstance(sock, ssl.SSLSocket) and sock.pending():
            result = client.loop_read()
        if result != mqtt.MQTT_ERR_SUCCESS:
            self._end(LinkError(f"the connection is lost: {mqtt.error_string(result)}", where=str(self._address)))

    def _want_write(self, _client: Any, _data: Any, _sock: Any) -> None:
        """May be called on the thread that connects, so it only asks the loop."""
        if not self._writing:
            self._writing = True
            (self._loop.call_soon if self.up else self._loop.call_soon_threadsafe)(self._write)

    def _write(self) -> None:
        self._writing = False
        client = self._client
        sock = client.socket() if client is not None else None
        if client is None or sock is None:
            return
        client.loop_write()
        if client.socket() is not sock:
            return  # closed meanwhile
        if client.want_write() != self._blocked:
            self._blocked = not self._blocked
            if self._blocked:
                self._loop.add_writer(sock.fileno(), self._write)
            else:
                self._loop.remove_writer(sock.fileno())

    async def _tick(self, client: mqtt.Client) -> None:
        while client.loop_misc() == mqtt.MQTT_ERR_SUCCESS:  # noqa: ASYNC110 keepalive is a matter of time
            await asyncio.sleep(KEEPALIVE / 4)
        self._end(LinkError("the broker is silent", where=str(self._address)))

    def _drop(self) -> None:
        client, self._client = self._client, None
        was_up, self.up = self.up, False
        if client is not None:
            client.on_socket_register_write = _ignore  # with none, paho would write by itself
            client.on_disconnect = None
            with contextlib.suppress(OSError):
                client._sock_close()
        if was_up:
            _guarded(self._on_down)


def _ignore(_client: Any, _data: Any, _sock: Any) -> None:
    """Nobody writes on a connection that is given up."""


def _guarded(tell: Callable[[], None]) -> None:
    """What the owner of a link does wrong does not end the link."""
    try:
        tell()
    except Exception:
        log.exception("a change of the connection could not be handled")


def _no_delay(_client: Any, _data: Any, sock: Any) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def tls_context(address: BrokerAddress) -> ssl.SSLContext:
    """A verifying context. With `server_name` the certificate must carry that name instead of the host's; with
    `pinned_file` it must be that very certificate. Raises `LinkError`.
    """
    try:
        if address.pinned_file:
            return _pinned(address.pinned_file)
        context = ssl.create_default_context(cafile=address.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise LinkError(
            f"cannot use the certificate to trust: {error}",
            code="broker_tls",
            where=address.pinned_file or address.ca_file,
        ) from error
    if address.server_name:
        plain_wrap = context.wrap_socket

        def wrap(sock: socket.socket, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
            return plain_wrap(sock, *args, **{**kwargs, "server_hostname": address.server_name})

        context.wrap_socket = wrap  # type: ignore[method-assign]
    return context


def _pinned(path: str) -> ssl.SSLContext:
    """Trusts the first certificate of a file and nothing else: neither who signed it, nor what else that one signed."""
    end = "-----END CERTIFICATE-----"
    first = Path(path).read_text(encoding="ascii").partition(end)[0] + end
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # it is this machine's own, known byte by byte
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=first)
    return context
