"""The holes of plain amqtt 0.12.1 that the embedded broker closes: each scenario is safe here, and not there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nacl.pwhash
import pytest

from edgepanda.services.broker import EmbeddedBroker, _our_own
from edgepanda.services.broker_accounts import Account, Accounts
from tests.rig.raw_mqtt import PUBLISH, RawClient, packet, text

SOON = 0.5  # seconds in which what must not come would have come
PASSWORD = "correct"  # noqa: S105 of this test
HASH = nacl.pwhash.str(
    PASSWORD.encode(), nacl.pwhash.OPSLIMIT_MIN, nacl.pwhash.MEMLIMIT_MIN
).decode()  # the weakest: quick
MAY = ("b/+",)
Scenario = Callable[[int], Awaitable[bool]]


@asynccontextmanager
async def hardened(tmp_path: Path, *, users: bool) -> AsyncIterator[int]:
    account = Account(password=HASH, publish=MAY, subscribe=MAY)
    accounts = Accounts({"ann": account, "bob": account}) if users else None
    broker = EmbeddedBroker(port=0, accounts=accounts, largest_packet=64 * 1024)
    await broker.start()
    try:
        yield broker.port
    finally:
        await broker.stop()


@asynccontextmanager
async def plain(tmp_path: Path, *, users: bool) -> AsyncIterator[int]:
    """amqtt as it comes, with its own plugins for passwords and topics."""
    from amqtt.broker import Broker

    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    plugins: dict[str, Any] = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    if users:
        file = tmp_path / "passwords"
        file.write_text(f"ann:{HASH}\nbob:{HASH}\n")
        acl = {"ann": list(MAY), "bob": list(MAY)}
        plugins = {
            "amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(file)},
            "amqtt.plugins.topic_checking.TopicAccessControlListPlugin": {"acl": acl, "publish_acl": acl},
        }
    broker = Broker({"listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0"}}, "plugins": plugins})
    await broker.start()
    try:
        yield broker._servers["default"].instance.sockets[0].getsockname()[1]
    finally:
        await broker.shutdown()


async def client(port: int, name: str, **more: Any) -> RawClient:
    """A connected one."""
    made = await RawClient.open(port)
    assert await made.connect(name, **more) == 0
    return made


async def a_newcomer_gets_only_what_he_asked_for(port: int) -> bool:
    """Retained messages that match somebody else's filter stay with him."""
    other = await client(port, "other")
    assert await other.subscribe("secret/#") == 0
    other.publish("secret/a", retain=True)
    assert await other.next_of(PUBLISH) is not None
    newcomer = await client(port, "newcomer")
    return await newcomer.next_of(PUBLISH, SOON) is None


async def a_wrong_password_takes_nobody_over(port: int) -> bool:
    """A stranger who names another's client id neither kicks it nor makes it deaf."""
    ann = await client(port, "ann", user="ann", password=PASSWORD)
    assert await ann.subscribe("b/c") == 0
    for clean in (True, False):
        stranger = await RawClient.open(port)
        assert await stranger.connect("ann", user="bob", password="wrong", clean=clean) != 0  # noqa: S106
    bob = await client(port, "bob", user="bob", password=PASSWORD)
    bob.publish("b/c")
    return await ann.next_of(PUBLISH, SOON) is not None


async def a_silent_client_is_gone(port: int) -> bool:
    """One that says nothing for one and a half times its keepalive is cut off, and its will goes out."""
    watcher = await client(port, "watcher")
    assert await watcher.subscribe("gone") == 0
    silent = await client(port, "silent", keepalive=1, will="gone")
    will = await watcher.next_of(PUBLISH, 3.0)
    return will is not None and will.topic == "gone" and await silent.closed(SOON)


async def half_a_packet_does_not_keep_it_alive(port: int) -> bool:
    """Nor one that stops in the middle of a packet."""
    silent = await client(port, "silent", keepalive=1)
    silent.writer.write(b"\x30\x7f\x00")
    return await silent.closed(3.0)


def _two_of_one_name(clean: bool) -> Scenario:
    async def the_newer_of_two_takes_over(port: int) -> bool:
        old = await client(port, "twin", clean=clean)
        assert await old.subscribe("twin/a") == 0
        new = await client(port, "twin", clean=clean)
        closed = await old.closed(1.0)
        subscribed = await new.subscribe("twin/b") == 0
        new.publish("twin/b")
        heard = await new.next_of(PUBLISH, SOON)
        return closed and subscribed and heard is not None and heard.topic == "twin/b"

    return the_newer_of_two_takes_over


async def a_filter_wider_than_allowed_is_refused(port: int) -> bool:
    """`b/+` is allowed; `b/#` would be more."""
    ann = await client(port, "ann", user="ann", password=PASSWORD)
    assert await ann.subscribe("b/+") == 0
    return await ann.subscribe("b/#") == 0x80


async def a_packet_too_large_ends_its_sender_alone(port: int) -> bool:
    """Before it was taken in."""
    other = await client(port, "other")
    large = await client(port, "large")
    large.writer.write(packet(0x30, text("a") + bytes(256 * 1024))[:65536])
    return await large.closed(SOON) and await other.alive()


SCENARIOS: list[tuple[Scenario, bool]] = [
    (a_newcomer_gets_only_what_he_asked_for, False),
    (a_wrong_password_takes_nobody_over, True),
    (a_silent_client_is_gone, False),
    (half_a_packet_does_not_keep_it_alive, False),
    (_two_of_one_name(clean=True), False),
    (_two_of_one_name(clean=False), False),
    (a_filter_wider_than_allowed_is_refused, True),
    (a_packet_too_large_ends_its_sender_alone, False),
]
IDS = [
    *("retained", "wrong-password", "keepalive", "half-a-packet", "twins-clean", "twins-kept", "wide-filter", "large"),
]


@pytest.mark.parametrize(("scenario", "users"), SCENARIOS, ids=IDS)
async def test_the_embedded_broker_is_safe(scenario: Scenario, users: bool, tmp_path: Path) -> None:
    async with hardened(tmp_path, users=users) as port:
        assert await scenario(port)


@pytest.mark.filterwarnings("ignore:The 'acl' option")
@pytest.mark.parametrize(("scenario", "users"), SCENARIOS, ids=IDS)
async def test_plain_amqtt_is_not(scenario: Scenario, users: bool, tmp_path: Path) -> None:
    """Else the scenario shows nothing, or amqtt has closed the hole and ours can go."""
    async with plain(tmp_path, users=users) as port:
        assert not await scenario(port)


async def test_publishing_needs_permission_too(tmp_path: Path) -> None:
    async with hardened(tmp_path, users=True) as port:
        ann = await client(port, "ann", user="ann", password=PASSWORD)
        assert await ann.subscribe("b/c") == 0
        bob = await client(port, "bob", user="bob", password=PASSWORD)
        bob.publish("c/d", retain=True)
        bob.publish("b/c", b"marker")
        came = await ann.next_of(PUBLISH)
        assert came is not None
        assert came.body.endswith(b"marker")


async def test_nobody_comes_in_without_an_account(tmp_path: Path) -> None:
    async with hardened(tmp_path, users=True) as port:
        for user, password in (("", ""), ("eve", PASSWORD), ("ann", "Correct")):
            stranger = await RawClient.open(port)
            assert await stranger.connect("x", user=user, password=password) == 4
            assert await stranger.closed()


async def test_many_of_one_name_at_once_leave_one(tmp_path: Path) -> None:
    async with hardened(tmp_path, users=False) as port:
        twins = [await RawClient.open(port) for _ in range(10)]
        codes = await asyncio.gather(*(twin.connect("twin") for twin in twins))
        assert 0 in codes
        alive = [await twin.alive() for twin in twins]
        assert sum(alive) == 1


@pytest.mark.parametrize("last", [packet(0xE0, b""), b""], ids=["disconnect", "hang-up"])
async def test_one_who_comes_and_goes_in_one_breath_blocks_nobody_of_his_name(last: bytes, tmp_path: Path) -> None:
    async with hardened(tmp_path, users=False) as port:
        hasty = await RawClient.open(port)
        connect = packet(0x10, text("MQTT") + b"\x04\x02\0\0" + text("hasty"))
        hasty.writer.write(connect + packet(0x82, b"\0\1" + text("a") + b"\0") + last)
        hasty.writer.write_eof()
        assert await hasty.closed()
        assert await (await client(port, "hasty")).alive()


async def test_who_never_says_connect_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepanda.services.broker.CONNECT_WITHIN", 0.1)
    async with hardened(tmp_path, users=False) as port:
        mute = await RawClient.open(port)
        assert await mute.closed()


def test_a_message_that_is_not_acknowledged_fills_no_log() -> None:
    """amqtt gives up each after five seconds, with a traceback for each; its own failures stay."""

    def record(error: Exception) -> logging.LogRecord:
        return logging.LogRecord("amqtt.broker", logging.ERROR, "", 0, "Task failed", (), (type(error), error, None))

    assert not _our_own(record(TimeoutError("Timeout waiting for PUBACK")))
    assert _our_own(record(ValueError("a fault")))
