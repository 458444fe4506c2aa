"""What bad input gets: a clear error with a stable code where it enters, in the reply and in the log, and nothing else
is disturbed. One site of real processes takes all of it, and still does its work after each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepanda.cli.local import LocalNode
from edgepanda.client import AsyncClient
from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import new_id
from edgepanda.model.task import Limits, Task
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from edgepanda.wire import messages
from edgepanda.wire.clock import Stamp, boot_id, boottime
from edgepanda.wire.requests import METHODS
from tests.rig.brokers import Mosquitto
from tests.rig.cli import Running
from tests.rig.forger import Forger
from tests.rig.site import COORDINATOR, RECORDER, Site

REQUEST = "v1/site/request"
INBOX = "v1/nodes/desk/inbox"
REPORT = "v1/nodes/desk/report"
LATEST = 10.0  # seconds until a log has its line

DESK = f"""
[node]
name = "desk"
beat = 0.5
drain = 0.5

[devices.pan]
driver = "servo"
pin = 18
simulate = true

[devices.rec]
driver = "{RECORDER}"
file = "{{record}}"

[capabilities."wall.paint"]
argv = ["/bin/sh", "-c", "echo painted >> {{record}}"]
tier = 2
replay = "unsafe"

[capabilities."part.missing"]
argv = ["/no/such/program"]
tier = 0
replay = "safe"
"""
ATTIC = """
[node]
name = "attic"
beat = 0.5
drain = 0.5

[devices.pan]
driver = "servo"
pin = 18
simulate = true
"""


@dataclass
class Place:
    """The site, its broker, and who else has a key there."""

    site: Site
    url: str
    record: Path
    operator_key: Path
    program: Identity  # of the role client

    @property
    def base(self) -> str:
        return self.site.loaded[COORDINATOR].config.site.base

    def forger(self) -> Forger:
        return Forger(self.url, base=self.base, site=self.site.name)

    def node_key(self, name: str) -> Identity:
        return Identity.load(self.site.loaded[name].keys_dir / "node.key")

    def socket(self, name: str) -> LocalNode:
        return LocalNode.of(self.site.loaded[name])

    def client_of(self, who: Identity) -> AsyncClient:
        site = self.site.loaded[COORDINATOR].config.site
        address = self.site.loaded[COORDINATOR].broker_address()
        return AsyncClient(
            address, site=site.name, base=site.base, site_key=self.site.site_key.public, identity=who, answer_within=5.0
        )

    def run(self, *words: str, process: str = COORDINATOR) -> subprocess.CompletedProcess[str]:
        """A command of the operator's, with the configuration of one of the processes."""
        return run(words, self.site.loaded[process].path, self.operator_key)


def run(words: tuple[str, ...], config: Path, key: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **({"EDGEPANDA_KEY": str(key)} if key else {})}
    command = [*ordinary(), sys.executable, "-m", "edgepanda", *words, "--config", str(config)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)


def ordinary() -> list[str]:
    """For a root, too, a file's permissions shall count, as for the service's own user."""
    less = "-dac_override,-dac_read_search,-fowner"
    # What is inheritable would come back at exec, whatever the bounding set says; containers start with such.
    return ["setpriv", f"--inh-caps={less}", f"--bounding-set={less}"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("bad")
    record = folder / "record"
    with (
        Mosquitto() as broker,
        Site(folder / "site", broker.url, {"desk": DESK.replace("{record}", str(record)), "attic": ATTIC}) as site,
    ):
        yield asyncio.run(_furnished(Place(site, broker.url, record, folder / "operator.key", Identity.create())))


async def _furnished(place: Place) -> Place:
    async with place.site.client() as client:
        await place.site.claiming(client, "desk", "attic")
        more = Identity.load_or_create(place.operator_key)
        await client.add_peer(Peer(key=encode_key(more.public), name="second", role="operator"))
        await client.add_peer(Peer(key=encode_key(place.program.public), name="program", role="client"))
        await _eventually(lambda: _all_probed(place))
    return place


async def _all_probed(place: Place) -> None:
    """Raises as long as a device of a node has not said whether it can be used."""
    for name in ("desk", "attic"):
        card = (await place.socket(name).request("status", {}))["card"]
        things = [*card["devices"].values(), *card.get("capabilities", {}).values()]
        if any(thing.get("state", "probing") == "probing" for thing in things):
            raise EdgePandaError(f"{name} looks at its devices still", code="busy", where="here")


@contextlib.asynccontextmanager
async def undisturbed(place: Place) -> AsyncIterator[AsyncClient]:
    """Whatever happens within: afterwards all processes run, did not stumble, and a good task succeeds."""
    async with place.site.client() as client:
        yield client
        await a_good_task(client)
    for process in (COORDINATOR, "desk", "attic"):
        assert not place.site.ended(process)
        assert "Traceback" not in place.site.log(process)


async def a_good_task(client: AsyncClient) -> None:
    view = await client.run(device="rec", node="desk", action="note", timeout=10)
    assert view.state == "succeeded", view


async def told(place: Place, process: str, code: str, *words: str) -> None:
    """The log of the process has one line with the code, and with these words, within a moment."""
    end = time.monotonic() + LATEST
    while not (
        found := [s for s in place.site.log(process).splitlines() if f"[{code}]" in s and all(w in s for w in words)]
    ):
        assert time.monotonic() < end, f"no [{code}] in\n{place.site.log(process)[-3000:]}"
        await asyncio.sleep(0.02)
    assert len(found) == 1, found


def is_clear(error: EdgePandaError) -> bool:
    """Code, message, where and cure are all there."""
    return bool(error.code and error.message and error.where and error.cure)


# what is asked for


@pytest.mark.parametrize(
    ("asked", "code", "where", "hint"),
    [
        ({"capability": "warp.drive"}, "unknown_capability", "capability", "edgepanda card"),
        ({"capability": "servo.mov"}, "unknown_capability", "capability", "did you mean 'servo.move'?"),
        ({"device": "tilt", "action": "move"}, "unknown_device", "device", "edgepanda card"),
        ({"device": "pam", "action": "move"}, "unknown_device", "device", "did you mean 'pan'?"),
        ({"device": "rec", "action": "nose"}, "unknown_capability", "action", "did you mean 'note'?"),
        ({"capability": "servo.move", "node": "attik"}, "unknown_node", "node", "did you mean 'attic'?"),
        ({"capability": "servo.move", "labels": {"room": "hall"}}, "unknown_device", "labels", "edgepanda card"),
        ({"args": {}}, "invalid_args", "args.angle", "angle, speed, duration"),
        ({"args": {"angle": 3, "angel": 4}}, "invalid_args", "args", "angle, speed, duration"),
        ({"args": {"angle": "up"}}, "invalid_args", "args.angle", "edgepanda card"),
        ({"args": {"angle": True}}, "invalid_args", "args.angle", "edgepanda card"),
        ({"args": {"angle": None}}, "invalid_args", "args.angle", "edgepanda card"),
        ({"args": {"angle": 90.5}}, "limit", "args.angle", "edgepanda card"),
        ({"args": {"angle": 3, "speed": -1}}, "limit", "args.speed", "edgepanda card"),
        ({"args": {"angle": 3, "speed": "fast"}}, "invalid_args", "args.speed", "edgepanda card"),
        ({"node": None}, "ambiguous", "device", "name the device, and the node"),
        ({"priority": 101}, "limit", "priority", "-100 to 100"),
        ({"id": "UPPER CASE"}, "invalid_task_id", "id", "8 to 40"),
        ({"limits": Limits(valid_for=-1)}, "limit", "limits.valid_for", "ten years"),
        ({"limits": Limits(max_attempts=0)}, "limit", "limits.max_attempts", "1 to 100"),
        ({"criteria": ["yes"] * 33}, "limit", "criteria, constraints", "32"),
        ({"goal": "g" * 30_000}, "oversized", "params", "say it shorter"),
        ({"capability": "wall.paint"}, "consent_required", "capability", "consent"),
    ],
)
async def test_what_cannot_be_submitted(asked: dict[str, Any], code: str, where: str, hint: str, place: Place) -> None:
    base: dict[str, Any] = {"device": "pan", "node": "desk", "action": "move", "args": {"angle": 3}}
    if "capability" in asked:
        base = {"args": {"angle": 3}} if asked["capability"].startswith("servo") else {}
    elif "action" in asked:
        base = {}
    async with undisturbed(place) as client:
        with pytest.raises(EdgePandaError) as caught:
            await client.submit(**{**base, **asked})
        assert (caught.value.code, caught.value.where) == (code, where)
        assert hint in f"{caught.value.message} {caught.value.cure}"
        assert is_clear(caught.value), caught.value.as_dict()
        await told(place, COORDINATOR, code, "refused task.submit of me")


async def test_an_ambiguous_device_lists_the_candidates(place: Place) -> None:
    async with undisturbed(place) as client:
        with pytest.raises(EdgePandaError) as caught:
            await client.submit("servo.move", {"angle": 3})
        assert caught.value.details == {"candidates": ["attic/pan", "desk/pan"]}


# tier 2, on every lane


async def test_nothing_irreversible_runs_on_any_lane(place: Place) -> None:
    async with undisturbed(place) as client:
        for action in (client.submit, client.run):
            with pytest.raises(EdgePandaError) as caught:
                await action("wall.paint")
            assert (caught.value.code, is_clear(caught.value)) == ("consent_required", True)
        with pytest.raises(EdgePandaError) as caught:
            await place.socket("desk").request("do", {"device": "wall.paint"})
        assert (caught.value.code, is_clear(caught.value)) == ("consent_required", True)
        done = await asyncio.to_thread(place.run, "do", "wall.paint", process="desk")
        assert (done.returncode, "[consent_required]" in done.stderr) == (4, True), done.stderr
        lease = await _forged_lease(place, client)
        with place.forger() as forger:
            forger.say(place.site.site_key, INBOX, msgspec.to_builtins(lease))
            declined = forger.wait_for(lambda s: s.body["type"] == "declined" and s.body["task"] == lease.task.id)
        assert "consent" in declined.body["message"]
        await told(place, "desk", "consent_required", "declined")
        assert "painted" not in (place.record.read_text() if place.record.exists() else "")


async def _forged_lease(place: Place, client: AsyncClient) -> messages.Lease:
    """What only somebody with the site's key could send: a lease of a tier 2 capability, made to look like tier 0."""
    status, digest = await place.socket("desk").request("status", {}), await client.digest()
    now = int(boottime() * 1000)
    return messages.Lease(
        id=new_id(),
        task=Task(id=new_id(), capability="wall.paint", tier=0, replay="unsafe"),
        attempt=1,
        epoch=status["epoch"],
        ledger=digest["head"]["ledger"],
        stamp=Stamp(incarnation=status["incarnation"], boot=boot_id(), ms=now),
        order=10**6,
        submitted_ms=now,
        until_ms=now + 20_000,
    )


# the message itself


def _another_signature(payload: bytes) -> bytes:
    envelope = json.loads(payload)
    envelope["sig"] = "A" * 86 + "=="
    return json.dumps(envelope).encode()


def _changed(payload: bytes) -> bytes:
    assert b"digest" in payload
    return payload.replace(b'"digest"', b'"digesT"')


BODY = b'{"type":"request","id":"%s","method":"digest"}'


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("no text", "malformed"),
        ("half of it", "malformed"),
        ("a list", "malformed"),
        ("a missing member", "malformed"),
        ("too large", "oversized"),
        ("a newer version", "newer_version"),
        ("another site", "wrong_site"),
        ("another topic", "bad_signature"),
        ("another signature", "bad_signature"),
        ("a changed body", "bad_signature"),
        ("a stranger", "unknown_key"),
        ("retained", "retained"),
    ],
)
async def test_a_message_that_cannot_be_taken_is_dropped_and_said(name: str, code: str, place: Place) -> None:
    """On the coordinator's topic, and on the node's."""
    async with undisturbed(place):
        with place.forger() as forger:
            for process, topic in ((COORDINATOR, REQUEST), ("desk", INBOX)):
                good = forger.sealed(place.site.operator, topic, BODY % new_id().encode())
                payload = {
                    "no text": b"\xff\xfe\x00",
                    "half of it": good[:-20],
                    "a list": b"[" * 2000,
                    "a missing member": b'{"v":1,"site":"home"}',
                    "too large": good[:-1] + b" " * 65536 + b"}",
                    "a newer version": good.replace(b'"v":1', b'"v":2'),
                    "another site": forger.sealed(place.site.operator, topic, BODY % b"x", site="cabin"),
                    "another topic": forger.sealed(place.site.operator, "v1/site/events", BODY % b"x"),
                    "another signature": _another_signature(good),
                    "a changed body": _changed(good),
                    "a stranger": forger.sealed(Identity.create(), topic, BODY % b"x"),
                    "retained": good,
                }[name]
                retain = name == "retained"
                if retain:  # it is there before somebody subscribes: who is there already gets it as a live one
                    forger.publish(topic, payload, retain=True)
                    place.site.stop(process)
                    place.site.start(process)
                else:
                    forger.publish(topic, payload)
                await told(place, process, code, topic if process == COORDINATOR else "inbox")
                if retain:
                    forger.publish(topic, b"", retain=True)
        if name == "retained":
            async with place.site.client() as client:
                await place.site.claiming(client, "desk", "attic")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"type":"request","id":"%s","method":3}', "malformed"),
        (b'{"type":"request","id":"%s"}', "malformed"),
        (b'{"type":"request","id":"%s","method":"digest","params":[]}', "malformed"),
        (b'{"type":"request","id":"%s","method":"digest","params":{"odd":1}}', "malformed"),
        (b'{"type":"request","id":"%s","method":"digest","params":{"n":%s}}' % (b"%s", b"9" * 400), "malformed"),
        (
            b'{"type":"request","id":"%s","method":"digest","params":{"n":%s}}' % (b"%s", b"[" * 40 + b"]" * 40),
            "malformed",
        ),
        (b'{"type":"request","id":"%s","method":"task.fly"}', "unsupported"),
        (b'{"type":"wish","id":"%s"}', "unsupported"),
        (b'{"type":"request","id":"%s","method":"task.cancel","params":{"id":"task-0001"}}', "counter_missing"),
    ],
)
async def test_a_request_that_cannot_be_read_is_answered(body: bytes, code: str, place: Place) -> None:
    async with undisturbed(place):
        request_id = new_id()
        with place.forger() as forger:
            forger.say(place.site.operator, REQUEST, body % request_id.encode())
            reply = forger.replies({request_id})[request_id]
        error = EdgePandaError.from_dict(reply["error"]["data"])
        assert (error.code, bool(error.where)) == (code, True)


# who says it


async def test_who_may_not_ask_is_told(place: Place) -> None:
    node = place.node_key("attic")
    peer = Peer(key=encode_key(Identity.create().public), name="intruder", role="node")
    async with undisturbed(place) as client:
        before = await client.peers()
        async with place.client_of(place.program) as program:
            for asked in (program.resolve("task-0001", "failed", "x"), program.review("task-0001", "accept")):
                with pytest.raises(EdgePandaError) as caught:
                    await asked
                assert (caught.value.code, is_clear(caught.value)) == ("not_allowed", True)
        async with place.client_of(node) as as_node:
            for asked in (as_node.add_peer(peer), as_node.remove_peer("desk"), as_node.digest()):
                with pytest.raises(EdgePandaError) as caught:
                    await asked
                assert (caught.value.code, is_clear(caught.value)) == ("not_allowed", True)
        assert await client.peers() == before
        await told(place, COORDINATOR, "not_allowed", "refused peers.add of attic")
        await told(place, COORDINATOR, "not_allowed", "refused task.resolve of program")


async def test_who_may_not_say_it_is_not_heard(place: Place) -> None:
    """An operator's lease, a client's report, one node's words in the place of another."""
    async with undisturbed(place) as client:
        lease = msgspec.structs.replace(
            await _forged_lease(place, client), task=Task(id=new_id(), capability="recorder.mark", device="rec")
        )
        finished = {
            "type": "finished",
            "id": new_id(),
            "task": "task-0001",
            "attempt": 1,
            "seq": 1,
            "result": {"outcome": "succeeded"},
        }
        with place.forger() as forger:
            forger.say(place.site.operator, INBOX, msgspec.to_builtins(lease))
            forger.say(place.program, REPORT, finished)
            forger.say(place.node_key("attic"), REPORT, finished)
        await told(place, "desk", "not_allowed", "me (operator) may not say 'lease'")
        await told(place, COORDINATOR, "not_allowed", "program (client) may not say 'finished'")
        await told(place, COORDINATOR, "not_allowed", "attic (node) may not say 'finished'")
        assert lease.task.id not in (place.record.read_text() if place.record.exists() else "")


async def test_a_key_has_one_name(place: Place) -> None:
    async with undisturbed(place) as client:
        again = Peer(key=encode_key(place.node_key("desk").public), name="desc", role="node")
        with pytest.raises(EdgePandaError) as caught:
            await client.add_peer(again)
        assert (caught.value.code, is_clear(caught.value)) == ("key_known", True)
        with pytest.raises(EdgePandaError) as caught:
            await client.add_peer(Peer(key=encode_key(Identity.create().public), name="desk", role="node"))
        assert (caught.value.code, bool(caught.value.cure)) == ("name_taken", True)


# changes that the table of states does not have


async def test_a_change_that_does_not_exist_is_refused(place: Place) -> None:
    async with undisturbed(place) as client:
        done = (await client.run(device="rec", node="desk", action="note")).id
        queued = (await client.submit("part.missing"))["id"]
        for asked in (
            client.resolve(done, "failed", "I looked"),
            client.review(done, "accept"),
            client.review(queued, "again"),
            client.resolve(queued, "retry", "I looked"),
            client.cancel(done),
        ):
            with pytest.raises(EdgePandaError) as caught:
                await asked
            assert (caught.value.code, is_clear(caught.value)) == ("invalid_state", True), caught.value.as_dict()
        for task, state in ((done, "succeeded"), (queued, "queued")):
            assert (await client.get(task)).state == state
        await client.cancel(queued)
        with pytest.raises(EdgePandaError) as caught:
            await client.cancel(queued)
        assert caught.value.code == "invalid_state"
        with pytest.raises(EdgePandaError) as caught:
            await client.cancel("no-such-task")
        assert (caught.value.code, is_clear(caught.value)) == ("unknown_task", True)
        for method in ("task.resolve", "task.review", "task.cancel"):
            await told(place, COORDINATOR, "invalid_state", f"refused {method} of me")


# the broker


async def test_a_port_in_use_is_told_and_whoever_has_it_goes_on(place: Place, tmp_path: Path) -> None:
    port = place.url.rpartition(":")[2]
    config = tmp_path / "edgepanda.toml"
    config.write_text(f'[broker]\nlisten = "127.0.0.1:{port}"\n[coordinator]\n')
    async with undisturbed(place):
        for command in (("broker", "run"), ("up",)):
            done = await asyncio.to_thread(run, command, config)
            last = done.stderr.splitlines()[-1]
            assert (done.returncode, last.endswith("[port_in_use]")) == (1, True), done.stderr
            assert f"127.0.0.1:{port} already (broker.listen); " in last
            assert "Traceback" not in done.stderr + done.stdout


async def test_a_dead_broker_ends_nobody(tmp_path: Path) -> None:
    """Each process says it once and goes on; a command says it and ends; once the broker is there, all is well."""
    record = tmp_path / "record"
    broker = Mosquitto().start()
    broker.kill()
    try:
        with Site(tmp_path / "site", broker.url, {"desk": DESK.replace("{record}", str(record))}) as site:
            place = Place(site, broker.url, record, tmp_path / "operator.key", Identity.create())
            for process in (COORDINATOR, "desk"):
                await told(place, process, "broker_unreachable", broker.url)
            with pytest.raises(EdgePandaError) as caught:
                async with site.client():
                    pass
            assert (caught.value.code, is_clear(caught.value)) == ("broker_unreachable", True)
            await _eventually(lambda: _directly(place))
            broker.restart()
            async with site.client() as client:
                await site.claiming(client, "desk")
                await a_good_task(client)
            assert "Traceback" not in site.log("desk") + site.log(COORDINATOR)
            for process in (COORDINATOR, "desk"):
                await told(place, process, "broker_unreachable")
    finally:
        broker.__exit__()


# files


@contextlib.contextmanager
def stopped(place: Place, process: str) -> Iterator[Path]:
    """Its state folder; whatever is done there, the process runs afterwards."""
    place.site.stop(process)
    try:
        yield place.site.state(process)
    finally:
        place.site.start(process)


@pytest.mark.parametrize(("process", "name"), [(COORDINATOR, "ledger.db"), ("desk", "journal.db")])
@pytest.mark.parametrize("how", ["overwritten", "cut", "its first page"])
async def test_a_damaged_ledger_or_journal_is_told_and_not_touched(
    process: str, name: str, how: str, place: Place
) -> None:
    async with undisturbed(place) as client:
        with stopped(place, process) as state:
            path = state / name
            good = path.read_bytes()
            damaged = {
                "overwritten": b"power cut " * 4096,
                "cut": good[: len(good) // 2 + 100],
                "its first page": os.urandom(4096) + good[4096:],
            }[how]
            path.write_bytes(damaged)
            done = await asyncio.to_thread(
                place.run, "coordinator" if process == COORDINATOR else "node", process=process
            )
            assert path.read_bytes() == damaged
            path.write_bytes(good)  # as the cure says
        last = done.stderr.splitlines()[-1]
        assert (done.returncode, last.endswith("[storage_damaged]")) == (1, True), done.stderr
        assert str(path) in last
        assert "put a copy from before the damage in its place" in last
        assert "Traceback" not in done.stderr
        await place.site.claiming(client, "desk")


async def test_a_damaged_list_of_peers_gives_way_to_the_generation_before_it(place: Place) -> None:
    async with undisturbed(place) as client:
        with stopped(place, COORDINATOR) as state:
            path = state / "peers.json"
            good = path.read_bytes()
            path.write_bytes(good[: len(good) // 2])
        await told(place, COORDINATOR, "document_damaged", str(path), "the generation before it is used")
        await place.site.claiming(client, "desk")
        await a_good_task(client)
        again = Peer(key=encode_key(place.program.public), name="program", role="client")
        await client.add_peer(again)  # the last change was lost, and is made again
        assert {peer["name"] for peer in (await client.peers())["peers"]} >= {"desk", "attic", "me", "program"}
        assert json.loads(path.read_bytes())["tables"]


async def test_a_list_of_peers_without_a_whole_generation_is_told_and_not_touched(place: Place) -> None:
    async with undisturbed(place) as client:
        with stopped(place, COORDINATOR) as state:
            files = [state / "peers.json", state / "peers.json.previous"]
            good = [path.read_bytes() for path in files]
            for path in files:
                path.write_bytes(b"{")
            done = await asyncio.to_thread(place.run, "coordinator")
            assert [path.read_bytes() for path in files] == [b"{", b"{"]
            for path, content in zip(files, good, strict=True):
                path.write_bytes(content)
        last = done.stderr.splitlines()[-1]
        assert (done.returncode, last.endswith("[document_damaged]")) == (1, True), done.stderr
        assert "put a good copy in its place" in last
        await place.site.claiming(client, "desk")


async def test_a_folder_that_may_not_be_written_is_told(place: Place) -> None:
    async with undisturbed(place) as client:
        with stopped(place, COORDINATOR) as state:
            state.chmod(0o500)
            try:
                done = await asyncio.to_thread(place.run, "coordinator", process=COORDINATOR)
            finally:
                state.chmod(0o700)
        last = done.stderr.splitlines()[-1]
        assert (done.returncode, last.endswith("[storage_readonly]")) == (1, True), done.stderr
        assert str(state) in last
        assert "make the file and its folder writable for this user" in last
        assert "Traceback" not in done.stderr
        await place.site.claiming(client, "desk")


@contextlib.contextmanager
def in_our_hands(place: Place, process: str) -> Iterator[Running]:
    """The process runs with its log in a pipe, so that its disk can refuse everything and the log goes on."""
    with stopped(place, process):
        running = Running(
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "edgepanda", "coordinator" if process == COORDINATOR else "node"),
                    *("--config", str(place.site.loaded[process].path)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        try:
            yield running
        finally:
            code = running.end()
        assert code == 0, running.text
        assert "Traceback" not in running.text


@contextlib.contextmanager
def no_room(pid: int) -> Iterator[None]:
    """No file of this process may be written: every write is refused by the kernel (EFBIG)."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_coordinator_whose_disk_refuses_answers_and_goes_on_reading(place: Place) -> None:
    async with undisturbed(place) as client:
        with in_our_hands(place, COORDINATOR) as running:
            await place.site.claiming(client, "desk")
            done = await client.run(device="rec", node="desk", action="note")
            with no_room(running.process.pid):
                for _ in range(3):
                    with pytest.raises(EdgePandaError) as caught:
                        await client.submit("part.missing")
                    assert (caught.value.code, is_clear(caught.value)) == ("storage_unwritable", True)
                    assert caught.value.where == str(place.site.state(COORDINATOR) / "ledger.db")
                assert (await client.get(done.id)).state == "succeeded"
                assert (await client.list(limit=1))["tasks"]
                assert (await client.digest())["problem"]["code"] == "storage_unwritable"
                assert {node["name"] for node in await client.nodes()} == {"desk", "attic"}
                assert running.process.poll() is None
            assert len(re.findall(r"the ledger cannot be written: .*\[storage_unwritable\]", running.text)) == 1
            await _eventually(lambda: a_good_task(client))
            assert (await client.digest())["problem"] is None
            assert (await client.verify())["ok"]
        await place.site.claiming(client, "desk")


async def test_a_node_whose_disk_refuses_says_so_and_goes_on(place: Place) -> None:
    async with undisturbed(place) as client:
        with in_our_hands(place, "desk") as running:
            await place.site.claiming(client, "desk")
            await _eventually(lambda: _all_probed(place))
            node = place.socket("desk")
            before = place.record.read_text() if place.record.exists() else ""
            with no_room(running.process.pid):
                unsafe = new_id()
                answer = await node.request("do", {"device": "rec", "action": "mark", "id": unsafe})
                assert (answer["result"]["outcome"], answer["result"]["code"]) == ("failed", "storage_unwritable")
                assert str(place.site.state("desk") / "journal.db") in answer["result"]["message"]
                await _eventually(lambda: _says(node, "storage_unwritable"))
                assert (await node.request("status", {}))["card"]["devices"]["pan"]["state"] == "ready"
                assert (await client.run(device="pan", node="desk", action="read")).state == "succeeded"
                assert running.process.poll() is None
            assert unsafe not in place.record.read_text().removeprefix(before)
            assert len(re.findall(r"\[storage_unwritable\]", running.text)) >= 1
            await _eventually(lambda: a_good_task(client))
            result = await node.request("do", {"device": "rec", "action": "mark"})
            assert result["result"]["outcome"] == "succeeded"
            await _eventually(lambda: _says(node, None))
        await place.site.claiming(client, "desk")


async def _says(node: LocalNode, code: str | None) -> None:
    problem = (await node.request("status", {}))["journal_problem"]
    if (problem or {}).get("code") != code:
        raise EdgePandaError(f"the status says {problem}", code="busy", where="here")


async def _directly(place: Place) -> None:
    answer = await place.socket("desk").request("do", {"device": "rec", "action": "note"})
    assert answer["result"]["outcome"] == "succeeded"


async def _eventually(action: Callable[[], Awaitable[None]]) -> None:
    """The disk is looked at again every now and then."""
    for _ in range(20):
        with contextlib.suppress(EdgePandaError):
            await action()
            return
        await asyncio.sleep(0.2)
    await action()


# whatever an operator's program may send

WORDS = st.sampled_from(["pan", "rec", "move", "note", "servo.move", "recorder.note", "wall.paint", "part.missing"])
IDS = st.sampled_from(["fuzzed-0001", "fuzzed-0002", "fuzzed-0003"])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)  # JSON has no others
SMALL = st.none() | st.booleans() | st.integers() | NUMBERS | st.text(max_size=20) | WORDS | IDS
VALUES = st.recursive(
    SMALL, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8) | WORDS, v, max_size=3)
)
FIELDS = sorted(
    {name for kind, _, _ in METHODS.values() for name in kind.__struct_fields__} - {"timeout", "name", "peer"}
)
PARAMS = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5)
METHOD_NAMES = st.sampled_from(sorted(set(METHODS) - {"ledger.verify", "task.wait"}))


def _likely(method: str) -> st.SearchStrategy[dict[str, Any]]:
    """Parameters of the right names, most of them of the right types, so that many pass the first check."""
    right = {
        "id": IDS,
        "capability": st.none() | WORDS,
        "device": st.none() | WORDS,
        "action": st.none() | WORDS,
        "args": st.dictionaries(st.sampled_from(["angle", "speed", "text"]), SMALL, max_size=2),
        "outcome": st.sampled_from(["succeeded", "failed", "retry"]),
        "verdict": st.sampled_from(["accept", "again", "reject"]),
        "because": st.text(max_size=10),
        "limits": st.fixed_dictionaries({"valid_for": NUMBERS | st.integers()}),
        "name": st.just("nobody"),
        "limit": st.integers(),
        "after": st.integers(),
        "before": st.none() | st.integers(),
        "states": st.lists(st.sampled_from(["queued", "odd", ""]), max_size=2),
        "priority": st.integers(),
    }
    names = [name for name in METHODS[method][0].__struct_fields__ if name in right]
    return st.fixed_dictionaries({}, optional={name: right[name] for name in names})


REQUESTS = METHOD_NAMES.flatmap(
    lambda method: st.fixed_dictionaries(
        {"method": st.just(method), "params": _likely(method) | PARAMS},
        optional={"counter": st.integers(1, 10**6) | VALUES, "jsonrpc": st.just("2.0") | VALUES, "odd": VALUES},
    )
) | st.fixed_dictionaries({"method": VALUES}, optional={"params": VALUES, "counter": VALUES})


@pytest.fixture
def forger(place: Place) -> Iterator[Forger]:
    with place.forger() as forger:
        yield forger


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(bodies=st.lists(REQUESTS, min_size=1, max_size=10))
def test_every_request_is_answered_with_a_result_or_a_typed_error(
    bodies: list[dict[str, Any]], place: Place, forger: Forger
) -> None:
    requests = {new_id(): body for body in bodies}
    forger.say(
        place.site.operator, REQUEST, *({**body, "type": "request", "id": key} for key, body in requests.items())
    )
    for key, reply in forger.replies(set(requests)).items():
        assert ("result" in reply) != ("error" in reply) or reply.get("result", 0) is None, (requests[key], reply)
        if "error" in reply:
            error = EdgePandaError.from_dict(reply["error"]["data"])
            assert error.code not in ("", "internal"), (requests[key], reply)
            assert error.message, (requests[key], reply)
            assert error.where, (requests[key], reply)


async def test_after_all_this_the_ledger_holds_and_work_goes_on(place: Place) -> None:
    async with undisturbed(place) as client:
        found = await client.verify()
        assert found["ok"], found
        assert {name for name, node in ((n["name"], n) for n in await client.nodes()) if node["claiming"]} == {
            "desk",
            "attic",
        }
