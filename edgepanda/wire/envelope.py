"""The signed envelope (docs/protocol.md, 'Envelope').

`{"v":1,"site":S,"kid":K,"id":I,"sig":G,"body":[...]}`. The Ed25519 signature covers `edgepanda-v1`, site, topic below
the base, key id and envelope id, each ended by a zero byte, and then the exact bytes of `body`. So it is worth nothing
on another topic or site, and a bridge may rename the base.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity, verify

VERSION = 1
LARGEST = 64 * 1024  # bytes of a control payload, checked before anything is parsed
DEEPEST = 32  # levels of nesting in a body


class EnvelopeError(EdgePandaError):
    """Why a payload was dropped: `oversized malformed newer_version wrong_site unknown_key bad_signature`."""

    code = "malformed"


class _Wire(msgspec.Struct):
    v: int
    site: str
    kid: str
    id: str
    sig: str
    body: msgspec.Raw


class Opened(msgspec.Struct, frozen=True):
    """A payload whose signature holds: who signed it, its id, and the bodies, not yet decoded by type."""

    kid: str
    id: str
    bodies: tuple[msgspec.Raw, ...]


_decode_wire = msgspec.json.Decoder(_Wire).decode
_decode_bodies = msgspec.json.Decoder(tuple[msgspec.Raw, ...]).decode
_encode = msgspec.json.Encoder().encode


def _signed_text(site: str, topic: str, kid: str, envelope_id: str, body: bytes) -> bytes:
    return b"\0".join(
        [b"edgepanda-v1", site.encode(), topic.encode(), kid.encode(), envelope_id.encode(), body],
    )


def seal(identity: Identity, *, site: str, topic: str, envelope_id: str, bodies: Sequence[bytes]) -> bytes:
    """The payload for `topic` (below the base) with these bodies, each the JSON of one object."""
    body = b"[" + b",".join(bodies) + b"]"
    signature = identity.sign(_signed_text(site, topic, identity.kid, envelope_id, body))
    head = _encode(
        {
            "v": VERSION,
            "site": site,
            "kid": identity.kid,
            "id": envelope_id,
            "sig": base64.b64encode(signature).decode(),
        }
    )
    return head[:-1] + b',"body":' + body + b"}"


def unseal(payload: bytes, *, site: str, topic: str, key_of: Callable[[str], bytes | None]) -> Opened:
    """What the payload holds, if a known key signed it for this site and topic. Raises `EnvelopeError`."""
    if len(payload) > LARGEST:
        raise EnvelopeError(f"{len(payload)} bytes; {LARGEST} are allowed", code="oversized", where=topic)
    wire = _parse(payload, topic)
    if wire.v != VERSION:
        raise EnvelopeError(
            f"protocol version {wire.v}; this program speaks {VERSION}",
            code="newer_version",
            where=topic,
            cure="update this program",
        )
    if wire.site != site:
        raise EnvelopeError(f"meant for the site {wire.site!r}", code="wrong_site", where=topic)
    public = key_of(wire.kid)
    if public is None:
        raise EnvelopeError(f"nobody here has the key {wire.kid!r}", code="unknown_key", where=topic)
    body = bytes(wire.body)
    if "\0" in wire.id or not _holds(public, wire, _signed_text(site, topic, wire.kid, wire.id, body)):
        raise EnvelopeError("the signature does not hold", code="bad_signature", where=topic)
    return Opened(wire.kid, wire.id, _bodies(body, topic))


def _parse(payload: bytes, topic: str) -> _Wire:
    try:
        return _decode_wire(payload)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise EnvelopeError(f"no envelope: {error}", where=topic) from error


def _bodies(body: bytes, topic: str) -> tuple[msgspec.Raw, ...]:
    try:
        return _decode_bodies(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise EnvelopeError(f"no list of bodies: {error}", where=topic) from error


def _holds(public: bytes, wire: _Wire, text: bytes) -> bool:
    try:
        signature = base64.b64decode(wire.sig, validate=True)
    except (ValueError, binascii.Error):
        return False
    return len(signature) == 64 and verify(public, text, signature)


def plain(value: Any, depth: int = 0) -> bool:
    """True for JSON that every receiver can hold: no NaN or infinity, numbers within 64 bits, not nested too deeply."""
    if depth > DEEPEST:
        return False
    if isinstance(value, dict):
        return all(plain(v, depth + 1) for v in value.values())
    if isinstance(value, list | tuple):
        return all(plain(v, depth + 1) for v in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**64
