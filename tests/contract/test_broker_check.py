"""`edgepanda broker check` on real brokers: what it finds, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.cli import main
from edgepanda.model.broker import BrokerAddress, parse_broker
from edgepanda.model.broker_needs import Observed, judge
from edgepanda.wire.broker_check import observe
from edgepanda.wire.probe import Probe
from tests.rig.brokers import Embedded, Mosquitto
from tests.rig.certificates import Authority

ALL = "user ann\ntopic readwrite #\n"
OURS = "user ann\ntopic readwrite edgepanda/v1/#\n"
OTHERS = "user ann\ntopic readwrite somewhere/#\n"


def address_of(url: str, **more: Any) -> BrokerAddress:
    return msgspec.structs.replace(parse_broker(url), **more)


async def codes(address: BrokerAddress) -> tuple[set[str], Observed]:
    seen = await observe(address)
    return {finding.code for finding in judge(seen, time.time())}, seen


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({}, set()),
        ({"options": "set_tcp_nodelay false"}, {"broker_delays"}),
        ({"options": "retain_available false"}, {"broker_no_retain"}),
        ({"options": "max_qos 0"}, {"broker_no_qos"}),
        ({"options": "message_size_limit 20000"}, {"broker_small_messages"}),
        ({"users": {"ann": "pw"}, "acl": ALL}, set()),
        ({"users": {"ann": "pw"}, "acl": OURS}, set()),
        ({"users": {"ann": "pw"}, "acl": OTHERS}, {"broker_topics"}),
    ],
    ids=["plain", "no-nodelay", "no-retain", "no-qos", "small", "users", "acl", "acl-others"],
)
async def test_mosquitto(options: dict[str, Any], missing: set[str]) -> None:
    with Mosquitto(**options) as broker:
        user = {"username": "ann", "password": "pw"} if "users" in options else {}
        found, seen = await codes(address_of(broker.url, **user))
        assert found == missing, seen
        assert not any(word in " ".join(broker.lines) for word in ("rror", "malformed"))
        if not missing:
            assert seen.session
            assert (seen.anonymous, seen.stranger) == ((False, False) if user else (True, None))
            await leaves_nothing(address_of(broker.url, **user))


async def leaves_nothing(address: BrokerAddress) -> None:
    """Whoever subscribes to everything now gets nothing that is retained."""
    probe = await Probe.open(address)
    assert (await probe.connect("look", user=address.username, password=address.password))[0] == 0
    await probe.subscribe("#")
    await probe.publish("edgepanda/v1/marker", b"", qos=1)
    assert [came for came in await probe.until("edgepanda/v1/marker") if came.payload] == []
    await probe.disconnect()


async def test_tls(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    ca = str(tmp_path / "ca.pem")
    with Mosquitto(authority=authority) as broker:
        found, seen = await codes(address_of(broker.url, ca_file=ca))
        assert found == set()
        assert (seen.certificate_until or 0) > time.time()
        for wrong in ({}, {"ca_file": ca, "server_name": "elsewhere.example"}):
            found, seen = await codes(address_of(broker.url, **wrong))
            assert found == {"broker_tls"}
            assert seen.failure_text.startswith("TLS: ")
        found, _ = await codes(address_of(f"mqtt://127.0.0.1:{broker.port}"))
        assert found <= {"broker_refused", "broker_unreachable"}
        assert found


async def test_no_way_in() -> None:
    assert (await codes(address_of("mqtt://127.0.0.1:1")))[0] == {"broker_unreachable"}
    with Mosquitto(users={"ann": "pw"}) as broker:
        wrong = address_of(broker.url, username="ann", password="no")  # noqa: S106
        assert (await codes(wrong))[0] == {"broker_refused"}


async def test_our_own() -> None:
    with Embedded() as broker:
        found, seen = await codes(address_of(broker.url))
        assert found == set(), seen
        assert seen.session is False
        await leaves_nothing(address_of(broker.url))


@contextlib.asynccontextmanager
async def plain_amqtt() -> AsyncIterator[int]:
    from amqtt.broker import Broker

    logging.getLogger("amqtt").setLevel(logging.CRITICAL)
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    broker = Broker({"listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0"}}, "plugins": plugins})
    await broker.start()
    try:
        yield broker._servers["default"].instance.sockets[0].getsockname()[1]
    finally:
        await broker.shutdown()


async def test_plain_amqtt_is_seen_through() -> None:
    async with plain_amqtt() as port:
        found, seen = await codes(address_of(f"mqtt://127.0.0.1:{port}"))
        assert {"broker_no_keepalive", "broker_no_takeover"} <= found, seen


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "edgepanda", "broker", "check", *words]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_who_is_interrupted_leaves_nothing_either(sign: signal.Signals) -> None:
    with Mosquitto() as broker:
        watcher = await Probe.open(parse_broker(broker.url))
        await watcher.connect("watcher")
        await watcher.subscribe("edgepanda/v1/check/#")
        process = await asyncio.create_subprocess_exec(*command(broker.url), stdout=subprocess.DEVNULL, stderr=-1)
        while not (came := await watcher._next()).topic.endswith("/kept"):
            pass
        process.send_signal(sign)
        assert process.stderr is not None
        assert "Traceback" not in (await process.stderr.read()).decode()
        assert await process.wait() == (-9 if sign is signal.SIGKILL else 130)
        while (await watcher.next(came.topic)).payload:
            pass
        await leaves_nothing(parse_broker(broker.url))
        await watcher.disconnect()


def test_the_command_tells_what_is_missing_and_ends_with_one(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "password").write_text("pw\n")
    with Mosquitto(users={"ann": "pw"}, options="message_size_limit 20000\nset_tcp_nodelay false") as broker:
        words = [f"mqtt://ann@127.0.0.1:{broker.port}", "--password-file", str(tmp_path / "password")]
        assert main(["broker", "check", *words]) == 1
        out = capsys.readouterr().out
        assert "16384 bytes came through, 65536 did not) [broker_small_messages]" in out
        assert "message_size_limit" in out
        assert "[broker_delays]" in out
        assert main(["broker", "check", *words, "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] is False
        assert [each["code"] for each in document["missing"]] == ["broker_small_messages", "broker_delays"]
        assert "pw" not in out
        assert main(["broker", "check", f"mqtt://ann:pw@127.0.0.1:{broker.port}"]) == 2
        assert "seen by everybody" in capsys.readouterr().err


async def test_mosquitto_as_the_guide_sets_it_up(tmp_path: Path) -> None:
    """The file that docs/guide/broker.md writes, with its folders and port replaced."""
    page = (Path(__file__).parents[2] / "docs/guide/broker.md").read_text()
    lines = page.partition("mosquitto-edgepanda.conf <<'END'\n")[2].partition("END\n")[0]
    assert "set_tcp_nodelay true" in lines
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    with Guided(lines, users={"shed": "pw"}, authority=authority) as broker:
        login = {"username": "shed", "password": "pw", "ca_file": str(tmp_path / "ca.pem")}
        found, seen = await codes(address_of(broker.url, **login))
        assert found == set(), seen
        assert (seen.tls, seen.anonymous) == (True, False)


class Guided(Mosquitto):
    """Mosquitto with somebody's whole configuration."""

    def __init__(self, lines: str, **more: Any) -> None:
        super().__init__(**more)
        self._whole = lines

    def _lines(self, folder: Path) -> list[str]:
        text = self._whole.replace("/etc/mosquitto/edgepanda.passwords", str(folder / "passwords"))
        text = text.replace("/etc/mosquitto/certs/broker.crt", str(folder / "cert.pem"))
        text = text.replace("/etc/mosquitto/certs/broker.key", str(folder / "key.pem"))
        assert "/etc/" not in text
        logged = ["log_dest stderr", "log_type all", *(["user root"] if os.geteuid() == 0 else [])]
        return [*logged, text.replace("listener 8883", f"listener {self.port} {self.host}")]


def test_without_a_url_it_is_the_one_of_the_configuration(tmp_path: Path, capsys: Any) -> None:
    with Mosquitto(users={"ann": "pw"}, acl="user ann\ntopic readwrite house/v1/#\n") as broker:
        (tmp_path / "password").write_text("pw")
        config = tmp_path / "edgepanda.toml"
        config.write_text(
            f'[site]\nbase = "house"\n[broker]\nurl = "{broker.url}"\nuser = "ann"\npassword_file = "password"\n'
        )
        assert main(["broker", "check", "--config", str(config)]) == 0
        assert "EdgePanda can use this broker." in capsys.readouterr().out


def test_what_is_not_over_in_time_is_named(capsys: Any) -> None:
    with Mosquitto() as broker:
        assert main(["broker", "check", broker.url, "--timeout", "1s", "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert "keepalive" in document["observed"]["unanswered"]
        assert document["missing"][0]["code"] == "broker_unanswered"


async def test_a_broker_that_is_no_broker() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert (await codes(address_of(f"mqtt://127.0.0.1:{port}")))[0] == {"broker_refused"}
    server.close()
