"""Ed25519 identities: a key on disk, the short id made from it, signatures."""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import os
from pathlib import Path

from nacl import bindings
from nacl.exceptions import BadSignatureError

from edgepanda.errors import EdgePandaError


class KeyFileError(EdgePandaError):
    """A key file that cannot be used: `key_unreadable`, `key_damaged`, `key_exposed`."""

    code = "key_unreadable"


@functools.lru_cache(maxsize=4096)
def key_id(public: bytes) -> str:
    """16 characters of `a-z 2-7`, made from the public key: names the key on the wire and in client ids."""
    return base64.b32encode(hashlib.sha256(public).digest()[:10]).decode().lower()


def encode_key(public: bytes) -> str:
    """A public key as people copy it: `ed25519:` and 43 characters of base64url."""
    return "ed25519:" + base64.urlsafe_b64encode(public).rstrip(b"=").decode()


@functools.lru_cache(maxsize=4096)
def decode_key(text: str) -> bytes:
    """The 32 bytes behind `encode_key`. Raises `EdgePandaError` (`invalid_key`)."""
    try:
        kind, _, body = text.partition(":")
        public = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        kind, public = "", b""
    if kind != "ed25519" or len(public) != 32 or encode_key(public) != text:
        raise EdgePandaError(
            f"{text!r} is no public key", code="invalid_key", where="key", cure="it looks like ed25519:A1b2..."
        )
    return public


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """True if the 64-byte signature over the message is by the owner of the key."""
    try:
        bindings.crypto_sign_open(signature + message, public)
    except (BadSignatureError, ValueError, TypeError):
        return False
    return True


class Identity:
    """A private key and what follows from it."""

    def __init__(self, seed: bytes) -> None:
        self.public, self._secret = bindings.crypto_sign_seed_keypair(seed)
        self.kid = key_id(self.public)

    @classmethod
    def create(cls) -> Identity:
        """A fresh one, in memory only."""
        return cls(os.urandom(32))

    @classmethod
    def load(cls, path: Path) -> Identity:
        """The key in the file. Raises `KeyFileError`; refuses a file that others may read."""
        try:
            mode = path.stat().st_mode & 0o077
            text = path.read_bytes().strip()
        except OSError as error:
            raise KeyFileError(f"cannot read the key: {error.strerror}", where=str(path)) from error
        if mode:
            raise KeyFileError(
                "others may read this private key", code="key_exposed", where=str(path), cure=f"chmod 600 {path}"
            )
        try:
            seed = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            seed = b""
        if len(seed) != 32:
            raise KeyFileError(
                "this is no private key", code="key_damaged", where=str(path), cure="restore it from a backup"
            )
        return cls(seed)

    @classmethod
    def load_or_create(cls, path: Path) -> Identity:
        """The key in the file; on first use a new one, written with mode 0600 and synced before it is used."""
        seed = os.urandom(32)
        try:
            if path.exists():
                return cls.load(path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_new(path, base64.b64encode(seed) + b"\n")
        except FileExistsError:
            return cls.load(path)  # another process was first
        except OSError as error:
            raise KeyFileError(
                f"cannot write a new key: {error.strerror}", code="key_unwritable", where=str(path)
            ) from error
        return cls(seed)

    def sign(self, message: bytes) -> bytes:
        """64 bytes."""
        return bindings.crypto_sign(message, self._secret)[:64]


def _write_new(path: Path, data: bytes) -> None:
    """The whole file or none, never over an existing one, on disk when this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
