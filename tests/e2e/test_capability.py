"""A command of one's own: added, tried with and without the node, and what blocks it named. Real processes."""

from __future__ import annotations

import json
import os
import signal
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.cli import Person, set_up

GOOD = """#!/bin/sh
echo "free: $1"
printf '{"outcome": "succeeded", "value": %s}' "$1" >"$EDGEPANDA_RESULT"
"""


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with set_up(tmp_path) as someone:
        script(someone, "good.sh", GOOD)
        yield someone


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose configuration nobody changes: for what must be refused."""
    someone = Person(tmp_path_factory.mktemp("settled"))
    someone.ok("init", "--name", "desk")
    someone.configure('\n[capabilities."my.own"]\nargv = ["df"]\ntier = 1\nreplay = "safe"\n')
    yield someone
    someone.close()


def script(person: Person, name: str, text: str, mode: int = 0o755) -> None:
    path = person.folder / name
    path.write_text(text)
    path.chmod(mode)


def added(person: Person, name: str, *command: str, more: tuple[str, ...] = ()) -> str:
    return person.ok("capability", "add", name, "--tier", "0", "--replay", "safe", *more, "--", *command)


def tried(person: Person, name: str, *words: str) -> dict[str, Any]:
    done = person.run("capability", "try", name, *words, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    return found


def test_a_command_is_added_tried_and_done(person: Person) -> None:
    before = (person.folder / "edgepanda.toml").read_text()
    told = added(
        person, "disk.free", "./good.sh", "{percent}", more=("--arg", "percent:integer minimum=1", "--timeout", "5s")
    )
    assert told.splitlines()[-1] == "Try: edgepanda capability try disk.free percent=1"
    text = (person.folder / "edgepanda.toml").read_text()
    assert text.startswith(before)
    assert tomllib.loads(text)["capabilities"]["disk.free"] == {
        "argv": [str(person.folder / "good.sh"), "{percent}"], "tier": 0, "replay": "safe", "timeout": 5,
        "args": {"percent": {"type": "integer", "minimum": 1}},
    }  # fmt: skip
    alone = tried(person, "disk.free", "percent=7")
    assert (alone["value"], alone["seen"]["stdout"], alone["seen"]["exit_code"], alone["blocked"]) == (
        7,
        "free: 7\n",
        0,
        [],
    )
    with person.up():
        through = tried(person, "disk.free", "8")
        assert (through["value"], through["through"], through["seen"]["stdout"]) == (8, "desk", "free: 8\n")
        assert "by the node desk" in person.ok("capability", "try", "disk.free", "9")
        assert person.json("do", "disk.free", "9")["state"] == "succeeded"
    assert person.processes() == []
    assert list(person.temporary.iterdir()) == []


def test_a_running_node_takes_a_command_up(person: Person) -> None:
    with person.up():
        assert "no node is running" not in added(person, "disk.free", "./good.sh", "3")
        assert (tried(person, "disk.free")["through"], person.json("do", "disk.free")["state"]) == ("desk", "succeeded")
        person.configure('\n[capabilities."not.read"]\nargv = ["df"]\ntier = 0\nreplay = "safe"\n')
        done = person.run("capability", "try", "not.read")
        assert (done.returncode, "has not read this capability yet" in done.stderr) == (1, True)


BLOCKED = [
    ("sleep 9", "timeout", "after 1 s"),
    ("frobnicate", "argv", "frobnicate is not on the service's PATH"),
    ("set -u; echo $TOKEN", "env", "the variable TOKEN"),
    ("echo done", "result.json", "no result.json"),
    ("kill -9 $$", "MemoryMax", "killed (signal 9)"),
    ("cat /no/such/file", "argv", "there is no /no/such/file"),
]


def test_what_blocks_it_is_named_alone_and_through_the_node(person: Person) -> None:
    commands = {f"blocked.no{at}": ["sh", "-c", line] for at, (line, _, _) in enumerate(BLOCKED)}
    commands["blocked.here"] = ["cat", "data.txt"]
    for name, argv in commands.items():
        person.configure(f'\n[capabilities."{name}"]\nargv = {argv}\ntier = 0\nreplay = "safe"\ntimeout = 1\n')
    (person.folder / "data.txt").write_text("x")
    for at, (line, option, why) in enumerate(BLOCKED):
        first = tried(person, f"blocked.no{at}")["blocked"][0]
        assert (first["option"], why in first["why"], bool(first["cure"])) == (option, True, True), (line, first)
    assert "data.txt is a file here" in person.run("capability", "try", "blocked.here").stdout
    with person.up():
        for at, (line, option, why) in enumerate(BLOCKED):
            first = tried(person, f"blocked.no{at}")["blocked"][0]
            assert (first["option"], why in first["why"]) == (option, True), (line, first)
    assert person.processes() == []


def test_a_program_that_cannot_be_run_is_refused_unless_asked_for(person: Person) -> None:
    script(person, "plain.sh", GOOD, mode=0o644)
    before = (person.folder / "edgepanda.toml").read_bytes()
    words = ("capability", "add", "disk.free", "--tier", "0", "--replay", "safe")
    done = person.run(*words, "--", "./plain.sh")
    assert (done.returncode, "is not executable" in done.stderr, "chmod +x" in done.stderr) == (1, True, True)
    assert "[device_unusable]" in person.run(*words, "--", "frobnicate").stderr
    assert (person.folder / "edgepanda.toml").read_bytes() == before
    assert "it cannot be used now" in person.run(*words, "--anyway", "--", "./plain.sh").stderr
    found = tried(person, "disk.free")
    assert (found["blocked"][0]["option"], found["blocked"][0]["cure"].startswith("chmod +x")) == ("argv", True)


REFUSED = [
    ("add disk --tier 0 --replay safe -- df", "invalid_name", "disk.free"),
    ("add disk.free --tier 0 --replay safe --", "usage", "behind --"),
    ("add disk.free --replay safe -- df", "invalid_args", "--tier"),
    ("add disk.free --tier 0 -- df", "invalid_args", "--replay"),
    ("add disk.free --tier 7 --replay safe -- df", "invalid_args", "0 or 1 or 2"),
    ("add disk.free --tier 0 --replay safe --timeout 5kg -- df", "invalid_args", "the unit is s"),
    ("add disk.free --tier 0 --replay safe --timout 5 -- df", "invalid_args", "did you mean --timeout?"),
    ("add disk.free --tier 0 --replay safe --arg x -- df {x}", "invalid_args", "seconds:integer"),
    ("add disk.free --tier 0 --replay safe -- df {x}", "invalid_args", "{x}"),
    ("add my.own --tier 0 --replay safe -- df", "device_exists", "edgepanda.toml:"),
    ("try my.won", "unknown_capability", "did you mean 'my.own'?"),
    ("try my.own", "usage", "--yes"),
]


@pytest.mark.parametrize(("line", "code", "said"), REFUSED)
def test_what_cannot_be_changes_nothing(settled: Person, line: str, code: str, said: str) -> None:
    before = (settled.folder / "edgepanda.toml").read_bytes()
    done = settled.run("capability", *line.split())
    assert (done.returncode, f"[{code}]" in done.stderr, said in done.stderr) == (2, True, True), done.stderr
    assert (settled.folder / "edgepanda.toml").read_bytes() == before


def test_what_does_more_than_look_is_asked_for(person: Person) -> None:
    words = ("capability", "add", "pump.run", "--tier", "1", "--replay", "unsafe", "--", "./good.sh", "1")
    person.ok(*words)
    code, told = person.at_terminal("capability", "try", "pump.run", typed="n\n")
    assert (code, "Run pump.run for real (tier 1, replay unsafe)?" in told, "free:" in told) == (130, True, False)
    code, told = person.at_terminal("capability", "try", "pump.run", typed="y\n")
    assert (code, "free: 1" in told) == (0, True)
    assert tried(person, "pump.run", "--yes")["value"] == 1


def test_ctrl_c_ends_what_runs_without_a_node(person: Person) -> None:
    mark = person.folder / "begun"
    person.configure(
        f'\n[capabilities."too.long"]\nargv = ["sh", "-c", "echo $$ >{mark}; sleep 600"]\ntier = 0\nreplay = "safe"\n'
    )
    running = person.start("capability", "try", "too.long")
    until(lambda: mark.exists() and mark.read_text().strip())
    assert running.end(signal.SIGINT) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
    assert person.processes() == []
    assert list(person.temporary.iterdir()) == []


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)  # another process sets no event of ours


def test_the_help_lists_the_drivers_options(person: Person) -> None:
    told = person.ok("capability", "add", "--help")
    assert "--required-outputs" in told
    assert "After this time it is ended." in told
