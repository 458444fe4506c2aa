"""What kept a command of the user's own from working: from what was seen to the option that blocked it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec


class PathSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A path that the program complained about, as it is."""

    path: str
    exists: bool = True
    owner: str = ""
    group: str = ""
    mode: str = ""  # as `ls -l` shows it
    read_only: bool = False  # its file system is mounted read-only for the service


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that was seen of one run."""

    program: str
    found: str = ""  # on the service's PATH; empty: it is not there
    elsewhere: str = ""  # on the PATH of who tries it
    search_path: str = ""  # the service's PATH
    outcome: str = "failed"
    code: str = ""  # of the result, or of the refusal
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    timeout: float = 0.0
    stdout: str = ""
    stderr: str = ""
    user: str = ""  # whom it ran as
    groups: tuple[str, ...] = ()
    memory_max: int | None = None  # bytes that the service and its programs may have together
    memory_kills: int = 0  # by the kernel within the service, while it ran
    env: tuple[str, ...] = ()  # variables that the program may see
    here: tuple[str, ...] = ()  # words of `argv` that are files in the folder of who tries it
    paths: tuple[PathSeen, ...] = ()


class Blocked(msgspec.Struct, frozen=True):
    """One thing that blocked it: the option to change, what was seen, what to do."""

    option: str
    why: str
    cure: str


SIGNALS = {
    9: ("", "it was killed (signal 9) by something outside"),
    11: ("", "it crashed (signal 11, a fault in its memory)"),
    24: ("LimitCPU", "it used more processor time than the service may (signal 24)"),
    25: ("LimitFSIZE", "it wrote a larger file than the service may (signal 25)"),
    31: ("SystemCallFilter", "the service does not allow a system call that it needs (signal 31)"),
}
_NO_MEMORY = re.compile(r"MemoryError|Cannot allocate memory|[Oo]ut of memory|std::bad_alloc")
_NOT_FOUND = re.compile(r"([\w./+-]+): (?:command )?not found$|^env: \W([\w./+-]+)\W: No such", re.MULTILINE)
_UNSET = re.compile(r"\b([A-Z_][A-Z0-9_]*): (?:unbound variable|parameter not set)|KeyError: '([A-Z_][A-Z0-9_]*)'")
_NO_NETWORK = re.compile(
    r"[Nn]ame resolution|Network is unreachable|Could not resolve host|Address family not supported"
)
_REFUSED = re.compile(r"Permission denied|Operation not permitted|EACCES|EPERM")
_PATH = re.compile(r"(/[\w.@+~-]+(?:/[\w.@+~:-]+)*)")


_SPEAKER = re.compile(r"^\S+:\s(?:(?:line )?\d+:\s)?")  # who says it: `sh: 1: `
_MISSING = re.compile(r"[Nn]o such (?:file|device)")
_WHY = re.compile(rf"{_REFUSED.pattern}|[Rr]ead-only file system|{_MISSING.pattern}")


def complained_about(text: str) -> tuple[tuple[str, bool], ...]:
    """The paths in lines that say why something could not be used, each with whether it is missing."""
    found: dict[str, bool] = {}
    for line in text.splitlines():
        if _WHY.search(line):
            paths = _PATH.findall(_SPEAKER.sub("", line, count=1)) or _PATH.findall(line)
            found |= dict.fromkeys((path.rstrip(":.") for path in paths), bool(_MISSING.search(line)))
    return tuple(found.items())


def blocked_by(seen: Seen) -> list[Blocked]:
    """What blocked it, the likeliest first; empty when it succeeded or nothing is known."""
    if seen.outcome == "succeeded":
        return []
    found = [blocked for rule in RULES for blocked in rule(seen)]
    return list({(each.option, each.why): each for each in found}.values())


def _refused_before(seen: Seen) -> Iterator[Blocked]:
    if seen.code in ("invalid_args", "limit") and seen.exit_code is None:
        yield Blocked("args", seen.message, "give another value, or change the argument's limits in `args`")
    if seen.code == "consent_required":
        yield Blocked("tier", "tier 2 needs a person's consent", "tier = 1 if what it does can be undone")


def _program(seen: Seen) -> Iterator[Blocked]:
    if "is not executable" in seen.message and not seen.found:
        yield Blocked("argv", seen.message, f"chmod +x {seen.program}")
        return
    if (
        not seen.found
        and "cannot be started" not in seen.message
        and seen.code == "unavailable"
        and seen.exit_code is None
        and seen.signal is None
    ):
        at = f"write its whole path: {seen.elsewhere}" if seen.elsewhere else "install it, or write its whole path"
        yield Blocked("argv", f"{seen.program} is not on the service's PATH ({seen.search_path})", at)
        return
    if "cannot be started" not in seen.message:
        return
    if "ermission denied" in seen.message:
        who = f" for the user {seen.user}" if seen.user else ""
        yield Blocked("argv", f"{seen.program} is not executable{who}", f"chmod +x {seen.found or seen.program}")
    elif "xec format" in seen.message:
        cure = "begin it with a line such as #!/bin/sh, or name the interpreter first in argv"
        yield Blocked("argv", f"{seen.program} is no program for this machine", cure)
    elif "o such file" in seen.message and seen.found:
        why = f"{seen.program} is there, but what its first line (#!) names is not"
        yield Blocked("argv", why, "install that interpreter, or name another in the first line")
    else:
        yield Blocked("argv", seen.message, "write the program's whole path in argv")


def _limits(seen: Seen) -> Iterator[Blocked]:
    if seen.outcome == "timed_out" or seen.code == "timeout":
        why = f"it was ended after {seen.timeout:g} s, its time limit"
        yield Blocked("timeout", why, f"allow more: timeout = {2 * seen.timeout:g}, or let it do less")
    if seen.memory_kills or (seen.exit_code != 0 and _NO_MEMORY.search(seen.stderr)):
        size = f" of {seen.memory_max / 2**20:.0f} MiB" if seen.memory_max else ""
        who = "the kernel killed it at" if seen.memory_kills else "it met"
        cure = "raise MemoryMax= in the service's unit, or let it do less" if seen.memory_max else "let it need less"
        yield Blocked("MemoryMax", f"{who} the memory limit{size}", cure)
    elif seen.signal == 9 and seen.code not in ("timeout", "cancelled"):
        cure = "`dmesg` or `journalctl -k` says whether the kernel did it, for want of memory (MemoryMax=)"
        yield Blocked("MemoryMax", SIGNALS[9][1], cure)
    elif seen.signal in SIGNALS and SIGNALS[seen.signal][0]:
        option, why = SIGNALS[seen.signal]
        yield Blocked(option, why, f"change {option}= in the service's unit")
    elif seen.signal is not None and seen.code not in ("timeout", "cancelled"):
        why = SIGNALS.get(seen.signal, ("", f"it ended by signal {seen.signal}"))[1]
        yield Blocked("argv", why, "it is a fault of the program; its standard error may say more")


def _inner_programs(seen: Seen) -> Iterator[Blocked]:
    for name in dict.fromkeys(one or other for one, other in _NOT_FOUND.findall(seen.stderr)):
        why = f"{name} is not on the service's PATH ({seen.search_path})"
        yield Blocked("argv", why, f"write the whole path of {name} in the program, or install it for all users")
    if seen.exit_code == 126:
        yield Blocked("argv", "what it should run is not executable (exit code 126)", "chmod +x that file")


def _paths(seen: Seen) -> Iterator[Blocked]:
    said = f"{seen.stderr}\n{seen.stdout}"
    read_only = "Read-only file system" in said
    for path in seen.paths:
        if read_only and path.read_only:
            cure = f"add {path.path} to ReadWritePaths= in the service's unit, or write below $EDGEPANDA_WORK"
            yield Blocked("ReadWritePaths", f"{path.path} is read-only for the service", cure)
        elif path.exists and _REFUSED.search(said):
            yield _denied(seen, path)
        elif not path.exists and _MISSING.search(said):
            yield Blocked(
                "argv", f"there is no {path.path}", "correct the path; the program runs in a folder of its own"
            )
    if read_only and not any(path.read_only for path in seen.paths):
        cure = "write below $EDGEPANDA_WORK, or add the path to ReadWritePaths= in the service's unit"
        yield Blocked("ReadWritePaths", "it wrote where the service may only read", cure)
    if not seen.paths and _REFUSED.search(said):
        yield Blocked("User", f"something is not allowed to the user {seen.user}", "its standard error says what")
    if _MISSING.search(said):
        for word in seen.here:
            why = f"{word} is a file here, but the program runs in a folder of its own"
            yield Blocked("argv", why, f"write the whole path of {word} in argv")
    if "No space left" in said:
        yield Blocked("disk", "the disk is full", "`df -h` shows it; free some space")


def _denied(seen: Seen, path: PathSeen) -> Blocked:
    facts = f"{path.path} belongs to {path.owner}:{path.group}, {path.mode}"
    why = f"the user {seen.user} may not use it: {facts}"
    group_may = len(path.mode) == 10 and path.mode[4] != "-"
    if group_may and path.group != "root" and path.group not in seen.groups:
        cure = f"add the user to the group: usermod -aG {path.group} {seen.user}, then restart the node"
        return Blocked("SupplementaryGroups", why, cure)
    return Blocked(
        "User", why, f"let {seen.user} use it (chown, chmod), or run it by a rule of sudo for this one command"
    )


def _surroundings(seen: Seen) -> Iterator[Blocked]:
    for match in _UNSET.finditer(seen.stderr):
        name = match[1] or match[2]
        if name not in seen.env:
            why = f"the variable {name} is not set: a command sees those of `env` only"
            yield Blocked("env", why, f'env = ["{name}"], and set {name} for the node')
        else:
            yield Blocked("env", f"the variable {name} is in `env`, but the node has none", f"set {name} for the node")
    if _NO_NETWORK.search(seen.stderr):
        cure = "look at the network; in a service also at PrivateNetwork= and RestrictAddressFamilies="
        yield Blocked("network", "it found no network", cure)


def _result(seen: Seen) -> Iterator[Blocked]:
    if seen.code == "no_result":
        cure = 'let it write {"outcome": "succeeded"} into $EDGEPANDA_RESULT at its end'
        yield Blocked("result.json", "it ended well, but wrote no result.json, without which it has failed", cure)
    elif seen.code == "bad_result":
        yield Blocked("result.json", seen.message, 'it must hold one object, at least {"outcome": "succeeded"}')
    elif seen.code == "missing_output":
        yield Blocked(
            "required_outputs", seen.message, "write them below outputs/, or ask for less in required_outputs"
        )
    elif seen.code == "said_so":
        yield Blocked("result.json", f"its own result.json says failed: {seen.message}", "its output may say more")


RULES: tuple[Callable[[Seen], Iterator[Blocked]], ...] = (
    _refused_before,
    _program,
    _limits,
    _inner_programs,
    _paths,
    _surroundings,
    _result,
)


def as_seen(facts: dict[str, Any], evidence: list[dict[str, Any]]) -> Seen:
    """What was seen, from the facts around a run and its evidence as the command's driver gives it."""
    told: dict[str, Any] = {}
    for each in evidence:
        if each.get("kind") == "exit":
            told |= {"exit_code": each.get("code"), "signal": each.get("signal"), "seconds": each.get("seconds", 0.0)}
        elif each.get("kind") == "output" and each.get("stream") in ("stdout", "stderr"):
            told[each["stream"]] = each.get("tail", "")
    return Seen(**{**facts, **told})
