"""The embedded broker: amqtt, for one machine, for trying out, for a small site, and for tests.

It keeps nothing across a restart. Beyond loopback it listens only with passwords, and with TLS unless told that the
network may read all. The listening socket is our own
(amqtt calls that an external listener), so that the system may choose the port and small packets leave at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import is_loopback
from edgepanda.services.port_owner import port_owner

if TYPE_CHECKING:
    from edgepanda.services.broker_accounts import Accounts
    from edgepanda.services.broker_files import Certificate

log = logging.getLogger("edgepanda.broker")

LARGEST_PACKET = 1 << 20  # bytes; ours have 64 KiB at most
CONNECT_WITHIN = 10.0  # seconds that a connection gets to say who it is, and before that for TLS
LOOK_EVERY = 2.0  # seconds between two looks at the files of users and certificate

_LISTENER = "default"
_CONFIG: dict[str, Any] = {
    "listeners": {_LISTENER: {"type": "external"}},
    "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
}


class EmbeddedBroker:
    """An MQTT 3.1.1 broker on the running asyncio loop."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 1883,
        *,
        accounts: Accounts | None = None,
        certificate: Certificate | None = None,
        allow_plaintext: bool = False,
        largest_packet: int = LARGEST_PACKET,
    ) -> None:
        """`host`: `localhost` (taken as 127.0.0.1) or an address; `port` 0: the system chooses one. Without `accounts`
        everybody who reaches it may do everything. `certificate`: speak TLS alone. `largest_packet`: bytes; who sends
        more is cut off.

        Raises `EdgePandaError` (`broker_not_loopback`) for an address beyond loopback without accounts, or with neither
        certificate nor `allow_plaintext`.
        """
        self._host = "127.0.0.1" if host == "localhost" else host.strip("[]")
        if not is_loopback(self._host):
            _check_open(host, accounts is not None, certificate is not None or allow_plaintext)
        self._port = port
        self._accounts = accounts
        self._certificate = certificate
        self._largest_packet = largest_packet
        self._server: asyncio.Server | None = None
        self._amqtt: Any = None
        self._clients: set[asyncio.Task[Any]] = set()
        self._follower: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port it listens on, once started."""
        if self._server is None:
            return self._port
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{'mqtts' if self._certificate else 'mqtt'}://{_shown(self._host)}:{self.port}"

    async def start(self) -> None:
        """Begin to serve. Raises `EdgePandaError`: `port_in_use`, `cannot_listen`, `extra_missing`."""
        self._amqtt = _amqtt_broker(self._accounts)
        await self._amqtt.start()
        try:
            self._server = await self._listen()
        except OSError as error:
            await self._amqtt.shutdown()
            raise _cannot_listen(self._host, self._port, error) from error
        self._follower = asyncio.create_task(self._follow_files())
        log.info("the embedded broker listens on %s", self.url)

    async def _listen(self) -> asyncio.Server:
        if self._certificate is None:
            return await asyncio.start_server(self._serve_client, self._host, self._port)
        return await asyncio.start_server(
            *(self._serve_client, self._host, self._port),
            ssl=self._certificate.context,
            ssl_handshake_timeout=CONNECT_WITHIN,
            ssl_shutdown_timeout=1.0,
        )

    async def _follow_files(self) -> None:
        """A user added, removed or changed, and a renewed certificate, count without a restart."""
        while self._accounts is not None or self._certificate is not None:
            await asyncio.sleep(LOOK_EVERY)
            if self._certificate is not None:
                self._certificate.refresh()
            if self._accounts is not None and (changed := self._accounts.refresh()):
                self._amqtt.cut_off(changed)

    async def stop(self) -> None:
        """Close all connections and the port. Does nothing when it does not run."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        if self._follower is not None:
            self._follower.cancel()
        await self._amqtt.shutdown()
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await server.wait_closed()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from edgepanda.services.broker_packets import PacketReader, PacketWriter

        task = asyncio.current_task()
        assert task is not None  # noqa: S101 a coroutine always runs in one
        self._clients.add(task)
        try:
            _no_delay(writer)
            packets_out = PacketWriter(writer)
            packets_in = PacketReader(reader, packets_out, largest=self._largest_packet, patience=CONNECT_WITHIN)
            await self._amqtt.external_connected(packets_in, packets_out, _LISTENER)
        except Exception as error:  # whatever a stranger sends ends only his own connection
            log.info("a connection ended with an error: %r", error)
        finally:
            self._clients.discard(task)
            writer.close()


async def serve(host: str, port: int, *, ready: Callable[[int], None], **options: Any) -> None:
    """Run an `EmbeddedBroker` until cancelled; `ready` is called with its port once it listens. `options`: its own."""
    broker = EmbeddedBroker(host, port, **options)
    await broker.start()
    try:
        ready(broker.port)
        await asyncio.Event().wait()
    finally:
        await broker.stop()


def _amqtt_broker(accounts: Accounts | None) -> Any:
    try:
        from edgepanda.services.broker_hardened import HardenedBroker
    except ImportError as error:
        raise EdgePandaError(
            "the embedded broker is not installed",
            code="extra_missing",
            where="amqtt",
            cure="pip install 'edgepanda[broker]', or use Mosquitto",
        ) from error
    _tame_logging()
    return HardenedBroker(_CONFIG, accounts)


def _tame_logging() -> None:
    """amqtt reports each connection and each odd packet as if it were a fault; what is left are its own failures."""
    logging.getLogger("amqtt").setLevel(logging.ERROR)
    logging.getLogger("transitions").setLevel(logging.ERROR)
    logging.getLogger("amqtt.broker").addFilter(_our_own)


def _our_own(record: logging.LogRecord) -> bool:
    """False for what a client brings about: a connection that is closed without a packet, and a message that is not
    acknowledged in time, of which each would be logged with a traceback.
    """
    late = record.exc_info is not None and isinstance(record.exc_info[1], TimeoutError)
    return not late and not str(record.msg).startswith("No data from")


def _check_open(host: str, passwords: bool, tls: bool) -> None:
    if passwords and tls:
        return
    lacks = " and ".join(["passwords"] * (not passwords) + ["TLS"] * (not tls))
    raise EdgePandaError(
        f"the embedded broker does not listen beyond this machine, on {host!r}, without {lacks}",
        code="broker_not_loopback",
        where="broker.listen",
        cure="use 127.0.0.1 or ::1; or set users_file, and cert_file and key_file",
    )


def _cannot_listen(host: str, port: int, error: OSError) -> EdgePandaError:
    where = f"{_shown(host)}:{port}"
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port)
        return EdgePandaError(
            f"{owner or 'something'} listens on {where} already",
            code="port_in_use",
            where="broker.listen",
            cure="`edgepanda status` if it is this site's own; else stop it, or set another port"
            + ("" if owner else f"; `sudo ss -ltnp sport = :{port}` shows whose it is"),
        )
    return EdgePandaError(f"cannot listen on {where}: {error.strerror}", code="cannot_listen", where="broker.listen")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _no_delay(writer: asyncio.StreamWriter) -> None:
    """Without it a reply waits for the peer's delayed acknowledgement: 40 ms a round trip."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
