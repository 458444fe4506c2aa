"""Private keys and who may read them; the folder that they are in."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edgepanda.doctor.finding import Finding, fault, of_error, ok, warning
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded
from edgepanda.trust.identity import Identity


class KeyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One key file. `role`: `node`, `site` or `operator`; `made`: the process makes it at its first start."""

    role: str
    path: str
    exists: bool = False
    hidden: bool = False  # this user may not look
    error: EdgePandaError | None = None
    uid: int = -1
    made: bool = False


class FolderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state folder; `mode` is -1 where there is none."""

    path: str
    mode: int = -1
    uid: int = -1


def read(loaded: Loaded | None) -> tuple[list[KeyFacts], FolderFacts | None]:
    """Which keys this machine should have, and how they are. Makes none."""
    from edgepanda.client import operator_key_path

    keys = [_key("operator", operator_key_path())]
    if loaded is None:
        return keys, None
    if loaded.config.node is not None:
        keys.append(_key("node", loaded.keys_dir / "node.key", made=True))
    if loaded.config.coordinator is not None:
        keys.append(_key("site", loaded.keys_dir / "site.key"))
    folder = str(loaded.state_dir)
    try:
        seen = os.stat(folder)
    except OSError:
        return keys, FolderFacts(path=folder)
    return keys, FolderFacts(path=folder, mode=stat.S_IMODE(seen.st_mode), uid=seen.st_uid)


def _key(role: str, path: Path, *, made: bool = False) -> KeyFacts:
    facts = KeyFacts(role=role, path=str(path), made=made)
    try:
        uid = path.stat().st_uid
    except FileNotFoundError:
        return facts
    except OSError:
        return msgspec.structs.replace(facts, hidden=True)
    facts = msgspec.structs.replace(facts, exists=True, uid=uid)
    try:
        Identity.load(path)
    except EdgePandaError as error:
        if error.code == "key_unreadable" and uid != os.geteuid():
            return msgspec.structs.replace(facts, hidden=True)
        return msgspec.structs.replace(facts, error=error)
    return facts


def judge(keys: Sequence[KeyFacts], folder: FolderFacts | None) -> list[Finding]:
    """Faults are keys that a process of this configuration needs and cannot use."""
    found = [_judge_key(key) for key in keys]
    if folder is None or folder.mode < 0:
        return found
    if folder.mode & 0o022:
        found.append(
            fault(
                code="state_exposed",
                where=folder.path,
                found=f"others may write into the state folder (mode {folder.mode:04o})",
                cure=f"chmod 700 {folder.path}",
            )
        )
    for key in keys:
        if key.exists and key.role != "operator" and key.uid != folder.uid:
            found.append(
                warning(
                    code="key_owner",
                    where=key.path,
                    found=f"it belongs to {user_name(key.uid)}, its state folder to {user_name(folder.uid)}",
                    cure=f"chown {user_name(folder.uid)} {key.path}, if that is whom the processes run as",
                )
            )
    return found


def _judge_key(key: KeyFacts) -> Finding:
    if key.hidden:
        return warning(
            code="doctor_not_checked",
            where=key.path,
            found=f"this user may not look at the {key.role}'s key",
            cure="give the command as the user that the processes run as, or with sudo",
        )
    if key.error is not None:
        return of_error(key.error)
    if key.exists:
        return ok(where=key.path, found=f"the {key.role}'s key can be used, and only its owner may read it")
    if key.made:
        return ok(where=key.path, found=f"the {key.role}'s key is made at the first start")
    if key.role == "site":
        return fault(
            code="site_key_missing",
            where=key.path,
            found="the coordinator's machine does not have the site's private key",
            cure="bring the key back from a backup; a machine that joins a site has no [coordinator]",
        )
    return warning(
        code="operator_key_missing",
        where=key.path,
        found="this user has no operator's key, so that the site does not listen to it",
        cure="give the command as the user who gave `edgepanda init`, or name the key with EDGEPANDA_KEY",
    )


def user_name(uid: int) -> str:
    """A user's name, or the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
