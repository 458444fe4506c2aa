"""Why a device cannot be used, and what a person can do about it: the same words for every kind."""

from __future__ import annotations

from typing import Any, NamedTuple

from edgepanda.model.hardware import Cause
from edgepanda.node.scan.root import Root

RULE = 'a udev rule: SUBSYSTEM=="{subsystem}", GROUP="{group}", MODE="0660"'
SUBSYSTEMS = {"audio": "sound", "dialout": "tty", "i2c": "i2c-dev", "spi": "spidev", "video": "video4linux"}
"""What udev calls the devices that a group is given, where it is not the group's name."""


class Fault(NamedTuple):
    """One reason with its cure."""

    why: Cause
    reason: str
    cure: str

    @property
    def fields(self) -> dict[str, Any]:
        """As the members of an item."""
        return {"state": "unavailable", **self._asdict()}


def fields(*faults: Fault | None) -> dict[str, Any]:
    """The members of an item for the first fault that there is."""
    return next((fault.fields for fault in faults if fault is not None), {})


def module(name: str, reason: str) -> Fault:
    """A module of the kernel is not loaded."""
    cure = f"sudo modprobe {name}; a line `{name}` in /etc/modules-load.d/edgepanda.conf loads it at each start"
    return Fault("module", reason, cure)


def denied(root: Root, device: str, group: str, *, need: int = 0o6) -> Fault | None:
    """A device node that this user may not read and write. `group`: the one that such devices are given to."""
    owner, user = root.edge.owner(root.path / device.lstrip("/")), root.edge.user()
    if owner is None or user.uid == 0:
        return None
    shift = 6 if owner.uid == user.uid else 3 if owner.gid in user.groups else 0
    if owner.mode >> shift & need == need:
        return None
    name = _group_name(root, owner.gid)
    if owner.mode >> 3 & need == need and owner.gid != 0:
        reason = f"only the group {name} may use {device}"
        return Fault(
            "group",
            reason,
            f"sudo usermod -aG {name} {_user_name(root, user.uid)}, then log in again, or restart the service",
        )
    rule = RULE.format(subsystem=SUBSYSTEMS.get(group, group), group=group)
    return Fault("group", f"only root may use {device}", f"sudo groupadd -f {group}, and {rule}")


def busy(root: Root, device: str) -> Fault | None:
    """Another process has the device."""
    users = root.users(device)
    if not users:
        return None
    who = ", ".join(f"{command} (pid {pid})" for pid, command in users)
    return Fault("busy", f"{device} is in use by {who}", f"end {users[0][1]}: sudo kill {users[0][0]}")


def _group_name(root: Root, gid: int) -> str:
    return _named(root, "etc/group", gid) or str(gid)


def _user_name(root: Root, uid: int) -> str:
    """Who scans: the service's user, where it is the service that does."""
    return _named(root, "etc/passwd", uid) or "$USER"


def _named(root: Root, file: str, number: int) -> str:
    for line in root.lines(file):
        parts = line.split(":")
        if len(parts) > 2 and parts[2] == str(number):
            return parts[0]
    return ""
