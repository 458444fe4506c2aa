"""The bus on real brokers: the same suite for Mosquitto and the embedded one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from edgepanda.model.broker import BrokerAddress, parse_broker
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Directory, Peer, PeerList, Role
from edgepanda.wire import envelope, messages, topics
from edgepanda.wire import link as link_module
from edgepanda.wire.bus import Bus, Message, Refused
from edgepanda.wire.link import Link
from edgepanda.wire.topics import Topic
from tests.rig.brokers import Embedded, Mosquitto, Process, Secured, has_ipv6
from tests.rig.certificates import Authority

SITE, NODE, OTHER, OPERATOR, STRANGER = (Identity.create() for _ in range(5))
ROLES: tuple[tuple[Identity, str, Role], ...] = (
    (NODE, "pi", "node"),
    (OTHER, "attic", "node"),
    (OPERATOR, "alice", "operator"),
)
PEERS = PeerList(
    site="home",
    revision=1,
    peers=tuple(Peer(key=encode_key(who.public), name=name, role=role) for who, name, role in ROLES),
)
KINDS = [
    pytest.param(Mosquitto, id="mosquitto"),
    pytest.param(Embedded, id="embedded"),
    pytest.param(Secured, id="secured"),
]
WORD = "s:e/c@r#t%41"
_bases = itertools.count()


@pytest.fixture(scope="module", params=KINDS)
def broker(request: pytest.FixtureRequest) -> Iterator[Process]:
    """One for all tests that leave it alone; each has a base of its own."""
    with request.param() as running:
        yield running


@pytest.fixture(params=KINDS)
def own_broker(request: pytest.FixtureRequest) -> Iterator[Process]:
    """One for a test that kills it."""
    with request.param() as running:
        yield running


@pytest.fixture
def base() -> str:
    return f"base{next(_bases)}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connects again after tens of milliseconds."""
    monkeypatch.setattr(link_module, "FIRST_WAIT", 0.05)
    monkeypatch.setattr(link_module, "LONGEST_WAIT", 0.1)


class Seat:
    """A bus, what it received, and events for its connection."""

    def __init__(
        self, address: BrokerAddress, who: Identity, base: str, process: str, directory: Directory | None = None
    ) -> None:
        if directory is None:
            directory = Directory(SITE.public)
            directory.replace(PEERS)
        self.up, self.down = asyncio.Event(), asyncio.Event()
        self.ups = 0
        self.received: asyncio.Queue[Message] = asyncio.Queue()
        self.refused: asyncio.Queue[Refused] = asyncio.Queue()
        self.bus = Bus(
            address,
            who,
            directory,
            site="home",
            process=process,
            base=base,
            on_up=self._went_up,
            on_down=self.down.set,
            on_refused=self.refused.put_nowait,
        )

    def _went_up(self) -> None:
        self.ups += 1
        self.down.clear()
        self.up.set()

    def listen(self, *wanted: Topic, **names: str) -> None:
        for topic in wanted:
            self.bus.subscribe(topic, self.received.put_nowait, **names)

    async def next(self) -> Message:
        async with asyncio.timeout(5):
            return await self.received.get()


@contextlib.asynccontextmanager
async def seated(
    broker: Process | BrokerAddress,
    who: Identity,
    base: str,
    *wanted: Topic,
    process: str = "n",
    await_up: bool = True,
    directory: Directory | None = None,
    **names: str,
) -> AsyncIterator[Seat]:
    """A running bus that listens to these topics; stopped at the end."""
    address = broker.address if isinstance(broker, Process) else broker
    seat = Seat(address, who, base, process, directory)
    seat.listen(*wanted, **names)
    seat.bus.start()
    try:
        if await_up:
            async with asyncio.timeout(5):
                await seat.up.wait()
        yield seat
    finally:
        await seat.bus.stop()


@contextlib.asynccontextmanager
async def raw_client(
    broker: Process | BrokerAddress, on_message: Callable[[str, bytes, bool], None] | None = None, topic: str = ""
) -> AsyncIterator[Link]:
    """A connection that says any bytes."""
    up = asyncio.Event()
    link = Link(
        broker.address if isinstance(broker, Process) else broker,
        f"raw-{os.urandom(6).hex()}",
        subscriptions=[(topic, 1)] if topic else [],
        will=lambda: None,
        on_message=on_message or (lambda _topic, _payload, _retained: None),
        on_up=up.set,
        on_down=lambda: None,
    )
    task = asyncio.create_task(link.run())
    try:
        async with asyncio.timeout(5):
            await up.wait()
        yield link
    finally:
        await link.flush()
        link.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def started(body_id: str, attempt: int = 1) -> messages.Started:
    return messages.Started(id=body_id, task="task-0001", attempt=attempt, seq=1)


def event(body_id: str, padding: int = 0) -> messages.Event:
    return messages.Event(id=body_id, seq=1, at=0.0, kind="x" * padding)


def sealed(who: Identity, topic: str, *bodies: object) -> bytes:
    encoded = [body if isinstance(body, bytes) else msgspec.json.encode(body) for body in bodies]
    return envelope.seal(who, site="home", topic=topic, envelope_id="e1", bodies=encoded)


# What gets through


async def test_a_typed_body_arrives_as_it_was_said(broker, base):
    async with (
        seated(broker, SITE, base, topics.REPORT, process="c") as site,
        seated(broker, NODE, base) as node,
    ):
        node.bus.send(topics.REPORT, started("r1"), node="pi")
        got = await site.next()
        assert got.body == started("r1")
        assert (got.sender.name, got.topic, got.name, got.retained) == ("pi", topics.REPORT, "pi", False)
        assert not site.bus.counts


async def test_a_request_to_a_node_and_its_reply_are_for_these_two_alone(broker, base):
    kid, other = OPERATOR.kid, OTHER.kid
    async with (
        seated(broker, NODE, base, topics.NODE_REQUEST, node="pi") as node,
        seated(broker, OTHER, base, topics.NODE_REQUEST, node="attic") as attic,
        seated(broker, OPERATOR, base, topics.NODE_REPLY, process="x", client=kid) as client,
    ):
        client.bus.deliver(topics.NODE_REQUEST, messages.Request(id="q1", method="logs"), node="pi", client=kid)
        question = await node.next()
        assert (question.sender.name, question.name, question.client) == ("alice", "pi", kid)
        node.bus.send(topics.NODE_REPLY, messages.Reply(id="q1", result=[1]), node="pi", client=other)
        node.bus.send(topics.NODE_REPLY, messages.Reply(id="q1", result=[2]), node="pi", client=kid)
        answer = await client.next()
        assert (answer.body, answer.name, answer.sender.name) == (messages.Reply(id="q1", result=[2]), "pi", "pi")
        client.bus.settle(["q1"])
        assert attic.received.empty()
        assert client.received.empty()


async def test_who_may_not_ask_a_node_is_not_heard(broker, base):
    mine, foreign = (topics.NODE_REQUEST.at(node="pi", client=who.kid) for who in (OPERATOR, OTHER))
    reply = topics.NODE_REPLY.at(node="pi", client=OPERATOR.kid)
    request = messages.Request(id="q1", method="logs")
    forged = [
        (mine, sealed(OTHER, mine, request)),  # another node
        (foreign, sealed(OTHER, foreign, request)),
        (mine, sealed(SITE, mine, request)),
        (foreign, sealed(OPERATOR, foreign, request)),  # an operator, so that somebody else gets the answer
        (reply, sealed(OTHER, reply, messages.Reply(id="q1"))),  # another node answers
        (reply, sealed(OPERATOR, reply, messages.Reply(id="q1"))),
    ]
    stranger = sealed(STRANGER, mine, request)
    moved = sealed(OPERATOR, topics.NODE_REQUEST.at(node="attic", client=OPERATOR.kid), request)
    async with (
        seated(broker, NODE, base, topics.NODE_REQUEST, topics.NODE_REPLY) as node,
        raw_client(broker) as raw,
    ):
        for topic, payload in [*forged, (mine, stranger), (mine, moved), (mine, sealed(OPERATOR, mine, request))]:
            raw.publish(f"{base}/{topic}", payload, qos=1, retain=False)
        heard = await node.next()
        assert heard.sender.name == "alice"
        assert node.received.empty()
        assert node.bus.counts == {"not_allowed": 6, "unknown_key": 1, "bad_signature": 1}


async def test_a_request_and_its_reply(broker, base):
    async with (
        seated(broker, SITE, base, topics.REQUEST, process="c") as site,
        seated(broker, OPERATOR, base, topics.REPLY, process="x", client="alice") as client,
    ):
        client.bus.deliver(topics.REQUEST, messages.Request(id="q1", method="node.list"))
        question = await site.next()
        site.bus.send(topics.REPLY, messages.Reply(id=question.body.id, result=[1]), client="alice")
        assert (await client.next()).body == messages.Reply(id="q1", result=[1])
        client.bus.settle(["q1"])


async def test_bodies_of_one_turn_share_an_envelope_and_large_ones_take_more(broker, base):
    payloads: asyncio.Queue[bytes] = asyncio.Queue()
    topic = f"{base}/{topics.EVENTS.at()}"
    async with (
        raw_client(broker, lambda _topic, payload, _retained: payloads.put_nowait(payload), topic),
        seated(broker, OPERATOR, base, topics.EVENTS, process="x") as listener,
        seated(broker, SITE, base, process="c") as site,
    ):
        for number in range(5):
            site.bus.send(topics.EVENTS, event(f"small{number}"))
        got = [(await listener.next()).body.id for _ in range(5)]
        for number in range(5):
            site.bus.send(topics.EVENTS, event(f"large{number}", 30_000))
        got += [(await listener.next()).body.id for _ in range(5)]
        assert got == [f"{size}{n}" for size in ("small", "large") for n in range(5)]
        async with asyncio.timeout(5):
            sizes = [len(await payloads.get()) for _ in range(4)]
        assert payloads.empty()
        assert max(sizes) <= envelope.LARGEST


async def test_retained_bodies_reach_who_comes_later(broker, base):
    status = messages.Status(id="s", online=True, boot="b", incarnation=1)
    async with seated(broker, NODE, base) as node:
        node.bus.retain(topics.STATUS, status, node="pi")
        await node.bus.link.flush()
        async with seated(broker, SITE, base, topics.STATUS, process="c") as site:
            got = await site.next()
            assert (got.body, got.retained) == (status, True)


async def test_nodelay_is_set_on_the_socket(broker, base):
    async with seated(broker, NODE, base) as node:
        sock = node.bus.link._client.socket()
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# What is dropped


def bad_messages() -> list[tuple[str, str, dict[str, int], str, bytes]]:
    """Name, topic, what is counted, id that is answered (or none), payload."""
    report, request, card = topics.REPORT.at(node="pi"), topics.REQUEST.at(), topics.CARD.at(node="pi")
    good = started("x")
    unknown_type = b'{"id":"u1","type":"brew_coffee","cups":2}'
    missing = b'{"id":"m1","type":"started","task":"task-0001"}'
    wrong_type = b'{"id":"m2","type":"started","task":7,"attempt":"one","seq":null}'
    huge = b'{"id":"m3","type":"started","task":"t","attempt":' + b"9" * 400 + b',"seq":1}'
    not_a_number = b'{"id":"m4","type":"started","task":"t","attempt":NaN,"seq":1}'
    deep = b'{"id":"m5","type":"request","method":"x","params":{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}}"
    nothing: dict[str, int] = {}
    return [
        ("an operator reports", report, {"not_allowed": 1}, "", sealed(OPERATOR, report, good)),
        ("the site reports", report, {"not_allowed": 1}, "", sealed(SITE, report, good)),
        ("a node under another's name", report, {"not_allowed": 1}, "", sealed(OTHER, report, good)),
        ("a body of another topic", card, {"not_allowed": 1}, "", sealed(NODE, card, good)),
        (
            "the site asks itself",
            request,
            {"not_allowed": 1},
            "",
            sealed(SITE, request, messages.Request(id="q", method="x")),
        ),
        ("a key that nobody knows", report, {"unknown_key": 1}, "", sealed(STRANGER, report, good)),
        (
            "an envelope of another topic",
            report,
            {"bad_signature": 1},
            "",
            sealed(NODE, topics.REPORT.at(node="attic"), good),
        ),
        ("an unknown type", report, {"unsupported": 1}, "u1", sealed(NODE, report, unknown_type)),
        ("a missing member", report, {"malformed": 1}, "m1", sealed(NODE, report, missing)),
        ("members of the wrong type", report, {"malformed": 1}, "m2", sealed(NODE, report, wrong_type)),
        ("a huge number", report, {"malformed": 1}, "m3", sealed(NODE, report, huge)),
        ("no number", report, {"malformed": 1}, "", sealed(NODE, report, not_a_number)),
        ("deeply nested", request, {"malformed": 1}, "", sealed(OPERATOR, request, deep)),
        ("a body that is none", report, {"malformed": 2}, "", sealed(NODE, report, b"7", b'{"type":"started"}')),
        ("too large", report, {"oversized": 1}, "", b" " * (envelope.LARGEST + 1)),
        ("bytes that are no text", report, {"malformed": 1}, "", b"\xff\xfe\xff"),
        ("no JSON", report, {"malformed": 1}, "", "grüß dich".encode()),
        ("nothing", report, {"empty": 1}, "", b""),
        ("a topic that is none of ours", "v1/nodes/pi/report/x", nothing, "", sealed(NODE, report, good)),
    ]


async def test_what_must_not_be_said_is_dropped_and_counted_and_disturbs_nobody(broker, base):
    async with (
        seated(broker, SITE, base, topics.REPORT, topics.REQUEST, topics.CARD, process="c") as site,
        raw_client(broker) as raw,
    ):
        for number, (name, topic, counted, answered, payload) in enumerate(bad_messages()):
            site.bus.counts.clear()
            raw.publish(f"{base}/{topic}", payload, qos=1, retain=False)
            raw.publish(
                f"{base}/{topics.REPORT.at(node='pi')}",
                sealed(NODE, topics.REPORT.at(node="pi"), started(f"g{number}")),
                qos=1,
                retain=False,
            )
            assert (await site.next()).body.id == f"g{number}", name
            assert dict(site.bus.counts) == counted, name
            told = [site.refused.get_nowait().id for _ in range(site.refused.qsize())]
            assert told == ([answered] if answered else []), name


async def test_a_good_body_beside_a_bad_one_is_taken(broker, base):
    report = topics.REPORT.at(node="pi")
    async with seated(broker, SITE, base, topics.REPORT, process="c") as site, raw_client(broker) as raw:
        payload = sealed(NODE, report, b'{"id":"b","type":"started"}', started("good"))
        raw.publish(f"{base}/{report}", payload, qos=1, retain=False)
        assert (await site.next()).body.id == "good"
        assert dict(site.bus.counts) == {"malformed": 1}


async def test_a_refusal_is_logged_once_for_each_code_and_sender(broker, base, caplog):
    report = topics.REPORT.at(node="pi")
    async with seated(broker, SITE, base, topics.REPORT, process="c") as site, raw_client(broker) as raw:
        for _ in range(3):
            raw.publish(f"{base}/{report}", sealed(OPERATOR, report, started("x")), qos=1, retain=False)
        raw.publish(f"{base}/{report}", sealed(NODE, report, started("good")), qos=1, retain=False)
        await site.next()
        assert site.bus.counts["not_allowed"] == 3
    assert caplog.text.count("alice (operator) may not say") == 1


async def test_a_retained_command_never_acts(broker, base):
    report = topics.REPORT.at(node="pi")
    async with raw_client(broker) as raw:
        raw.publish(f"{base}/{report}", sealed(NODE, report, started("kept")), qos=1, retain=True)
        await raw.flush()
        async with seated(broker, SITE, base, topics.REPORT, process="c") as site:
            raw.publish(f"{base}/{report}", sealed(NODE, report, started("live")), qos=1, retain=False)
            assert (await site.next()).body.id == "live"
            assert site.bus.counts["retained"] >= 1
        raw.publish(f"{base}/{report}", b"", qos=1, retain=True)


async def test_a_node_takes_only_what_is_for_its_own_name(broker, base):
    """The embedded broker brings a new client retained messages that only others have subscribed to."""
    async with seated(broker, SITE, base, topics.STATUS, process="c") as site:
        async with seated(broker, OTHER, base) as other:
            other.bus.retain(topics.STATUS, messages.Status(id="a", online=True, boot="b", incarnation=1), node="attic")
            assert (await site.next()).name == "attic"
        async with seated(broker, NODE, base, topics.STATUS, node="pi") as node:
            mine = messages.Status(id="p", online=True, boot="b", incarnation=1)
            node.bus.retain(topics.STATUS, mine, node="pi")
            assert (await node.next()).name == "pi"
            assert node.received.empty()


async def test_a_handler_that_fails_ends_nothing(broker, base, caplog):
    async with (
        seated(broker, NODE, base, topics.INBOX, node="pi") as node,
        seated(broker, SITE, base, process="c") as site,
    ):
        _, name = node.bus._handlers[topics.INBOX.pattern]

        def handler(message: Message) -> None:
            if message.body.id == "bad":
                raise RuntimeError("as planned")
            node.received.put_nowait(message)

        node.bus._handlers[topics.INBOX.pattern] = (handler, name)
        for body_id in ("bad", "good"):
            site.bus.send(topics.INBOX, messages.Cancel(id=body_id, task="task-0001", attempt=1), node="pi")
        assert (await node.next()).body.id == "good"
        assert node.bus.counts["handler_failed"] == 1
        assert node.bus.up
    assert "as planned" in caplog.text


# When the link breaks


@pytest.mark.usefixtures("quick")
async def test_after_the_broker_died_everything_is_as_before(own_broker, base):
    """A bus that hears itself: it has its subscriptions again before it says what waits."""
    async with seated(own_broker, NODE, base, topics.REPORT, node="pi") as node:
        node.bus.deliver(topics.REPORT, started("before"), node="pi")
        assert (await node.next()).body.id == "before"
        node.bus.settle(["before"])
        node.up.clear()
        own_broker.kill()
        async with asyncio.timeout(5):
            await node.down.wait()
        node.bus.send(topics.REPORT, started("into the void"), node="pi")
        node.bus.deliver(topics.REPORT, started("meanwhile"), node="pi")
        await asyncio.to_thread(own_broker.restart)
        async with asyncio.timeout(5):
            await node.up.wait()
        assert (await node.next()).body.id == "meanwhile"
        node.bus.settle(["meanwhile"])
        assert node.ups == 2
        assert node.bus.link.last_error is None


@pytest.mark.usefixtures("quick")
async def test_a_broker_that_comes_later_is_found(own_broker, base):
    own_broker.kill()
    async with seated(own_broker, NODE, base, await_up=False) as node:
        async with asyncio.timeout(5):
            await node.bus.link.tried.wait()
        assert node.bus.link.last_error.code == "broker_unreachable"
        assert not node.bus.up
        await asyncio.to_thread(own_broker.restart)
        async with asyncio.timeout(5):
            await node.up.wait()


CHILD = """
import asyncio, sys
import msgspec
from edgepanda.model.broker import BrokerAddress
from edgepanda.trust.identity import Identity
from edgepanda.trust.peers import Directory
from edgepanda.wire import messages, topics
from edgepanda.wire.bus import Bus

async def main(address, base, seed):
    me, up = Identity(bytes.fromhex(seed)), asyncio.Event()
    will = messages.Status(id="will", online=False, boot="this boot", incarnation=7)
    bus = Bus(msgspec.json.decode(address, type=BrokerAddress), me, Directory(me.public),
              site="home", process="n", base=base,
              will=lambda: (topics.STATUS, {"node": "pi"}, will), on_up=up.set)
    bus.start()
    await up.wait()
    bus.retain(topics.STATUS, messages.Status(id="here", online=True, boot="this boot", incarnation=7), node="pi")
    if await asyncio.to_thread(sys.stdin.readline):
        await bus.stop()

asyncio.run(main(*sys.argv[1:]))
"""


@contextlib.asynccontextmanager
async def child(broker: Process, base: str, seed: bytes) -> AsyncIterator[asyncio.subprocess.Process]:
    address = msgspec.json.encode(broker.address).decode()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, address, base, seed.hex(), stdin=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def watched_child(broker: Process, base: str) -> AsyncIterator[tuple[Seat, asyncio.subprocess.Process]]:
    """A process that is the node `pi`, and somebody who sees its status."""
    seed = os.urandom(32)
    key = encode_key(Identity(seed).public)
    async with seated(broker, SITE, base, topics.STATUS, process="c") as site:
        site.bus.directory.replace(msgspec.structs.replace(PEERS, peers=(Peer(key=key, name="pi", role="node"),)))
        async with child(broker, base, seed) as process:
            assert (await site.next()).body.online
            yield site, process


async def test_the_will_of_a_killed_process_is_published_with_its_boot_and_stays(broker, base):
    async with watched_child(broker, base) as (site, process):
        process.send_signal(signal.SIGKILL)
        gone = (await site.next()).body
        assert (gone.online, gone.boot, gone.incarnation) == (False, "this boot", 7)
        async with seated(broker, SITE, base, topics.STATUS, process="d", directory=site.bus.directory) as later:
            kept = await later.next()
            assert (kept.body.online, kept.retained) == (False, True)


async def test_who_says_goodbye_leaves_no_will(broker, base):
    async with watched_child(broker, base) as (site, process):
        process.stdin.write(b"stop\n")
        assert await process.wait() == 0
        async with seated(broker, SITE, base, topics.STATUS, process="d", directory=site.bus.directory) as later:
            kept = await later.next()  # what it said last stands; a late will would have come to us both by now
            assert kept.body.online
        assert site.received.empty()


# What the broker does not give


async def refusal(address: BrokerAddress, base: str = "edgepanda") -> str:
    """Code of the first attempt's error; empty when it came up."""
    async with seated(address, NODE, base, topics.INBOX, await_up=False, node="pi") as node:
        async with asyncio.timeout(5):
            await node.bus.link.tried.wait()
        error = node.bus.link.last_error
        assert error is None or (error.where and not node.bus.up)
        return error.code if error else ""


async def test_user_and_password():
    with Mosquitto(users={"panda": WORD}) as broker:
        address = parse_broker(broker.url)
        right = msgspec.structs.replace(address, username="panda", password=WORD)
        wrong = msgspec.structs.replace(right, password=WORD + "!")
        assert [await refusal(a) for a in (right, wrong, address)] == ["", "broker_refused", "broker_refused"]
        assert await refusal(parse_broker(f"mqtt://panda:{quote(WORD, safe='')}@127.0.0.1:{broker.port}")) == ""


async def test_an_access_list_keeps_others_topics_away(base):
    """Mosquitto takes any subscription, and then brings only what the list allows."""
    allowed = f"user panda\ntopic readwrite {base}/v1/site/events\n"
    with Mosquitto(users={"panda": WORD}, acl=allowed) as broker:
        address = msgspec.structs.replace(parse_broker(broker.url), username="panda", password=WORD)
        async with (
            seated(address, OPERATOR, base, topics.EVENTS, topics.COORDINATOR, process="x") as listener,
            seated(address, SITE, base, process="c") as site,
        ):
            site.bus.send(topics.COORDINATOR, event("forbidden"))
            site.bus.send(topics.EVENTS, event("allowed"))
            assert (await listener.next()).body.id == "allowed"
            assert not listener.bus.counts


async def packet(reader: asyncio.StreamReader) -> bytes:
    """What follows the fixed header of the next, short packet."""
    _, size = await reader.readexactly(2)
    return await reader.readexactly(size)


async def test_a_broker_that_refuses_a_subscription():
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await packet(reader)
        writer.write(b"\x20\x02\x00\x00")
        subscribe = await packet(reader)
        writer.write(b"\x90\x03" + subscribe[:2] + b"\x80")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await refusal(parse_broker(f"mqtt://127.0.0.1:{port}")) == "broker_refused"


async def test_tls(tmp_path: Path):
    ours, theirs = Authority(), Authority("somebody else")
    for name, authority in (("ours", ours), ("theirs", theirs)):
        (tmp_path / name).write_text(authority.certificate)
    (tmp_path / "damaged").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
    with Mosquitto(authority=ours, certified=("broker.example",)) as broker:
        plain = parse_broker(broker.url)

        async def with_(ca: str, server_name: str = "") -> str:
            ca_file = str(tmp_path / ca) if ca else ""
            return await refusal(msgspec.structs.replace(plain, ca_file=ca_file, server_name=server_name))

        assert await with_("ours", "broker.example") == ""
        assert await with_("ours") == "broker_tls"  # another name in the certificate
        assert await with_("ours", "other.example") == "broker_tls"
        assert await with_("theirs", "broker.example") == "broker_tls"
        assert await with_("", "broker.example") == "broker_tls"
        assert await with_("damaged", "broker.example") == "broker_tls"
        assert await with_("missing", "broker.example") == "broker_tls"
        assert await refusal(msgspec.structs.replace(plain, tls=False)) == "broker_unreachable"


async def test_tls_carries_large_bodies_with_nodelay(tmp_path: Path, base: str):
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.certificate)
    with Mosquitto(authority=authority) as broker:
        address = msgspec.structs.replace(parse_broker(broker.url), ca_file=str(tmp_path / "ca.pem"))
        async with (
            seated(address, OPERATOR, base, topics.EVENTS, process="x") as listener,
            seated(address, SITE, base, process="c") as site,
        ):
            for number in range(20):
                site.bus.send(topics.EVENTS, event(f"{number}", 60_000))
            assert [(await listener.next()).body.id for _ in range(20)] == [str(n) for n in range(20)]
            assert site.bus.link._client.socket().getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_several_messages_in_one_tls_record_are_all_read(tmp_path: Path):
    """The socket is silent after the record: what is left stands in the TLS layer alone."""
    authority = Authority()
    certificate, key = authority.issue(["127.0.0.1"])
    for name, text in (("ca", authority.certificate), ("cert", certificate), ("key", key)):
        (tmp_path / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await packet(reader)
        writer.write(b"\x20\x02\x00\x00")
        subscribe = await packet(reader)
        messages_ = b"".join(b"\x30\x04\x00\x01t%d" % number for number in range(5))
        writer.write(b"\x90\x03" + subscribe[:2] + b"\x00" + messages_)
        await reader.read()
        writer.close()

    got: asyncio.Queue[bytes] = asyncio.Queue()
    async with await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        address = msgspec.structs.replace(parse_broker(f"mqtts://127.0.0.1:{port}"), ca_file=str(tmp_path / "ca"))
        async with raw_client(address, lambda _topic, payload, _retained: got.put_nowait(payload), "t"):
            async with asyncio.timeout(2):
                assert [await got.get() for _ in range(5)] == [b"%d" % n for n in range(5)]


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 loopback")
@pytest.mark.parametrize("kind", KINDS)
async def test_ipv6(kind: type[Process]):
    with kind("::1") as broker:
        assert broker.url == f"{broker.scheme}://[::1]:{broker.port}"
        assert await refusal(broker.address) == ""


@pytest.mark.parametrize("scheme", ["mqtt", "mqtts"])
async def test_a_broker_that_takes_the_connection_and_says_nothing(monkeypatch, scheme):
    monkeypatch.setattr(link_module, "ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(link_module, "CONNECT_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await refusal(parse_broker(f"{scheme}://127.0.0.1:{silent.getsockname()[1]}")) == "broker_unreachable"


def test_a_program_ends_at_once_though_a_host_does_not_answer():
    async def main(port: int) -> None:
        async with seated(parse_broker(f"mqtts://127.0.0.1:{port}"), NODE, "edgepanda", await_up=False):
            accepted.append((await asyncio.get_running_loop().sock_accept(silent))[0])

    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        began = time.monotonic()
        asyncio.run(main(silent.getsockname()[1]))
        assert time.monotonic() - began < link_module.CONNECT_WITHIN / 2
        accepted[0].close()


async def test_something_else_listens_there():
    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await refusal(parse_broker(f"mqtt://127.0.0.1:{port}")) == "broker_unreachable"


async def test_a_host_that_does_not_exist():
    assert await refusal(parse_broker("mqtt://nowhere.invalid")) == "broker_unreachable"


@pytest.mark.usefixtures("quick")
async def test_a_broker_that_falls_silent_is_noticed_by_the_keepalive(monkeypatch):
    monkeypatch.setattr(link_module, "KEEPALIVE", 1)
    monkeypatch.setattr(link_module, "ANSWER_WITHIN", 0.2)
    with Mosquitto() as broker:
        async with seated(broker, NODE, "edgepanda") as node:
            broker.suspend()
            async with asyncio.timeout(5):
                await node.down.wait()
            node.up.clear()
            broker.resume()
            async with asyncio.timeout(5):
                await node.up.wait()


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_waits_for_a_silent_broker_is_bounded(monkeypatch, qos):
    monkeypatch.setattr(link_module, "QUEUED", 50)
    with Mosquitto() as broker:
        async with raw_client(broker) as raw:
            broker.suspend()
            taken = [raw.publish("x", bytes(60_000), qos=qos, retain=False) for _ in range(200)]
            assert taken[0]
            assert not taken[-1]
            broker.resume()
