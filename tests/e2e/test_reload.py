"""A node and a coordinator that run take up an edited configuration, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgepanda.cli.local import LocalNode
from tests.rig.cli import Person, Running, set_up

SERVO = '\n[devices.{name}]\ndriver = "servo"\npin = {pin}\nstart = 0\nsimulate = true\n'


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with set_up(tmp_path, SERVO.format(name="tilt", pin=5)) as someone:
        yield someone


def edit(person: Person, old: str, new: str) -> None:
    file = person.folder / "edgepanda.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def hangup(running: Running) -> int:
    """Sends SIGHUP; the number of lines before it."""
    before = len(running.lines)
    os.kill(running.process.pid, signal.SIGHUP)
    return before


def angle(person: Person, device: str) -> float:
    found: dict[str, Any] = person.json("do", f"{device}.read")
    return float(found["result"]["value"]["angle"])


def test_a_site_takes_up_an_edited_file(person: Person) -> None:
    with person.up() as running:
        assert angle(person, "tilt") == 0
        edit(person, "pin = 5\nstart = 0", "pin = 6\nstart = 10")
        person.configure(SERVO.format(name="nod", pin=5))
        edit(person, "# lease_ttl = 30.0", "lease_ttl = 20.0")
        edit(person, '# server_name = ""', 'server_name = "other"')
        before = hangup(running)
        running.wait_for("coordinator.* taken up .*: coordinator.lease_ttl", after=before)
        running.wait_for("coordinator.* only a restart takes up .*: broker.server_name", after=before)
        running.wait_for("node.* taken up .*: devices.tilt, devices.nod", after=before)
        assert (angle(person, "tilt"), angle(person, "nod")) == (10, 0)
        person.ok("do", "nod.move", "5")


def test_a_broken_file_changes_nothing_and_all_of_it_is_told(person: Person) -> None:
    with person.up() as running:
        edit(person, "pin = 5", "pin = 6")
        person.configure("\n[node2]\nslots = 1\n[devices.nod]\npin = 5\n")
        before = hangup(running)
        running.wait_for(r"node .*ERROR.*edgepanda.toml.*node2", after=before)
        running.wait_for(r"node .*ERROR.*devices.nod", after=before)
        running.wait_for("node .*the configuration in use stays as it was", after=before)
        running.wait_for("coordinator .*the configuration in use stays as it was", after=before)
        edit(person, "[node2]", "# [node2]")
        edit(person, "[devices.nod]\npin = 5\n", "")
        assert angle(person, "tilt") == 0


async def test_a_node_alone_is_asked_over_its_socket(person: Person) -> None:
    running = person.start("node")
    running.wait_for("node desk")
    node = LocalNode(person.folder / ".edgepanda/run/node.sock")
    async with asyncio.timeout(20):
        while await node.card() is None:  # noqa: ASYNC110 another process sets no event of ours
            await asyncio.sleep(0.02)
    person.configure(SERVO.format(name="nod", pin=6))
    edit(person, "# slots = 16", "slots = 2")
    told = await node.request("reload", {}, within=30)
    assert (told["taken"], told["restart"]) == (["node.slots", "devices.nod"], [])
    assert (told["devices"], told["states"]["nod"]["state"]) == ({"nod": "added"}, "ready")
    again = await node.request("reload", {}, within=30)
    assert (again["taken"], again["devices"]) == ([], {})
    assert (await node.card() or {})["slots"] == 2
    edit(person, "pin = 6", "pin = 999999")
    told = await node.request("rescan", {}, within=30)
    assert told["states"]["nod"]["state"] == "ready"
    assert running.end() == 0


def test_config_edit_has_the_node_take_it_up(person: Person) -> None:
    script = person.folder / "editor"
    script.write_text("#!/bin/sh\nsed -i -e 's/pin = 5/pin = 6/' -e 's/^start = 0$/start = 7/' \"$1\"\n")
    script.chmod(0o755)
    with person.up():
        edited = person.start("config", "edit", "--json", more={"EDITOR": str(script)})
        told = json.loads(edited.wait_for('"saved"'))
        assert told["changed"] == ["devices.tilt.pin", "devices.tilt.start"]
        assert (told["restart"], told["node"]) == (False, {"running": True, "reloaded": True})
        assert angle(person, "tilt") == 7
