"""`edgepanda logs` at a site of real processes: what nodes tell to operators, and to nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgepanda.client import AsyncClient
from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from edgepanda.wire.requests import Logs
from tests.rig.brokers import Mosquitto
from tests.rig.cli import Running
from tests.rig.forger import Forger
from tests.rig.site import COORDINATOR, PATIENCE, Site

NODE = """
[node]
name = "{name}"
beat = 0.5
drain = 0.5

[devices.pan]
driver = "servo"
pin = 18
start = 0.0
simulate = true
"""


@dataclass
class Place:
    """A site, its broker, an operator's key in a file, and a program with the role client."""

    site: Site
    broker: Mosquitto
    key: Path
    program: Identity

    def start(self, *words: str, process: str = COORDINATOR) -> Running:
        """A command that goes on."""
        command = [sys.executable, "-u", "-m", "edgepanda", *words, "--config", str(self.site.loaded[process].path)]
        environment = {**os.environ, "EDGEPANDA_KEY": str(self.key)}
        return Running(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )

    def run(self, *words: str, process: str = COORDINATOR) -> tuple[int, str]:
        """Its exit code and all that it prints."""
        running = self.start(*words, process=process)
        code = running.process.wait(PATIENCE)
        running.end()
        return code, running.text

    def lines(self, *words: str) -> list[dict[str, Any]]:
        """What a command with --json prints."""
        code, text = self.run(*words, "--json")
        assert code == 0, text
        return [json.loads(line) for line in text.splitlines()]

    def forger(self) -> Forger:
        return Forger(self.broker.url, base=self.site.loaded[COORDINATOR].config.site.base, site=self.site.name)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    nodes = {name: NODE.format(name=name) for name in ("desk", "attic")}
    with Mosquitto() as broker, Site(tmp_path, broker.url, nodes) as site:
        here = Place(site, broker, tmp_path / "operator.key", Identity.create())
        asyncio.run(_let_in(here))
        yield here


async def _let_in(place: Place) -> None:
    async with place.site.client() as client:
        await place.site.claiming(client, "desk", "attic")
        key = Identity.load_or_create(place.key).public
        await client.add_peer(Peer(key=encode_key(key), name="second", role="operator"))
        await client.add_peer(Peer(key=encode_key(place.program.public), name="program", role="client"))


async def _run(place: Place, node: str) -> str:
    """The id of a task that the node has done, as soon as it has looked at its devices."""
    async with place.site.client() as client:
        await place.site.claiming(client, node)
        while await _state(client, node) != "ready":  # noqa: ASYNC110 the card tells
            await asyncio.sleep(0.05)
        view = await client.run(device="pan", node=node, action="move", args={"angle": 10.0}, timeout=PATIENCE)
    assert view.state == "succeeded", (view.code, view.reason, view.result)
    return view.id


async def _state(client: AsyncClient, node: str) -> str:
    card = (await client.node(node)).get("card") or {"devices": {}}
    return str(card["devices"].get("pan", {}).get("state"))


def test_a_nodes_log_is_told_and_of_one_task_that_of_each_node_that_had_it(place: Place) -> None:
    task = asyncio.run(_run(place, "attic"))
    lines = place.lines("logs", "attic")
    assert [line["seq"] for line in lines] == list(range(lines[0]["seq"], lines[0]["seq"] + len(lines)))
    assert {line["node"] for line in lines} == {"attic"}
    of_task = place.lines("logs", "--task", task)
    assert [line["text"] for line in of_task] == [
        f"{task}.1 is under way: servo.move on pan",
        f"{task}.1 ends: succeeded",
    ]
    assert {(line["node"], line["task"], line["attempt"], line["device"]) for line in of_task} == {
        ("attic", task, 1, "pan")
    }
    assert place.lines("logs", "desk", "--task", task) == []
    assert place.lines("logs", "attic", "--level", "error") == []
    assert len(place.lines("logs", "attic", "--lines", "2")) == 2


def test_this_machines_node_tells_its_log_without_broker_and_coordinator(place: Place) -> None:
    place.site.stop(COORDINATOR)
    place.broker.kill()
    code, text = place.run("logs", "--level", "info", process="desk")
    assert code == 0
    assert "edgepanda.wire: connected to" in text
    code, text = place.run("logs", "desk", "--timeout", "1", process="desk")
    assert (code, "[broker_unreachable]" in text) == (3, True)
    place.broker.restart()


def test_where_no_node_is_the_way_is_shown(place: Place) -> None:
    began = time.monotonic()
    assert "[unknown_node]" in place.run("logs", "shed")[1]
    place.site.stop("attic")
    code, text = place.run("logs", "attic")
    assert (code, "[node_away]" in text) == (3, True)
    code, text = place.run("logs")
    assert (code, "[no_answer]" in text, "name one" in text) == (3, True, True)
    assert time.monotonic() - began < PATIENCE  # none of them waits for a time-out


async def test_a_node_that_hangs_is_told_in_time(place: Place) -> None:
    async with place.site.client() as client:
        await client.logs("desk", Logs())
        os.kill(place.site.pid("desk"), signal.SIGSTOP)
        try:
            with pytest.raises(EdgePandaError) as caught:
                await client.logs("desk", Logs(), within=0.5)
        finally:
            os.kill(place.site.pid("desk"), signal.SIGCONT)
    assert caught.value.code == "no_answer"
    assert "the node desk" in str(caught.value)


def test_following_goes_on_over_a_restart_of_broker_and_node(place: Place) -> None:
    following = place.start("logs", "desk", "--follow")
    following.wait_for("connected to")
    first = asyncio.run(_run(place, "desk"))
    following.wait_for(f"{first}.1 ends: succeeded")
    place.broker.restart()
    following.wait_for("edgepanda.wire: no connection to the broker|edgepanda.wire: connected to", after=1)
    second = asyncio.run(_run(place, "desk"))
    following.wait_for(f"{second}.1 ends: succeeded")
    place.site.stop("desk")
    place.site.start("desk")
    following.wait_for("-- desk was started anew")
    third = asyncio.run(_run(place, "desk"))
    following.wait_for(f"{third}.1 ends: succeeded")
    assert following.text.count(f"{first}.1 ends") == following.text.count(f"{second}.1 ends") == 1
    assert following.end(signal.SIGINT) == 130
    assert "Traceback" not in following.text


def test_who_is_no_operator_gets_nothing_and_an_old_request_does_nothing(place: Place) -> None:
    operator = place.site.operator
    asked = f"v1/nodes/desk/request/{operator.kid}"
    request = {"type": "request", "id": new_id(), "method": "logs", "counter": 1, "incarnation": 1}
    with place.forger() as forger:
        attic = Identity.load(place.site.loaded["attic"].keys_dir / "node.key")
        for who in (place.program, attic, place.site.site_key, Identity.create()):
            for topic in (asked, f"v1/nodes/desk/request/{who.kid}"):
                forger.say(who, topic, {**request, "id": new_id()})
        payload = forger.sealed(operator, asked, json.dumps(request).encode())
        forger.publish(asked, payload)
        replies = []
        first = forger.wait_for(lambda said: said.body["type"] == "reply")  # the very first: nobody else had one
        replies.append(first)
        forger.publish(asked, payload)
        replies.append(forger.wait_for(lambda said: said.body["type"] == "reply"))
        assert {said.topic for said in replies} == {f"v1/nodes/desk/reply/{operator.kid}"}
        assert replies[0].body == replies[1].body  # nothing new is told to who says it again
        assert replies[0].body["id"] == request["id"]
        place.site.stop("desk")
        place.site.start("desk")
        forger.wait_for(lambda said: said.topic == "v1/nodes/desk/status" and said.body.get("incarnation") == 2)
        asyncio.run(_run(place, "desk"))
        forger.publish(asked, payload)
        late = forger.wait_for(lambda said: "/desk/reply/" in said.topic)
        assert late.body["error"]["data"]["code"] == "node_restarted"
        counters = {"counter": 2, "incarnation": 2}
        forger.say(operator, asked, {**request, **counters, "id": "do", "method": "do", "params": {"device": "pan"}})
        forger.say(operator, asked, {**request, "id": "bad", "method": 7})
        forger.say(operator, asked, {**request, **counters, "id": "big", "params": {"task": "x" * 8_000}})
        found = forger.replies({"do", "bad", "big"})
    codes = {name: reply["error"]["data"]["code"] for name, reply in found.items()}
    assert codes == {"do": "unsupported", "bad": "malformed", "big": "oversized"}
    assert "program (client) may not say 'request'" in place.site.log("desk")


async def test_a_secret_in_the_log_leaves_no_node(place: Place) -> None:
    async with place.site.client() as client:
        with pytest.raises(EdgePandaError):
            await client.ask_node("desk", "password=hunter2")
        page = await client.logs("desk", Logs())
    said = [line.text for line in page.lines if line.text.startswith("refused password=")]
    assert said
    assert not [line for line in page.lines if "hunter2" in line.text]
