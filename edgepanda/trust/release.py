"""An operator's signature under the release of emergency stops: at one peer, and for these stops only."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity, verify
from edgepanda.trust.peers import Directory, Peer


def _text(site: str, kid: str, ids: Iterable[str]) -> bytes:
    return b"\0".join([b"edgepanda-release-v1", site.encode(), kid.encode(), *(name.encode() for name in sorted(ids))])


def sign_release(operator: Identity, site: str, kid: str, ids: Iterable[str]) -> str:
    """The proof, in base64. `kid` is the key id of the node whose stops they are, or of the site."""
    return base64.b64encode(operator.sign(_text(site, kid, ids))).decode()


def check_release(directory: Directory, site: str, kid: str, ids: Iterable[str], *, by: str, proof: str) -> Peer:
    """The operator who signed. Raises `EdgePandaError` (`not_allowed`)."""
    peer = directory.get(by)
    try:
        signature = base64.b64decode(proof, validate=True)
    except ValueError:
        signature = b""
    if peer is None or peer.role != "operator" or not verify(peer.public, _text(site, kid, ids), signature):
        raise EdgePandaError(
            "a stop is released by an operator's signature, and this is none",
            code="not_allowed",
            where="release",
            cure="`edgepanda release` signs with your key; an operator of the site must have let you in",
        )
    return peer
