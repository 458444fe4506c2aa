"""The disk below the state folder: space, whether it can be written, and its wear where the hardware tells."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from edgepanda.doctor.finding import Finding, fault, ok, warning
from edgepanda.doctor.patient import Patient

MIB = 1 << 20
_WORN = 0x0A  # of JEDEC's life time estimation: 90 to 100 % used
_FORGETS = ("tmpfs", "ramfs")


class Limits(msgspec.Struct, frozen=True):
    """Below `full` nothing can be relied on any more; below `low` it is time to do something. Bytes."""

    full: int = 32 * MIB
    low: int = 256 * MIB
    inodes: int = 500


class DiskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A folder's file system. `wear`: tenths used as the hardware says it (1 to 11), None where it does not.
    `card`: its kind where it is a card. `missing`: the folder is not there yet, and is made by the first start.
    """

    path: str
    free: int = 0
    size: int = 0
    inodes: int | None = None
    read_only: bool = False
    writable: bool = True
    mount: str = ""
    kind: str = ""
    card: str = ""
    wear: int | None = None
    reserve: int | None = None  # 1 normal, 2 most spare blocks used, 3 nearly all
    error: str = ""


def read(patient: Patient, path: Path) -> DiskFacts:
    """The facts of the file system that this folder is on, or will be."""
    there = next((each for each in (path, *path.parents) if each.exists()), Path("/"))
    try:
        seen = os.statvfs(there)
    except OSError as error:
        return DiskFacts(path=str(path), error=error.strerror or str(error))
    mount, kind, device = _mount(patient, there)
    life, card = _wear(patient, device)
    reserve = _number(patient.text(f"sys/dev/block/{device}/device/pre_eol_info"), 16)
    return DiskFacts(
        path=str(path),
        free=seen.f_bavail * seen.f_frsize,
        size=seen.f_blocks * seen.f_frsize,
        inodes=seen.f_favail if seen.f_files else None,
        read_only=bool(seen.f_flag & os.ST_RDONLY),
        writable=os.access(there, os.W_OK),
        mount=mount,
        kind=kind,
        card=card,
        wear=life,
        reserve=reserve,
    )


def _mount(patient: Patient, path: Path) -> tuple[str, str, str]:
    """Where the file system is mounted, its kind, and its device as `major:minor`."""
    try:
        number = path.stat().st_dev
    except OSError:
        return "", "", ""
    device = f"{os.major(number)}:{os.minor(number)}"
    found = ("", "", device)
    for line in patient.text("proc/self/mountinfo").splitlines():
        words = line.split()
        if len(words) > 4 and words[2] == device and "-" in words:
            mount = words[4].replace("\\040", " ")
            if str(path).startswith(mount) and len(mount) > len(found[0]):
                found = (mount, words[words.index("-") + 1], device)
    return found


def _wear(patient: Patient, device: str) -> tuple[int | None, str]:
    """An eMMC says how far it is used up; an SD card does not."""
    folder = patient.root / "sys/dev/block" / device
    for place in (folder, folder.resolve().parent):  # a partition's disk is the folder above
        kind = patient.text(str((place / "device/type").relative_to(patient.root))) if place.exists() else ""
        if kind:
            life = patient.text(str((place / "device/life_time").relative_to(patient.root))).split()
            used = [value for value in (_number(text, 16) for text in life) if value]
            return (max(used) if used else None), {"SD": "SD card", "MMC": "eMMC"}.get(kind, "")
    return None, ""


def _number(text: str, base: int) -> int | None:
    try:
        return int(text, base)
    except ValueError:
        return None


def judge(facts: DiskFacts, limits: Limits | None = None) -> list[Finding]:
    """What keeps state from being written is a fault."""
    limits, where = limits or Limits(), facts.path
    if facts.error:
        cure = "look at the system's log for errors of this disk or card"
        return [fault(code="storage_unwritable", where=where, found=f"cannot be looked at: {facts.error}", cure=cure)]
    found = [*_space(facts, limits), *_writing(facts), *_lasting(facts)]
    told = f"{facts.free // MIB} of {facts.size // MIB} MiB free"
    life = "wear not readable" if facts.wear is None else f"wear at most {facts.wear * 10} %"
    worn = f"{facts.card or 'disk'}: {life}"
    return found or [ok(where=where, found=f"{told}, can be written; {worn}")]


def _space(facts: DiskFacts, limits: Limits) -> list[Finding]:
    place = facts.mount or facts.path
    if facts.free < limits.full or (facts.inodes is not None and facts.inodes < limits.inodes // 10):
        left = f"{facts.free // MIB} MiB" + ("" if facts.inodes is None else f" and {facts.inodes} files")
        return [
            fault(
                code="storage_full",
                where=facts.path,
                found=f"the disk is full, {left} left; what was recorded is intact",
                cure=f"free some space: `du -xh {place} | sort -h | tail` shows what is large",
            )
        ]
    if facts.free < limits.low or (facts.inodes is not None and facts.inodes < limits.inodes):
        return [
            warning(
                code="disk_low",
                where=facts.path,
                found=f"{facts.free // MIB} of {facts.size // MIB} MiB left",
                cure=f"free some space: `du -xh {place} | sort -h | tail` shows what is large",
            )
        ]
    return []


def _writing(facts: DiskFacts) -> list[Finding]:
    if facts.read_only:
        return [
            fault(
                code="storage_readonly",
                where=facts.path,
                found=f"its file system is mounted read-only ({facts.mount or 'unknown'})",
                cure=f"`sudo mount -o remount,rw {facts.mount or '/'}`; if it was not meant to be, `dmesg` tells why: "
                "a card at its end goes read-only",
            )
        ]
    if not facts.writable:
        return [
            warning(
                code="doctor_not_checked",
                where=facts.path,
                found="this user may not write there, so that it is not known whether the processes can",
                cure="give the command as the user that the processes run as, or with sudo",
            )
        ]
    return []


def _lasting(facts: DiskFacts) -> list[Finding]:
    found = []
    if facts.kind in _FORGETS:
        found.append(
            warning(
                code="disk_volatile",
                where=facts.path,
                found=f"state is kept in memory ({facts.kind}) and is gone after a restart",
                cure="set state_dir to a folder on a disk",
            )
        )
    if (facts.wear or 0) >= _WORN or (facts.reserve or 0) >= 2:
        found.append(
            warning(
                code="disk_worn",
                where=facts.path,
                found=f"the {facts.card or 'disk'} is near the end of its life",
                cure="make a backup now and change it; `edgepanda audit verify` proves the ledger afterwards",
            )
        )
    return found
