"""The embedded broker with TLS and users: who gets in, and what changed files do without a restart."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nacl.pwhash
import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress
from edgepanda.services import broker as broker_module
from edgepanda.services import broker_logins
from edgepanda.services.broker import EmbeddedBroker
from edgepanda.services.broker_accounts import Account, Accounts
from edgepanda.services.broker_files import Certificate
from edgepanda.wire.link import tls_context
from tests.rig.certificates import Authority
from tests.rig.raw_mqtt import RawClient

HASH = bytes(nacl.pwhash.str(b"correct", nacl.pwhash.OPSLIMIT_MIN, nacl.pwhash.MEMLIMIT_MIN)).decode()


def certify(folder: Path, authority: Authority, name: str = "broker.example") -> Certificate:
    certificate, key = authority.issue([name])
    (folder / "ca.pem").write_text(authority.certificate)
    (folder / "key.pem").write_text(key)
    (folder / "cert.pem").write_text(certificate)
    return Certificate(folder / "cert.pem", folder / "key.pem")


@asynccontextmanager
async def served(certificate: Certificate | None = None, accounts: Accounts | None = None) -> AsyncIterator[int]:
    broker = EmbeddedBroker(port=0, certificate=certificate, accounts=accounts)
    await broker.start()
    try:
        yield broker.port
    finally:
        await broker.stop()


async def opened(port: int, **how: str) -> RawClient:
    address = BrokerAddress(host="127.0.0.1", port=port, tls=True, **how)
    name = address.server_name or "127.0.0.1"
    return RawClient(*await asyncio.open_connection("127.0.0.1", port, ssl=tls_context(address), server_hostname=name))


async def test_a_client_checks_authority_and_name_and_our_own_the_very_certificate(tmp_path: Path) -> None:
    ca, ours = str(tmp_path / "ca.pem"), str(tmp_path / "cert.pem")
    other, _ = Authority().issue(["broker.example"])
    (tmp_path / "other.pem").write_text(other)
    async with served(certify(tmp_path, Authority())) as port:
        for how in ({"ca_file": ca, "server_name": "broker.example"}, {"pinned_file": ours}):
            client = await opened(port, **how)
            assert await client.connect("a") == 0
            assert await client.alive()
            client.close()
        for how in ({"ca_file": ca}, {"server_name": "broker.example"}, {"pinned_file": str(tmp_path / "other.pem")}):
            with pytest.raises(ssl.SSLCertVerificationError):
                await opened(port, **how)
        plain = await RawClient.open(port)
        assert await plain.connect("b") is None


async def test_a_pinned_certificate_does_not_trust_its_authority(tmp_path: Path) -> None:
    """Whoever else that one has signed is not our broker, also where the file has the chain."""
    authority = Authority()
    second = tmp_path / "second"
    second.mkdir()
    certify(tmp_path, authority)
    chain = tmp_path / "cert.pem"
    chain.write_text(chain.read_text() + authority.certificate)
    async with served(certify(second, authority)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await opened(port, pinned_file=str(chain))


async def test_a_renewed_certificate_is_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "LOOK_EVERY", 0.02)
    old, new = Authority(), Authority()
    certificate = certify(tmp_path, old)
    async with served(certificate) as port:
        first = await opened(port, ca_file=str(tmp_path / "ca.pem"), server_name="broker.example")
        assert await first.connect("a") == 0
        (tmp_path / "key.pem").write_text("no key")
        certify(tmp_path, new)
        async with asyncio.timeout(5):
            while True:
                try:
                    second = await opened(port, ca_file=str(tmp_path / "ca.pem"), server_name="broker.example")
                    break
                except ssl.SSLCertVerificationError:
                    continue
        assert await second.connect("b") == 0
        assert await first.alive()
        for client in (first, second):
            client.close()


def test_a_certificate_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    certify(tmp_path, Authority())
    missing = tmp_path / "nowhere.pem"
    with pytest.raises(EdgePandaError) as caught:
        Certificate(tmp_path / "cert.pem", missing)
    assert (caught.value.code, caught.value.where) == ("broker_certificate", str(missing))
    with pytest.raises(EdgePandaError) as caught:
        Certificate(tmp_path / "cert.pem", tmp_path / "ca.pem")
    assert caught.value.code == "broker_certificate"
    (tmp_path / "key.pem").write_text(Authority().issue(["x"])[1])
    with pytest.raises(EdgePandaError):
        Certificate(tmp_path / "cert.pem", tmp_path / "key.pem")


async def test_a_removed_user_is_cut_off_and_a_new_one_comes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "LOOK_EVERY", 0.02)
    path = tmp_path / "users.toml"
    path.write_text("".join(f'[users.{name}]\npassword = "{HASH}"\n' for name in ("ann", "bob")))
    async with served(accounts=Accounts.load(path)) as port:
        ann, bob, early = [await RawClient.open(port) for _ in range(3)]
        assert await ann.connect("a", user="ann", password="correct") == 0  # noqa: S106
        assert await bob.connect("b", user="bob", password="correct") == 0  # noqa: S106
        assert await early.connect("e", user="eve", password="correct") == 4  # noqa: S106
        fresh = tmp_path / "fresh"
        fresh.write_text("".join(f'[users.{name}]\npassword = "{HASH}"\n' for name in ("ann", "eve")))
        os.replace(fresh, path)
        assert await bob.closed()
        eve = await RawClient.open(port)
        assert await eve.connect("e", user="eve", password="correct") == 0  # noqa: S106
        assert await ann.alive()


async def test_who_guesses_is_refused_unseen_and_who_was_right_before_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_logins, "EACH", 1000.0)
    accounts, checked = Accounts({"ann": Account(password=HASH)}), []
    check = accounts.check
    monkeypatch.setattr(accounts, "check", lambda name, password: (checked.append(password), check(name, password))[1])
    async with served(accounts=accounts) as port:
        known = await RawClient.open(port)
        assert await known.connect("known", user="ann", password="correct") == 0  # noqa: S106
        guesses = [await RawClient.open(port) for _ in range(40)]
        codes = await asyncio.gather(*(each.connect("x", user="ann", password="wrong") for each in guesses))  # noqa: S106
        assert codes == [4] * 40
        assert checked == ["correct"] + ["wrong"] * broker_logins.FREE
        again = await RawClient.open(port)
        assert await again.connect("again", user="ann", password="correct") == 0  # noqa: S106


async def test_a_storm_of_logins_does_not_stand_in_the_way_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop answers while the hash of each login is computed: it is held here until the answers came."""
    accounts, going = Accounts({"ann": Account(password=HASH)}), asyncio.Event()
    loop = asyncio.get_running_loop()
    check = accounts.check

    def slow(name: str | None, password: str | None) -> bool:
        asyncio.run_coroutine_threadsafe(going.wait(), loop).result(10)
        return check(name, password)

    async with served(accounts=accounts) as port:
        known = await RawClient.open(port)
        assert await known.connect("known", user="ann", password="correct") == 0  # noqa: S106
        monkeypatch.setattr(accounts, "check", slow)
        storm = [await RawClient.open(port) for _ in range(8)]
        logins = [asyncio.ensure_future(each.connect("s", user="ann", password="wrong")) for each in storm]  # noqa: S106
        for _ in range(20):
            assert await known.alive()
        assert not any(each.done() for each in logins)
        going.set()
        assert set(await asyncio.gather(*logins)) == {4}
