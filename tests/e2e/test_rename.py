"""Renaming a node at a site of real processes: nothing stays on the broker under the old name, and no task is lost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgepanda.client import AsyncClient
from edgepanda.coordinator.peers import PeersFile
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from tests.rig.brokers import Embedded, Mosquitto, Process
from tests.rig.cli import Person
from tests.rig.site import COORDINATOR, PATIENCE, Site
from tests.rig.wiretap import Wiretap

NODE = """
# how this node is called
[node]
name = "{name}"  # by hand
beat = 0.5
drain = 0.5

[devices.pan]
driver = "servo"
pin = 18
start = 0.0
simulate = true

[capabilities."say.word"]
argv = ["/bin/sh", "-c", "echo '{{\\"outcome\\": \\"succeeded\\"}}' > $EDGEPANDA_RESULT"]
tier = 0
replay = "safe"

[capabilities."take.long"]
argv = ["/bin/sh", "-c", "exec sleep 60"]
tier = 0
replay = "safe"
"""


@dataclass
class Place:
    """A site and an operator's key in a file."""

    site: Site
    broker: Process
    key: Path

    def run(self, *words: str, process: str = COORDINATOR, operator: bool = True) -> tuple[int, str]:
        """A command's exit code and all that it prints."""
        command = [sys.executable, "-m", "edgepanda", *words, "--config", str(self.site.loaded[process].path)]
        key = self.key if operator else self.key.with_name("none.key")
        done = subprocess.run(
            command,
            env={**os.environ, "EDGEPANDA_KEY": str(key)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        return done.returncode, done.stdout

    def nothing_is_left(self, old: str, new: str) -> None:
        """What a client that comes now gets: the node's retained topics under its new name, and no other."""
        with Wiretap(self.broker.url) as tap:
            tap.wait_for(lambda one: one.topic.endswith(f"/nodes/{new}/card"))
            tap.wait_for(lambda one: one.topic.endswith(f"/nodes/{new}/status"))
            left = [one.topic for one in tap.heard if one.retained and f"/nodes/{old}/" in one.topic]
        assert left == []

    def config(self, process: str) -> str:
        return self.site.loaded[process].path.read_text()


@pytest.fixture(params=[Mosquitto, Embedded])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    nodes = {name: NODE.format(name=name) for name in ("desk", "attic")}
    with request.param() as broker, Site(tmp_path, broker.url, nodes) as site:
        here = Place(site, broker, tmp_path / "operator.key")
        asyncio.run(_let_in(here))
        yield here


async def _let_in(place: Place) -> None:
    async with place.site.client() as client:
        await place.site.claiming(client, "desk", "attic")
        key = Identity.load_or_create(place.key).public
        await client.add_peer(Peer(key=encode_key(key), name="second", role="operator"))
        while not await _ready(client):  # noqa: ASYNC110 the card tells
            await asyncio.sleep(0.05)


async def _ready(client: AsyncClient) -> bool:
    """Whether the node's drivers have told what they can do: until then its card says nothing of that."""
    card = (await client.node("desk")).get("card") or {}
    return bool(card.get("capabilities", {}).get("say.word", {}).get("state") == "ready")


async def _works(place: Place, name: str) -> None:
    async with place.site.client() as client:
        await place.site.claiming(client, name)
        view = await client.run("say.word", node=name, timeout=PATIENCE)
        assert (view.state, view.node) == ("succeeded", name), view


async def _submit(place: Place, capability: str, node: str) -> str:
    async with place.site.client() as client:
        return str((await client.submit(capability, node=node))["id"])


async def _ends(place: Place, task: str) -> tuple[str, str | None]:
    async with place.site.client() as client:
        view = await client.wait(task, timeout=PATIENCE)
    return view.state, view.node


async def _running(place: Place, task: str) -> None:
    async with place.site.client() as client:
        while (await client.get(task)).state != "running":  # noqa: ASYNC110 the coordinator tells
            await asyncio.sleep(0.05)


def test_a_node_at_work_takes_its_new_name_at_once(place: Place) -> None:
    code, text = place.run("nodes", "rename", "desk", "lab")
    assert code == 0, text
    asyncio.run(_works(place, "lab"))
    place.nothing_is_left("desk", "lab")
    code, text = place.run("nodes")
    assert ("lab " in text, "desk" in text) == (True, False)
    assert place.run("nodes", "rename", "desk", "lab")[0] == 0  # again
    place.site.kill("desk")  # its will comes under the new name
    place.site.start("desk")
    asyncio.run(_works(place, "lab"))
    place.nothing_is_left("desk", "lab")
    assert "whatever its configuration says" in place.site.log("desk")


def test_tasks_that_wait_for_an_absent_node_come_to_it_under_its_new_name(place: Place) -> None:
    place.site.kill("desk")
    task = asyncio.run(_waits(place))
    code, text = place.run("nodes", "rename", "desk", "lab")
    assert code == 0, text
    place.site.start("desk")  # its configuration calls it desk still, and it was not told
    assert asyncio.run(_ends(place, task)) == ("succeeded", "lab")
    place.nothing_is_left("desk", "lab")
    assert 'data": {"task"' not in place.run("show", task)[1]
    assert place.run("audit", "verify")[0] == 0


async def _waits(place: Place) -> str:
    async with place.site.client() as client:
        while (await client.node("desk"))["online"]:  # noqa: ASYNC110 the coordinator tells
            await asyncio.sleep(0.05)
        return str((await client.submit("say.word", node="desk"))["id"])


def test_this_machines_node_is_renamed_at_the_site_and_in_its_configuration(place: Place) -> None:
    code, text = place.run("rename", "lab", process="desk")
    assert (code, "desk is lab from now on" in text) == (0, True), text
    config = place.config("desk")
    assert 'name = "lab"  # by hand' in config
    assert "# how this node is called" in config
    asyncio.run(_works(place, "lab"))
    place.nothing_is_left("desk", "lab")
    code, text = place.run("rename", "desk2", process="desk", operator=False)
    assert (code, "edgepanda nodes rename lab desk2" in text) == (0, True), text
    assert place.run("nodes", "rename", "lab", "desk2")[0] == 0
    asyncio.run(_works(place, "desk2"))


def test_what_cannot_be_renamed_is_refused_and_stays(place: Place) -> None:
    before = place.config("desk")
    code, text = place.run("rename", "attic", process="desk")
    assert (code, "[name_taken]" in text) == (1, True), text
    task = asyncio.run(_submit(place, "take.long", "desk"))
    asyncio.run(_running(place, task))
    code, text = place.run("rename", "lab", process="desk")
    assert (code, "[node_busy]" in text, task in text) == (1, True, True), text
    assert place.run("nodes", "rename", "shed", "lab")[0] == 2
    assert place.run("nodes", "rename", "desk", "No Name")[0] == 2
    assert place.config("desk") == before
    assert place.run("cancel", task)[0] == 0
    assert asyncio.run(_ends(place, task)) == ("cancelled", "desk")
    asyncio.run(_works(place, "desk"))


def test_a_coordinator_that_ends_in_the_middle_loses_nothing(place: Place) -> None:
    """The list of peers was written, and nothing else."""
    place.site.kill("desk")
    task = asyncio.run(_waits(place))
    place.site.kill(COORDINATOR)
    peers = PeersFile(place.site.state(COORDINATOR) / "peers.json", place.site.name, place.site.site_key)
    peers.rename("desk", "lab")
    peers.close()
    place.site.start("desk")
    place.site.start(COORDINATOR)
    assert asyncio.run(_ends_again(place, task)) == ("succeeded", "lab")
    assert place.run("nodes", "rename", "desk", "lab")[0] == 0
    place.nothing_is_left("desk", "lab")


async def _ends_again(place: Place, task: str) -> tuple[str, str | None]:
    async with place.site.client() as client:
        await place.site.claiming(client, "lab")
    return await _ends(place, task)


async def test_a_key_that_is_not_an_operators_renames_nobody(place: Place) -> None:
    program = Identity.create()
    async with place.site.client() as client:
        await client.add_peer(Peer(key=encode_key(program.public), name="program", role="client"))
    site = place.site.loaded[COORDINATOR].config.site
    address = place.site.loaded[COORDINATOR].broker_address()
    asking = AsyncClient(address, site=site.name, base=site.base, site_key=place.site.site_key.public, identity=program)
    async with asking as client:
        with pytest.raises(Exception, match=r"may not ask for node\.rename"):
            await client.rename_node("desk", "lab")


def test_under_up_everything_goes_on(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.ok("init", "--yes", "--name", "desk")
    person.listen_anywhere()
    with person.up() as running:
        person.ok("do", "pan.move", "10")
        assert "desk is lab from now on" in person.ok("rename", "lab")
        running.wait_for("node lab")
        while not [node for node in person.json("nodes")["nodes"] if node["name"] == "lab" and node["claiming"]]:
            pass  # each look takes its time
        assert person.json("do", "pan.move", "20")["node"] == "lab"
        assert "is under way: servo.move on pan" in person.ok("logs")
        assert person.json("rename", "lab") == {"name": "lab", "formerly": "lab", "site": True, "configuration": False}
    assert "Traceback" not in running.text
    person.close()
