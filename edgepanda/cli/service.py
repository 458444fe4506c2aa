"""The surroundings of a running process: its user and groups, memory limit, what is read-only for it."""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import stat
from pathlib import Path

import msgspec

from edgepanda.cli.blocked import PathSeen
from edgepanda.unix_socket import listener


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a service and the programs that it starts."""

    pid: int
    user: str
    groups: tuple[str, ...]
    memory_max: int | None
    memory_kills: int


def peer_pid(path: Path) -> int | None:
    """The process that listens on a Unix socket; None if that cannot be told."""
    try:
        return listener(path, 2.0)[0] or None
    except OSError:
        return None


def surroundings(pid: int | None = None) -> Surroundings:
    """Those of a process, or of this one. What cannot be read is empty."""
    status = _text(Path(f"/proc/{pid or 'self'}/status"))
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    uid = int((fields.get("Uid", "").split() or [str(os.geteuid())])[1 if "Uid" in fields else 0])
    gids = {int(each) for each in (*fields.get("Groups", "").split(), *fields.get("Gid", "").split()[1:2])}
    folder = _cgroup(pid)
    return Surroundings(
        pid=pid or os.getpid(),
        user=_user(uid),
        groups=tuple(sorted(_group(gid) for gid in gids)),
        memory_max=_limit(folder),
        memory_kills=memory_kills(pid),
    )


def memory_kills(pid: int | None = None) -> int:
    """How often the kernel has killed for want of memory in the process's control group."""
    folder = _cgroup(pid)
    events = _text(folder / "memory.events") if folder else ""
    return int(dict(line.split() for line in events.splitlines()).get("oom_kill", 0))


def _cgroup(pid: int | None) -> Path | None:
    """Its folder below /sys/fs/cgroup; None without the unified hierarchy."""
    line = next(
        (line for line in _text(Path(f"/proc/{pid or 'self'}/cgroup")).splitlines() if line.startswith("0::")), ""
    )
    return Path("/sys/fs/cgroup" + line[3:].strip()) if line else None


def _limit(folder: Path | None) -> int | None:
    """The smallest memory.max on the way up."""
    found: list[int] = []
    while folder is not None and folder.is_relative_to("/sys/fs/cgroup") and folder != Path("/sys/fs/cgroup"):
        text = _text(folder / "memory.max").strip()
        found += [int(text)] if text.isdigit() else []
        folder = folder.parent
    return min(found, default=None)


def path_seen(path: str, pid: int | None = None, *, missing: bool) -> PathSeen:
    """How a path is; for one that could not be used, and is not there, the nearest folder above."""
    there = Path(path)
    while not missing and there != there.parent and not os.path.lexists(there):
        there = there.parent
    read_only = _read_only(there, pid)
    try:
        about = there.stat()
    except OSError:
        return PathSeen(path=str(there), exists=False, read_only=read_only)
    return PathSeen(
        path=str(there),
        owner=_user(about.st_uid),
        group=_group(about.st_gid),
        mode=stat.filemode(about.st_mode),
        read_only=read_only,
    )


def _read_only(path: Path, pid: int | None) -> bool:
    """Whether the mount that the process sees it on is read-only; the longest mount point that the path is below."""
    best, read_only = "", False
    for line in _text(Path(f"/proc/{pid or 'self'}/mountinfo")).splitlines():
        words = line.split()
        if len(words) > 5 and (path == Path(words[4]) or path.is_relative_to(words[4])) and len(words[4]) >= len(best):
            best, read_only = words[4], "ro" in words[5].split(",") or "ro" in words[-1].split(",")
    return read_only


def elsewhere(program: str) -> str:
    """Where this person finds a program; empty if nowhere."""
    found = shutil.which(program)
    return os.path.abspath(found) if found else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
