"""What the keys of [broker] must be together: the embedded broker is not open to a network by accident. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from edgepanda.model.broker import is_loopback, parse_broker, parse_listen
from edgepanda.model.config_types import Broker
from edgepanda.model.config_words import found


class Wrong(NamedTuple):
    """A key that does not go with another one: what was found, what is allowed, what to do."""

    key: str
    found: str
    allowed: str
    cure: str


def contradictions(broker: Broker) -> Iterator[Wrong]:
    """All of them. Each value alone is right already."""
    if broker.user and broker.url and parse_broker(broker.url).username not in ("", broker.user):
        yield Wrong("user", found(broker.user), "one name to log in with", "remove the one in url, or this one")
    if broker.user and not (broker.password_file or broker.password_env or broker.url):
        yield Wrong("user", found(broker.user), "a user with a password", 'add password_file = "broker.password"')
    if broker.embedded:
        yield from _embedded(broker)


def _embedded(broker: Broker) -> Iterator[Wrong]:
    for one, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
        if getattr(broker, one) and not getattr(broker, other):
            yield Wrong(one, found(getattr(broker, one)), "cert_file and key_file together", f"add {other}")
    address = parse_listen(broker.listen)
    if address is None or is_loopback(address[0]):
        return
    if not broker.users_file:
        yield Wrong(
            "listen",
            f"{found(broker.listen)} without users_file",
            "loopback where everybody may come in, as 127.0.0.1:1883",
            'add users_file = "broker-users.toml", then `edgepanda broker user add NAME`',
        )
    if not (broker.cert_file or broker.key_file or broker.allow_plaintext):
        yield Wrong(
            "listen",
            f"{found(broker.listen)} without TLS",
            "loopback where nothing is encrypted, as 127.0.0.1:1883",
            "add cert_file and key_file, or allow_plaintext = true where you trust everybody on the network",
        )
