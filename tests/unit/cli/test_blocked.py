"""From what was seen of a command to the option that blocked it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from edgepanda.cli.blocked import PathSeen, Seen, as_seen, blocked_by, complained_about
from edgepanda.cli.capability import example_values, typed_arguments
from edgepanda.cli.driver_options import OptionError
from edgepanda.cli.service import memory_kills, path_seen, peer_pid, surroundings
from edgepanda.drivers.command import Command

SCHEMA = Command.describe().device
PATH = "/usr/local/bin:/usr/bin:/bin"


def seen(**facts: Any) -> Seen:
    return Seen(**({"program": "job", "found": "/usr/bin/job", "search_path": PATH, "user": "edgepanda"} | facts))


def exited(stderr: str = "", code: int = 1, **facts: Any) -> Seen:
    return seen(code="exit_status", exit_code=code, stderr=stderr, **facts)


TTY = PathSeen(path="/dev/ttyUSB0", owner="root", group="dialout", mode="crw-rw----")
SHADOW = PathSeen(path="/etc/shadow", owner="root", group="root", mode="-rw-------")
HOME = PathSeen(path="/srv/out", owner="root", group="root", mode="drwxr-xr-x", read_only=True)

CASES = [
    # the program
    (seen(found="", code="unavailable", message="there is no program job"), "argv", "not on the service's", "install"),
    (seen(found="", elsewhere="/home/me/bin/job", code="unavailable"), "argv", "PATH", "whole path: /home/me/bin/job"),
    (seen(found="", code="unavailable", message="/x/job is not executable"), "argv", "not executable", "chmod +x"),
    (seen(message="the program cannot be started: Permission denied"), "argv", "the user edgepanda", "chmod +x"),
    (seen(message="the program cannot be started: Exec format error"), "argv", "no program for this", "#!/bin/sh"),
    (seen(message="the program cannot be started: No such file or directory"), "argv", "first line", "interpreter"),
    # limits
    (seen(outcome="timed_out", code="timeout", timeout=2.0, signal=2), "timeout", "after 2 s", "timeout = 4"),
    (exited(signal=9, memory_kills=1, memory_max=64 << 20), "MemoryMax", "limit of 64 MiB", "MemoryMax="),
    (exited("MemoryError\n", memory_max=64 << 20), "MemoryMax", "limit of 64 MiB", "MemoryMax="),
    (exited("xmalloc: Cannot allocate memory"), "MemoryMax", "it met the memory limit", "need less"),
    (exited(code=-1, signal=9), "MemoryMax", "killed (signal 9)", "journalctl -k"),
    (exited(code=-1, signal=31), "SystemCallFilter", "system call", "SystemCallFilter="),
    (exited(code=-1, signal=24), "LimitCPU", "processor time", "LimitCPU="),
    (exited(code=-1, signal=25), "LimitFSIZE", "larger file", "LimitFSIZE="),
    (exited(code=-1, signal=11), "argv", "crashed", "fault of the program"),
    (exited(code=-1, signal=6), "argv", "signal 6", "fault of the program"),
    # what it called
    (exited("sh: 1: frob: not found\n", 127), "argv", "frob is not on the service's PATH", "whole path of frob"),
    (exited("bash: line 1: frob: command not found", 127), "argv", "frob is not on", "whole path of frob"),
    (exited("env: \u2018node\u2019: No such file or directory", 127), "argv", "node is not on", "whole path of node"),
    (exited("x.sh: 3: ./y: Permission denied", 126), "argv", "exit code 126", "chmod +x"),
    # paths
    (exited("cat: /dev/ttyUSB0: Permission denied", paths=(TTY,)), "SupplementaryGroups", "dialout", "-aG dialout"),
    (exited("cat: /etc/shadow: Permission denied", paths=(SHADOW,)), "User", "root:root, -rw-------", "chown"),
    (
        exited("cat: /dev/ttyUSB0: Permission denied", paths=(TTY,), groups=("dialout",)),
        "User", "may not use it", "chown",
    ),
    (exited("PermissionError: [Errno 1] Operation not permitted"), "User", "the user edgepanda", "standard error"),
    (exited("tee: /srv/out: Read-only file system", paths=(HOME,)), "ReadWritePaths", "is read-only", "add /srv/out"),
    (exited("tee: x: Read-only file system"), "ReadWritePaths", "only read", "$EDGEPANDA_WORK"),
    (exited("cat: /nowhere: No such file or directory", paths=(PathSeen(path="/nowhere", exists=False),)),
     "argv", "there is no /nowhere", "correct the path"),
    (exited("sh: 0: cannot open d.sh: No such file", here=("d.sh",)), "argv", "d.sh is a file here", "path of d.sh"),
    (exited("cp: error writing 'x': No space left on device"), "disk", "full", "df -h"),
    # surroundings
    (exited("x.sh: 2: TOKEN: parameter not set"), "env", "TOKEN is not set", 'env = ["TOKEN"]'),
    (exited("KeyError: 'TOKEN'"), "env", "TOKEN is not set", 'env = ["TOKEN"]'),
    (exited("bash: TOKEN: unbound variable", env=("TOKEN",)), "env", "the node has none", "set TOKEN"),
    (exited("curl: (6) Could not resolve host: x"), "network", "no network", "PrivateNetwork="),
    # the result
    (seen(code="no_result", exit_code=0), "result.json", "no result.json", "$EDGEPANDA_RESULT"),
    (seen(code="bad_result", exit_code=0, message="result.json is not valid"), "result.json", "not valid", "outcome"),
    (seen(code="missing_output", message="missing: *.pdf"), "required_outputs", "*.pdf", "outputs/"),
    (seen(code="said_so", message="no paper"), "result.json", "no paper", "output"),
    (seen(code="limit", message="percent 100 is above 99"), "args", "above 99", "limits"),
    (seen(code="consent_required"), "tier", "consent", "tier = 1"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "option", "why", "cure"), CASES)
def test_what_was_seen_names_the_option(what: Seen, option: str, why: str, cure: str) -> None:
    first = blocked_by(what)[0]
    assert first.option == option
    assert why in first.why
    assert cure in first.cure


def test_what_works_is_blocked_by_nothing() -> None:
    assert blocked_by(exited("cat: /etc/shadow: Permission denied", 0, outcome="succeeded", paths=(SHADOW,))) == []
    assert blocked_by(exited("it does not like you")) == []
    assert blocked_by(seen(code="cancelled", outcome="cancelled", signal=2)) == []


def test_several_things_are_all_told() -> None:
    told = blocked_by(exited("sh: 1: frob: not found\ncat: /etc/shadow: Permission denied", paths=(SHADOW,)))
    assert [each.option for each in told] == ["argv", "User"]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("cat: /etc/shadow: Permission denied", (("/etc/shadow", False),)),
        ("/bin/sh: 1: cannot create /etc/x: Permission denied", (("/etc/x", False),)),
        ("PermissionError: [Errno 13] Permission denied: '/dev/ttyUSB0'", (("/dev/ttyUSB0", False),)),
        ("touch: cannot touch '/srv/out/a.txt': Read-only file system", (("/srv/out/a.txt", False),)),
        ("ls: cannot access '/no': No such file or directory", (("/no", True),)),
        ("reading /etc/passwd", ()),
    ],
)
def test_paths_are_taken_from_complaints_alone(text: str, paths: tuple[tuple[str, bool], ...]) -> None:
    assert complained_about(text) == paths


def test_the_evidence_of_the_driver_is_understood() -> None:
    evidence = [
        {"kind": "exit", "code": 3, "signal": None, "seconds": 0.5},
        {"kind": "output", "stream": "stderr", "bytes": 4, "tail": "oh no"},
    ]
    found = as_seen({"program": "job"}, evidence)
    assert (found.exit_code, found.signal, found.seconds, found.stderr, found.stdout) == (3, None, 0.5, "oh no", "")


def test_arguments_are_typed_by_the_drivers_schema() -> None:
    found = typed_arguments(("seconds:integer minimum=1 maximum=9", "name:string 'pattern=[a-z]+' default=x"), SCHEMA)
    assert found == {
        "seconds": {"type": "integer", "minimum": 1, "maximum": 9},
        "name": {"type": "string", "pattern": "[a-z]+", "default": "x"},
    }
    assert example_values({**found, "level": {"type": "string", "enum": ["low"]}}) == ["seconds=1", "level=low"]
    Command.read_config({"argv": ["x", "{seconds}"], "tier": 0, "replay": "safe", "args": found})


def test_default_and_choices_have_the_arguments_own_type() -> None:
    found = typed_arguments(
        ("n:integer default=1 enum=1 enum=2", "s:string default=1", "b:boolean default=true"), SCHEMA
    )
    assert found == {
        "n": {"type": "integer", "default": 1, "enum": [1, 2]},
        "s": {"type": "string", "default": "1"},
        "b": {"type": "boolean", "default": True},
    }
    Command.read_config({"argv": ["x"], "tier": 0, "replay": "safe", "args": found})


@pytest.mark.parametrize("given", ["seconds", "2x:integer", "", "s:int", "s:integer minmum=1"])
def test_an_argument_that_is_none(given: str) -> None:
    with pytest.raises(OptionError) as caught:
        typed_arguments((given,), SCHEMA)
    assert caught.value.where.startswith("--arg")
    assert caught.value.cure


def test_the_surroundings_of_this_process(tmp_path: Path) -> None:
    around = surroundings()
    assert around.pid == os.getpid()
    assert around.user
    assert memory_kills() >= 0
    (tmp_path / "x").touch(mode=0o640)
    found = path_seen(str(tmp_path / "x"), missing=False)
    assert (found.mode, found.exists, found.read_only) == ("-rw-r-----", True, False)
    assert path_seen(str(tmp_path / "a/b"), missing=False).path == str(tmp_path)
    assert not path_seen(str(tmp_path / "a/b"), missing=True).exists
    assert path_seen("/proc/version", missing=False).owner == "root"


def test_who_listens_on_a_socket_is_known_by_the_kernel(tmp_path: Path) -> None:
    assert peer_pid(tmp_path / "none") is None
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "sock"))
        server.listen()
        assert peer_pid(tmp_path / "sock") == os.getpid()
