"""What a person is told when something does not work: once, with the place and the next step."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.cli import Person, set_up

LONG = """
[capabilities."say.long"]
argv = ["sh", "-c", "echo one; sleep 30"]
tier = 0
replay = "safe"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose site is up."""
    with set_up(tmp_path_factory.mktemp("site"), LONG) as someone, someone.up():
        yield someone


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Somebody with a configuration."""
    with set_up(tmp_path) as someone:
        yield someone


def test_a_second_up_says_that_the_site_runs(site: Person) -> None:
    done = site.run("up")
    assert (done.returncode, done.stdout) == (1, "")
    first = re.search(r"this site is running already: `edgepanda up` is process (\d+) \(edgepanda.toml\)", done.stderr)
    assert first is not None, done.stderr
    assert "edgepanda\0up" in Path(f"/proc/{first[1]}/cmdline").read_text()
    assert "`edgepanda status`" in done.stderr
    assert done.stderr.endswith("[already_running]\n")
    error = json.loads(site.run("up", "--json").stdout)["error"]
    assert (error["code"], error["details"]) == ("already_running", {"pid": first[1]})


def test_a_second_process_of_the_site_names_the_first(site: Person) -> None:
    broker = site.run("broker", "run")
    assert broker.returncode == 1
    assert re.search(r"error: edgepanda broker \(process \d+\) listens on 127.0.0.1:\d+ already", broker.stderr)
    assert "[port_in_use]" in broker.stderr
    node = site.run("node")
    assert node.returncode == 1
    assert re.search(r"process \d+ has this file open .*journal.db.*\[storage_locked\]", node.stderr)


def test_up_tells_once_why_it_cannot_start_and_who_has_the_port(person: Person) -> None:
    port = int(re.findall(r'listen = "127.0.0.1:(\d+)"', (person.folder / "edgepanda.toml").read_text())[-1])
    with socket.create_server(("127.0.0.1", port)):
        done = person.run("up")
        found = [json.loads(line) for line in person.run("up", "--json").stdout.splitlines()]
    assert done.returncode == 1
    assert (done.stdout + done.stderr).count("listens on") == 1
    assert re.fullmatch(
        rf"error: the broker could not start: .* \(process {os.getpid()}\) listens on 127.0.0.1:{port} already"
        r" \(broker.listen\); .*another port \[port_in_use\]\n",
        done.stderr,
    )
    assert [each["event"] for each in found[:-1]] == ["started", "ended"]
    assert found[-1]["error"]["where"] == "broker.listen"
    with person.up():
        pass  # and nothing of it is left


def test_what_was_cancelled_is_shown_with_its_evidence_once(site: Person) -> None:
    task = site.json("submit", "say.long")["id"]
    following = site.start("watch", task)
    following.wait_for("running")
    site.ok("cancel", task)
    following.wait_for("cancelled")
    assert site.ok("show", task).count("kind=exit") == 1
    assert "value" not in site.json("show", task)["result"]


def test_arguments_that_were_not_given_are_not_shown(site: Person) -> None:
    task = site.json("do", "pan.move", "20")["id"]
    shown = site.ok("show", task)
    assert "angle=20" in shown
    assert "null" not in shown


def test_init_says_how_a_second_machine_reaches_the_embedded_broker(tmp_path: Path) -> None:
    one, several = Person(tmp_path / "one"), Person(tmp_path / "several")
    told = one.ok("init", "--name", "desk")
    assert told.rstrip().endswith("edgepanda broker invite NAME")
    assert "invite" not in several.ok("init", "--name", "desk", "--broker", "mqtt://broker.lan")
