"""The embedded broker's file of users, changed by a command: comments and rights stay, the file is replaced whole."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

from edgepanda.errors import EdgePandaError
from edgepanda.services.broker_accounts import Account, read_users

SHORTEST, LONGEST = 8, 256  # characters of a password
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def hashed(password: str) -> str:
    """The password as Argon2id hash, which takes some 50 ms. Raises `EdgePandaError` (`invalid_password`)."""
    if not SHORTEST <= len(password) <= LONGEST or "\0" in password:
        raise EdgePandaError(
            f"a password of {len(password)} characters", code="invalid_password", where="the password that was given"
        )
    import nacl.pwhash

    limits = nacl.pwhash.OPSLIMIT_INTERACTIVE, nacl.pwhash.MEMLIMIT_INTERACTIVE
    return bytes(nacl.pwhash.str(password.encode(), *limits)).decode()


def users_in(path: Path) -> dict[str, Account]:
    """Who is in the file; nobody if there is none. Raises `EdgePandaError` (`broker_users`)."""
    return read_users(path) if path.exists() else {}


def add_user(
    path: Path,
    name: str,
    password: str,
    *,
    publish: tuple[str, ...] = (),
    subscribe: tuple[str, ...] = (),
    replace: bool = False,
) -> None:
    """Write a user into the file, which is made with mode 0600 if there is none. `replace`: one that is there gets this
    password, and these rights if any are given.

    Raises `EdgePandaError`: `invalid_name`, `invalid_password`, `broker_user_exists`, `broker_users`, `storage_...`.
    """
    import tomlkit

    if not _NAME.fullmatch(name):
        raise EdgePandaError(
            f"{name!r} is no user's name",
            code="invalid_name",
            where="NAME",
            cure="use 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit",
        )
    known = users_in(path)
    if name in known and not replace:
        raise EdgePandaError(f"there is a user {name} already", code="broker_user_exists", where=str(path))
    document = _document(path)
    user = document["users"].setdefault(name, tomlkit.table())
    user["password"] = hashed(password)
    for key, filters in (("publish", publish), ("subscribe", subscribe)):
        if filters:
            user[key] = list(filters)
    _write(path, tomlkit.dumps(document))


def remove_user(path: Path, name: str) -> None:
    """Take a user out of the file. Raises `EdgePandaError`: `broker_user_unknown`, `broker_users`, `storage_...`."""
    import tomlkit

    if name not in users_in(path):
        raise EdgePandaError(f"there is no user {name}", code="broker_user_unknown", where=str(path))
    document = _document(path)
    del document["users"][name]
    _write(path, tomlkit.dumps(document))


def _document(path: Path) -> Any:
    import tomlkit

    if path.exists():
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    document = tomlkit.document()
    document.add(
        tomlkit.comment("Users of the embedded broker: `edgepanda broker user add|remove|list`. A user may have")
    )
    document.add(tomlkit.comment("publish and subscribe, lists of topic filters; without them everything is allowed."))
    document["users"] = tomlkit.table(is_super_table=False)
    return document


def _write(path: Path, text: str) -> None:
    """For the owner alone: it is the present one's, or that of the folder."""
    from edgepanda.storage import from_os_error, make_folder, swap_file

    make_folder(path.parent)
    target = path.resolve()
    try:
        before = target.stat() if target.exists() else target.parent.stat()
        owner = (before.st_uid, before.st_gid)
        mode = stat.S_IMODE(before.st_mode) & 0o660 if target.exists() else 0o600
        same = owner == (os.geteuid(), os.getegid()) or os.geteuid() != 0
        swap_file(target, text.encode(), mode=mode, owner=None if same else owner)
    except OSError as error:
        raise from_os_error(error, path, "write the broker's users") from error
