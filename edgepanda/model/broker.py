"""Where the broker is: `mqtt://user:pass@host:port`, `mqtts://`, IPv6 in brackets; where the embedded one listens."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from edgepanda.errors import EdgePandaError

PORTS = {"mqtt": 1883, "mqtts": 8883}


class BrokerAddress(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a broker. `str()` never shows the password."""

    host: str
    port: int
    tls: bool = False
    username: str = ""
    password: str = ""
    ca_file: str = ""  # PEM file of the authority that signed the broker's certificate; empty: the system's
    server_name: str = ""  # name that the certificate carries, where it is not the host's
    pinned_file: str = ""  # PEM file of the broker's own certificate: that one alone is trusted, whatever its names

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    __repr__ = __str__


def parse_listen(listen: str) -> tuple[str, int] | None:
    """Host and port of `broker.listen`, or None when it is no such address. Port 0: the system chooses."""
    try:
        parts = urlsplit(f"//{listen}")
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.hostname, PORTS["mqtt"] if port is None else port


def is_loopback(host: str) -> bool:
    """True if only this machine reaches it. A name other than `localhost` may be anything, so it is not."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reached_at(host: str) -> str:
    """Where this machine reaches what listens at `host`: all addresses of it include loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104


def parse_broker(url: str, *, where: str = "broker.url") -> BrokerAddress:
    """The address in a URL. Raises `EdgePandaError` (`invalid_broker`) that names what is wrong, without secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:  # its own message may hold the password
        raise _invalid("brackets or characters that no host has", where) from None
    if parts.scheme not in PORTS:
        raise _invalid(f"scheme {parts.scheme!r}; mqtt or mqtts is allowed", where)
    if not parts.hostname:
        raise _invalid("no host", where)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise _invalid("only user, password, host and port may stand in it", where)
    return BrokerAddress(
        host=parts.hostname,
        port=_port(parts, where),
        tls=parts.scheme == "mqtts",
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _port(parts: SplitResult, where: str) -> int:
    try:
        port = parts.port
    except ValueError:  # its own message may hold the password
        raise _invalid("the port is no number from 1 to 65535", where) from None
    if port == 0:
        raise _invalid("the port is no number from 1 to 65535", where)
    return port or PORTS[parts.scheme]


def _invalid(found: str, where: str) -> EdgePandaError:
    return EdgePandaError(
        f"not a broker's address: {found}",
        code="invalid_broker",
        where=where,
        cure="write it like mqtt://user:password@host:1883 or mqtts://[fd00::1]:8883",
    )
