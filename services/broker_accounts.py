"""Who may connect to the embedded broker, and which topics each may use: a TOML file of users."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.services.broker_filters import permitted


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One user: the password as Argon2 hash (`nacl.pwhash.str`), filters of what may be published and subscribed."""

    password: str
    publish: tuple[str, ...] = ("#",)
    subscribe: tuple[str, ...] = ("#",)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, Account]


class Accounts:
    """All of them. A password that was right once is known by its digest, so that reconnects stay cheap."""

    def __init__(self, users: dict[str, Account]) -> None:
        self._users = users
        self._right: set[tuple[str, str]] = set()

    @classmethod
    def load(cls, path: Path) -> Accounts:
        """From a file. Raises `EdgePandaError` (`broker_users`)."""
        try:
            return cls(msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File).users)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise EdgePandaError(
                f"the broker's users cannot be read: {error}",
                code="broker_users",
                where=str(path),
                cure='write it like [users.shed], password = "$argon2id$...", publish = ["edgepanda/v1/nodes/shed/#"]',
            ) from error

    def check(self, name: str | None, password: str | None) -> bool:
        """True if there is this user with this password. Takes some 50 ms the first time: not for the loop."""
        account = self._users.get(name or "")
        if account is None or name is None or password is None:
            return False
        from hashlib import blake2b

        import nacl.exceptions
        import nacl.pwhash

        seen = (name, blake2b(f"{account.password}\0{password}".encode()).hexdigest())
        if seen in self._right:
            return True
        try:
            nacl.pwhash.verify(account.password.encode(), password.encode())
        except (nacl.exceptions.CryptoError, nacl.exceptions.ValueError):
            return False
        self._right.add(seen)
        return True

    def may_publish(self, name: str | None, topic: str) -> bool:
        """True if this user may publish there."""
        account = self._users.get(name or "")
        return account is not None and permitted(account.publish, topic)

    def may_subscribe(self, name: str | None, topic_filter: str) -> bool:
        """True if this user may have everything that the filter stands for."""
        account = self._users.get(name or "")
        return account is not None and permitted(account.subscribe, topic_filter)
