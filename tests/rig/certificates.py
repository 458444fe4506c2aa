"""An authority of our own for TLS tests: X.509 with Ed25519 keys, written down in DER by hand.

PyNaCl signs, so that no further package and no `openssl` program is needed. Sources: RFC 5280 (certificates), RFC 8410
(Ed25519 in them), ITU-T X.690 (DER).
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
from collections.abc import Sequence

from nacl.signing import SigningKey

_VALID = (b"\x17\x0d200101000000Z", b"\x17\x0d491231235959Z")  # UTCTime covers 1950 to 2049


def _tlv(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _tlv(0x30, *parts)


def _oid(dotted: str) -> bytes:
    first, second, *rest = (int(part) for part in dotted.split("."))
    encoded = bytes([first * 40 + second])
    for number in rest:
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(0x80 | number & 0x7F)
        encoded += bytes(reversed(groups))
    return _tlv(0x06, encoded)


def _bits(content: bytes, unused: int = 0) -> bytes:
    return _tlv(0x03, bytes([unused]), content)


def _extension(oid: str, value: bytes, *, critical: bool = False) -> bytes:
    return _sequence(_oid(oid), b"\x01\x01\xff" if critical else b"", _tlv(0x04, value))


_ED25519 = _sequence(_oid("1.3.101.112"))


def _name(text: str) -> bytes:
    return _sequence(_tlv(0x31, _sequence(_oid("2.5.4.3"), _tlv(0x0C, text.encode()))))


def _key_hash(key: SigningKey) -> bytes:
    return hashlib.sha256(bytes(key.verify_key)).digest()[:20]


def _alternative(name: str) -> bytes:
    try:
        return _tlv(0x87, ipaddress.ip_address(name).packed)
    except ValueError:
        return _tlv(0x82, name.encode())


def _certificate(subject: str, key: SigningKey, issuer: str, signer: SigningKey, extensions: Sequence[bytes]) -> str:
    body = _sequence(
        _tlv(0xA0, _tlv(0x02, b"\x02")),  # version 3
        _tlv(0x02, b"\x40" + os.urandom(7)),
        _ED25519,
        _name(issuer),
        _sequence(*_VALID),
        _name(subject),
        _sequence(_ED25519, _bits(bytes(key.verify_key))),
        _tlv(0xA3, _sequence(*extensions)),
    )
    return _pem("CERTIFICATE", _sequence(body, _ED25519, _bits(signer.sign(body).signature)))


def _pem(kind: str, der: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(der).decode()}-----END {kind}-----\n"


class Authority:
    """Signs certificates; `certificate` is its own, in PEM."""

    def __init__(self, name: str = "EdgePanda test authority") -> None:
        self._name = name
        self._key = SigningKey.generate()
        extensions = [
            _extension("2.5.29.19", _sequence(b"\x01\x01\xff"), critical=True),  # is an authority
            _extension("2.5.29.15", _bits(b"\x06", 1), critical=True),  # signs certificates and lists
            _extension("2.5.29.14", _tlv(0x04, _key_hash(self._key))),
        ]
        self.certificate = _certificate(name, self._key, name, self._key, extensions)

    def issue(self, names: Sequence[str]) -> tuple[str, str]:
        """A server's certificate for these host names and addresses, and its private key, both in PEM."""
        key = SigningKey.generate()
        extensions = [
            _extension("2.5.29.17", _sequence(*(_alternative(name) for name in names))),
            _extension("2.5.29.15", _bits(b"\x80", 7), critical=True),  # signs handshakes
            _extension("2.5.29.37", _sequence(_oid("1.3.6.1.5.5.7.3.1"))),  # is a server
            _extension("2.5.29.14", _tlv(0x04, _key_hash(key))),
            _extension("2.5.29.35", _sequence(_tlv(0x80, _key_hash(self._key)))),
        ]
        certificate = _certificate(names[0], key, self._name, self._key, extensions)
        private = _sequence(_tlv(0x02, b"\x00"), _ED25519, _tlv(0x04, _tlv(0x04, bytes(key))))
        return certificate, _pem("PRIVATE KEY", private)
