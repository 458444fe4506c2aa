"""Errors of the broker, of messages, and of who may say what."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import msgspec

from edgepanda.client import AsyncClient
from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import parse_broker
from edgepanda.model.broker_secret import own_password
from edgepanda.node.requests import NodeRequests
from edgepanda.services.broker import EmbeddedBroker
from edgepanda.services.broker_accounts import Accounts
from edgepanda.services.broker_files import Certificate
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Directory, Peer, PeerList, add, check_list, revoke, sign_list
from edgepanda.wire import bus as bus_module
from edgepanda.wire import envelope, messages, topics
from edgepanda.wire.bus import Bus
from edgepanda.wire.envelope import seal, unseal
from edgepanda.wire.link import tls_context
from tests.provoke.kit import Here, provokes

ME, SITE = Identity.create(), Identity.create()
TOPIC = "v1/site/coordinator"


def peer(name: str, role: str = "node", who: Identity | None = None) -> Peer:
    """Somebody with a key of his own."""
    return msgspec.convert({"key": encode_key((who or Identity.create()).public), "name": name, "role": role}, Peer)


# the broker


@provokes("extra_missing")
async def _(here: Here) -> None:
    here.patch.setitem(sys.modules, "edgepanda.services.broker_hardened", None)
    await EmbeddedBroker(port=0).start()


@provokes("broker_not_loopback")
async def _(_here: Here) -> None:
    await EmbeddedBroker("0.0.0.0", 0).start()  # noqa: S104 it is refused


@provokes("port_in_use")
async def _(_here: Here) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        await EmbeddedBroker(port=taken.getsockname()[1]).start()


@provokes("cannot_listen")
async def _(_here: Here) -> None:
    await EmbeddedBroker("::1%nowhere", 0).start()


@provokes("broker_users")
def _(here: Here) -> None:
    Accounts.load(here.folder / "users.toml")


@provokes("broker_certificate")
def _(here: Here) -> None:
    Certificate(here.folder / "cert.pem", here.folder / "key.pem")


@provokes("broker_secret")
def _(_here: Here) -> None:
    own_password(Path("/dev/null/broker.secret"))


@provokes("broker_tls")
def _(here: Here) -> None:
    address = parse_broker("mqtts://broker.lan")
    tls_context(msgspec.structs.replace(address, ca_file=str(here.folder / "ca.pem")))


def bus() -> Bus:
    """One that hears the site's events, not connected."""
    made = Bus(parse_broker("mqtt://nowhere"), ME, Directory(SITE.public), site="home", process="t")
    made.subscribe(topics.EVENTS, lambda _message: None)
    return made


@provokes("queue_full")
async def _(here: Here) -> None:
    here.patch.setattr(bus_module, "MOST_PENDING", 0)
    bus().deliver(topics.EVENTS, messages.Event(id="e", seq=1, at=0.0, kind="x"))


@provokes("retained")
async def _(here: Here) -> str:
    bus()._take("edgepanda/v1/site/events", b"{}", True)
    return here.logged()


# messages


def sealed(**other: object) -> bytes:
    """A good envelope, but for what is other."""
    said = {"identity": ME, "site": "home", "topic": TOPIC, "envelope_id": "e", "bodies": [b"{}"], **other}
    return seal(**said)  # type: ignore[arg-type]


def opened(payload: bytes, *, known: bool = True) -> None:
    """As whoever is at the site `home` opens it."""
    unseal(payload, site="home", topic=TOPIC, key_of=lambda _kid: ME.public if known else None)


@provokes("bad_signature")
def _(_here: Here) -> None:
    opened(sealed(topic="v1/site/request"))


@provokes("unknown_key")
def _(_here: Here) -> None:
    opened(sealed(), known=False)


@provokes("wrong_site")
def _(_here: Here) -> None:
    opened(sealed(site="work"))


@provokes("newer_version")
def _(_here: Here) -> None:
    opened(sealed().replace(b'"v":1', b'"v":9'))


@provokes("malformed")
def _(_here: Here) -> None:
    opened(b"{}")


@provokes("oversized")
def _(_here: Here) -> None:
    opened(b"x" * (envelope.LARGEST + 1))


# a node that is asked itself


@provokes("node_restarted")
async def _(_here: Here) -> EdgePandaError:
    said: list[messages.Reply] = []
    node = NodeRequests({"status": lambda _params: None}, incarnation=5, send=lambda _peer, reply: said.append(reply))
    node.take(messages.Request(id="q1", method="status", counter=1, incarnation=4), peer("me", "operator"))
    for _ in range(4):
        await asyncio.sleep(0)
    error = said[0].error
    assert error is not None
    return EdgePandaError.from_dict(error.data)


@provokes("node_away")
async def _(here: Here) -> None:
    async def away(_name: str) -> dict[str, object]:
        return {"name": "desk", "online": False}

    site = AsyncClient(parse_broker("mqtt://nowhere"), site="home", base="e", site_key=SITE.public, identity=ME)
    here.patch.setattr(site, "node", away)
    await site.ask_node("desk", "status")


# lists of peers

KNOWN = sign_list(SITE, add(PeerList(site="home", revision=5, peers=()), peer("me", "operator", ME)))


@provokes("peers_signature")
def _(_here: Here) -> None:
    check_list(msgspec.structs.replace(KNOWN, revision=9), site="home", site_key=SITE.public, known=None)


@provokes("peers_older")
def _(_here: Here) -> None:
    older = sign_list(SITE, msgspec.structs.replace(KNOWN, revision=1))
    check_list(older, site="home", site_key=SITE.public, known=KNOWN)


@provokes("peers_operator")
def _(_here: Here) -> None:
    new = sign_list(SITE, add(KNOWN, peer("stranger", "operator")))
    check_list(new, site="home", site_key=SITE.public, known=KNOWN)


@provokes("name_taken")
def _(_here: Here) -> None:
    add(KNOWN, peer("me"))


@provokes("unknown_peer")
def _(_here: Here) -> None:
    revoke(KNOWN, "nobody")
