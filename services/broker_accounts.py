"""Who may connect to the embedded broker, and which topics each may use: a TOML file of users."""

from __future__ import annotations

import hmac
import logging
import secrets
import tomllib
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec
import nacl.exceptions
import nacl.pwhash  # here: the first login is no time to import it

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker_secret import OWN_USER
from edgepanda.services.broker_files import stamp
from edgepanda.services.broker_filters import permitted

log = logging.getLogger("edgepanda.broker")


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One user: the password as Argon2 hash (`nacl.pwhash.str`), filters of what may be published and subscribed."""

    password: str
    publish: tuple[str, ...] = ("#",)
    subscribe: tuple[str, ...] = ("#",)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    users: dict[str, Account]


def read_users(path: Path) -> dict[str, Account]:
    """The users in a file. Raises `EdgePandaError` (`broker_users`)."""
    try:
        users = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File).users
        for name, account in users.items():
            if not account.password.startswith("$argon2"):
                raise msgspec.ValidationError(f"the password of {name!r} is no Argon2 hash")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EdgePandaError(
            f"the broker's users cannot be read: {reason}",
            code="broker_users",
            where=str(path),
            cure="`edgepanda broker user add NAME` makes the file, and a user in it",
        ) from error
    return users


class Accounts:
    """All of them, and this machine's own processes, who have a secret of their own and may do everything.

    A password that was right once is known by its digest, so that reconnects stay cheap.
    """

    def __init__(self, users: Mapping[str, Account], *, own_secret: str = "") -> None:
        self._users = dict(users)
        self._own_secret = own_secret
        self._right: set[tuple[str, bytes]] = set()
        self._salt = secrets.token_bytes(16)
        self._path: Path | None = None
        self._stamp: object = None

    @classmethod
    def load(cls, path: Path, *, own_secret: str = "") -> Accounts:
        """From a file, which `refresh` reads again. Raises `EdgePandaError` (`broker_users`)."""
        seen = stamp(path)
        made = cls(read_users(path), own_secret=own_secret)
        made._path, made._stamp = path, seen
        return made

    def refresh(self) -> set[str]:
        """Read the file again if it has changed. The users who are gone or have another password or other rights.

        A file that cannot be used changes nothing, and is logged.
        """
        if self._path is None or (seen := stamp(self._path)) == self._stamp:
            return set()
        self._stamp = seen
        try:
            users = read_users(self._path)
        except EdgePandaError as error:
            log.error("the users stay as they were: %s", error)
            return set()
        changed = {name for name, account in self._users.items() if users.get(name) != account}
        self._users, self._right = users, {each for each in self._right if each[0] not in changed}
        log.info("the users were read again: %d", len(users))
        return changed

    def remembers(self, name: str | None, password: str | None) -> bool:
        """True if this is right for sure, by what costs nothing."""
        if name is None or password is None:
            return False
        if name == OWN_USER:
            return bool(self._own_secret) and hmac.compare_digest(self._own_secret.encode(), password.encode())
        return name in self._users and (name, self._digest(self._users[name], password)) in self._right

    def check(self, name: str | None, password: str | None) -> bool:
        """True if there is this user with this password. Takes some 50 ms the first time, also for an unknown user, so
        that nobody learns the names: not for the loop.
        """
        if self.remembers(name, password):
            return True
        account = self._users.get(name or "")
        compared = account or next(iter(self._users.values()), None)
        if compared is None or name == OWN_USER:
            return False
        try:
            nacl.pwhash.verify(compared.password.encode(), (password or "").encode())
        except (nacl.exceptions.CryptoError, nacl.exceptions.ValueError):
            return False
        if account is None or name is None or password is None:
            return False
        self._right.add((name, self._digest(account, password)))
        return True

    def may_publish(self, name: str | None, topic: str) -> bool:
        """True if this user may publish there."""
        account = self._users.get(name or "")
        return name == OWN_USER or (account is not None and permitted(account.publish, topic))

    def may_subscribe(self, name: str | None, topic_filter: str) -> bool:
        """True if this user may have everything that the filter stands for."""
        account = self._users.get(name or "")
        return name == OWN_USER or (account is not None and permitted(account.subscribe, topic_filter))

    def _digest(self, account: Account, password: str) -> bytes:
        return blake2b(f"{account.password}\0{password}".encode(), key=self._salt).digest()
