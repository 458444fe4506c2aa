"""Whether the user that the node runs as may open what the configured devices need."""

from __future__ import annotations

import glob
import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from edgepanda.doctor.finding import Finding, fault, ok
from edgepanda.doctor.keys import user_name
from edgepanda.doctor.patient import Patient

_NEEDS: dict[str, tuple[str, ...]] = {
    "servo": ("gpiochip*",),
    "gpio": ("gpiochip*",),
    "i2c": ("i2c-*",),
    "spi": ("spidev*",),
    "serial": ("ttyACM*", "ttyUSB*", "ttyAMA*"),
    "camera": ("video*",),
    "microphone": ("snd/pcm*",),
    "speaker": ("snd/pcm*",),
    "audio": ("snd/pcm*",),
}
"""Files below /dev that devices of a driver of this name need, where their configuration names none."""


class NeedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A file below /dev that a device needs. `group`: the owning group's name, empty where the group is unknown."""

    device: str
    path: str
    uid: int
    gid: int
    mode: int
    group: str = ""


class UserFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The user: the groups that its process has, and those that it would have after a new login."""

    name: str
    uid: int
    gids: frozenset[int] = frozenset()
    listed: frozenset[int] = frozenset()
    runs: bool = False  # it is a running node's


async def read(patient: Patient) -> tuple[UserFacts, list[NeedFacts]]:
    """The running node's user, or else this one; and what is there of what the devices need."""
    seen = await patient.node
    uid = seen.uid if seen.pid else os.geteuid()
    gids = _groups_of(patient, seen.pid) if seen.pid else frozenset({*os.getgroups(), os.getegid()})
    user = UserFacts(name=user_name(uid), uid=uid, gids=gids, listed=_listed(uid), runs=bool(seen.pid))
    devices = patient.loaded.config.devices if patient.loaded is not None else {}
    needs = [need for name, entry in devices.items() for need in _needs(patient, name, entry)]
    return user, needs


def _groups_of(patient: Patient, pid: int) -> frozenset[int]:
    found = re.findall(r"^(?:Gid|Groups):[ \t]*(.*)$", patient.text(f"proc/{pid}/status"), re.MULTILINE)
    return frozenset(int(word) for line in found for word in line.split())


def _listed(uid: int) -> frozenset[int]:
    try:
        entry = pwd.getpwuid(uid)
        return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))
    except (KeyError, OSError):
        return frozenset()


def _needs(patient: Patient, device: str, entry: dict[str, Any]) -> Iterator[NeedFacts]:
    if entry.get("simulate"):
        return
    named = [text for text in _texts(entry) if text.startswith("/dev/")]
    chips = [f"/dev/{text}" for text in _texts(entry.get("pin")) if re.fullmatch(r"gpiochip\d+", text)]
    patterns = named or chips or [f"/dev/{each}" for each in _NEEDS.get(str(entry.get("driver", "")), ())]
    for pattern in patterns:
        for path in sorted(glob.glob(str(patient.root / pattern.lstrip("/")))):
            try:
                seen = os.stat(path)
            except OSError:
                continue
            yield NeedFacts(
                device=device,
                path="/" + os.path.relpath(path, patient.root),
                uid=seen.st_uid,
                gid=seen.st_gid,
                mode=stat.S_IMODE(seen.st_mode),
                group=_group_name(seen.st_gid),
            )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def judge(user: UserFacts, needs: Sequence[NeedFacts]) -> list[Finding]:
    """One finding for each group or file that is closed to the user."""
    closed = [need for need in needs if not _may_open(user, need)]
    found = []
    for path, need in {need.path: need for need in closed}.items():
        devices = ", ".join(dict.fromkeys(each.device for each in closed if each.path == path))
        told = f"{user.name} may not open it, which {devices} needs"
        found.append(_closed(user, need, f"{path} ({devices})", told))
    if found or not needs:
        return found
    paths = ", ".join(dict.fromkeys(need.path for need in needs))
    return [ok(where=f"user {user.name}", found=f"may open {paths}")]


def _closed(user: UserFacts, need: NeedFacts, where: str, told: str) -> Finding:
    again = "restart the node" if user.runs else "log in again"
    if need.mode & 0o060 == 0o060 and need.gid in user.listed:
        told += f": it is in the group {need.group}, but only since a later time than this process"
        return fault(code="group_not_in_effect", where=where, found=told, cure=again)
    if need.mode & 0o060 != 0o060 or need.gid == 0 or not need.group:
        owner = f"no group that one could join (group {need.group or need.gid}, mode {need.mode:04o})"
        usual = _usual(need.path)
        cure = (
            f"give it a group: `sudo groupadd -f {usual}`, a rule in /etc/udev/rules.d with "
            f'GROUP="{usual}", MODE="0660", and `sudo usermod -aG {usual} {user.name}`; then {again}'
        )
        return fault(code="group_unknown", where=where, found=f"{told}: it has {owner}", cure=cure)
    cure = f"`sudo usermod -aG {need.group} {user.name}`, then {again}"
    return fault(code="group_missing", where=where, found=f"{told}: it is not in the group {need.group}", cure=cure)


def _usual(path: str) -> str:
    """The group that such files usually have."""
    kinds = {"gpio": "gpio", "i2c": "i2c", "spi": "spi", "video": "video", "snd": "audio", "tty": "dialout"}
    return next((group for start, group in kinds.items() if path.startswith(f"/dev/{start}")), "edgepanda")


def _may_open(user: UserFacts, need: NeedFacts) -> bool:
    if user.uid == 0:
        return True
    if need.uid == user.uid:
        return need.mode & 0o600 == 0o600
    if need.gid in user.gids:
        return need.mode & 0o060 == 0o060
    return need.mode & 0o006 == 0o006
