"""Names and identifiers."""

from __future__ import annotations

import hashlib
import re
import secrets
import time

import msgspec

from edgepanda.errors import EdgePandaError

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
_NAME = re.compile(r"[a-z0-9-]{1,32}")
_TASK_ID = re.compile(r"[0-9a-z-]{8,40}")
_CAPABILITY = re.compile(r"[a-z0-9_-]{1,32}(\.[a-z0-9_-]{1,32}){1,3}")


_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)  # two characters for each 10 bits
_SHIFTS = tuple(range(90, -1, -10))


def new_id() -> str:
    """20 characters: 45 bits of milliseconds, so that ids sort by age, and 55 random bits."""
    number = (time.time_ns() // 1_000_000) << 55 | secrets.randbits(55)
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])


def is_name(text: str) -> bool:
    """True for a slug of 1 to 32 of `a-z 0-9 -`: a node, a site, a device, a peer."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str, where: str) -> str:
    """The name itself, or `EdgePandaError` (`invalid_name`) that says where it stands."""
    if not is_name(text):
        raise EdgePandaError(
            f"{text!r} is no name",
            code="invalid_name",
            where=where,
            cure="use 1 to 32 of the characters a-z, 0-9 and '-'",
        )
    return text


def is_task_id(text: str) -> bool:
    """True for what may name a task: 8 to 40 of `a-z 0-9 -`, chosen by the client."""
    return _TASK_ID.fullmatch(text) is not None


def is_capability(text: str) -> bool:
    """True for a dotted name such as `servo.move` or `build.heavy`."""
    return _CAPABILITY.fullmatch(text) is not None


def digest(value: object) -> str:
    """SHA-256, in hexadecimal, of the value's JSON with sorted members: equal values, equal digests."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()
