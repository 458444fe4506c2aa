"""The embedded broker's own promises; what clients see of it is in test_bus.py."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.services import broker as broker_module
from edgepanda.services.broker import EmbeddedBroker, serve
from edgepanda.services.broker_accounts import Accounts
from tests.rig.brokers import has_ipv6

CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a"
CONNACK = b"\x20\x02\x00\x00"


USERS = Accounts({})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "", "pi.local", "127.0.0.1.example", "[::]"])  # noqa: S104
@pytest.mark.parametrize(
    ("lacks", "options"),
    [
        ("passwords and TLS", {}),
        ("passwords", {"allow_plaintext": True}),
        ("TLS", {"accounts": USERS}),
    ],
)
def test_beyond_loopback_it_wants_passwords_and_tls(host, lacks, options):
    with pytest.raises(EdgePandaError) as caught:
        EmbeddedBroker(host, 0, **options)
    assert (caught.value.code, caught.value.where) == ("broker_not_loopback", "broker.listen")
    assert caught.value.message.endswith(f"on {host!r}, without {lacks}")


def test_it_may_be_told_that_the_network_reads_all():
    EmbeddedBroker("0.0.0.0", 0, accounts=USERS, allow_plaintext=True)  # noqa: S104


async def test_the_system_chooses_a_port_and_it_is_told():
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve("localhost", 0, ready=told.set_result))
    port = await told
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EdgePandaError) as caught:
            await EmbeddedBroker(port=port).start()
    assert caught.value.code == "port_in_use"
    assert f"127.0.0.1:{port}" in caught.value.message
    after = EmbeddedBroker(port=port)
    await after.start()
    await after.stop()


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback")
async def test_ipv6():
    broker = EmbeddedBroker("::1", 0)
    await broker.start()
    assert broker.url == f"mqtt://[::1]:{broker.port}"
    await broker.stop()


async def test_stop_closes_whoever_is_connected_and_may_be_called_twice():
    broker = EmbeddedBroker(port=0)
    await broker.stop()
    await broker.start()
    mute, _ = mutes = await asyncio.open_connection("127.0.0.1", broker.port)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(CONNECT)
    assert await reader.readexactly(4) == CONNACK
    async with asyncio.timeout(5):
        await broker.stop()
        await broker.stop()
        assert await reader.read() == b""
        assert await mute.read() == b""
    for each in (writer, mutes[1]):
        each.close()


async def test_small_packets_leave_at_once(monkeypatch):
    seen: asyncio.Queue[int] = asyncio.Queue()
    set_it = broker_module._no_delay

    def spy(writer: asyncio.StreamWriter) -> None:
        set_it(writer)
        seen.put_nowait(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(broker_module, "_no_delay", spy)
    broker = EmbeddedBroker(port=0)
    await broker.start()
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    assert await seen.get()
    writer.close()
    await broker.stop()


@pytest.mark.parametrize(
    "nonsense", [b"", b"\xff" * 50, b"GET / HTTP/1.1\r\n\r\n", b"\x10\x02\x00\x04", CONNECT[:9], b"\x00\x00"]
)
async def test_what_a_stranger_sends_ends_only_his_own_connection(nonsense, caplog):
    broker = EmbeddedBroker(port=0)
    await broker.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(nonsense)
    writer.write_eof()
    async with asyncio.timeout(5):
        await reader.read()
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(CONNECT)
    async with asyncio.timeout(5):
        assert await reader.readexactly(4) == CONNACK
    writer.close()
    await broker.stop()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
