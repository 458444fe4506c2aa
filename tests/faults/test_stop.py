"""Emergency stop: anyone stops, an operator releases; over restarts, absences, lost links and brokers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from edgepanda.cli.local import LocalNode
from edgepanda.client import AsyncClient
from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity
from edgepanda.trust.release import sign_release
from tests.rig.brokers import Embedded, Mosquitto
from tests.rig.site import COORDINATOR, Site

NODE = """
[node]
name = "{name}"
beat = 0.5
drain = 0.5

[devices.pan]
driver = "servo"
pin = {pin}
simulate = true
start = 0
speed = 10

[capabilities."job.long"]
argv = ["sh", "-c", "echo $$ > {pid}; exec sleep 30"]
tier = 1
replay = "unsafe"
"""


both = pytest.mark.parametrize("site", ["mosquitto", "embedded"], indirect=True)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    nodes = {name: NODE.format(name=name, pin=5, pid=tmp_path / f"{name}.pid") for name in ("desk", "shed")}
    with contextlib.ExitStack() as stack:
        embedded = getattr(request, "param", "mosquitto") == "embedded"
        broker = stack.enter_context(Embedded() if embedded else Mosquitto())
        made = stack.enter_context(Site(tmp_path, broker.url, nodes))
        made.broker = broker  # type: ignore[attr-defined]
        yield made


@asynccontextmanager
async def operator(site: Site, *nodes: str) -> AsyncIterator[AsyncClient]:
    async with site.client() as client:
        await site.claiming(client, *nodes)
        for name in nodes:
            await until(lambda name=name: _has_its_servo(client, name))
        yield client


async def _has_its_servo(client: AsyncClient, node: str) -> bool:
    card = (await client.node(node)).get("card") or {}
    return bool(card.get("devices", {}).get("pan", {}).get("state") == "ready")


def local(site: Site, node: str) -> LocalNode:
    return LocalNode(site.state(node) / "run/node.sock")


async def until(holds: Callable[[], Any], seconds: float = 20) -> None:
    """Whatever holds, at some moment; errors of the site count as no."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                if await holds():
                    return
            except EdgePandaError:
                pass
            await asyncio.sleep(0.02)


def stopped(site: Site, node: str, count: int | None = None) -> Callable[[], Any]:
    async def look() -> bool:
        stops = (await local(site, node).request("status", {}, within=5))["stops"]
        return bool(stops) if count is None else len(stops) == count

    return look


async def in_force(client: AsyncClient) -> dict[str, list[str]]:
    """Key id and ids of all stops that are in force anywhere."""
    found = await client.stops()
    places = [found["site"], *found["nodes"].values()]
    return {place["kid"]: [stop["id"] for stop in place["stops"]] for place in places if place["stops"]}


def publish(site: Site, payload: bytes, *, retain: bool = False) -> None:
    """As any program of the network would."""
    loaded = site.loaded[COORDINATOR]
    address = loaded.broker_address()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "")
    client.connect(address.host, address.port)
    client.loop_start()
    client.publish(f"{loaded.config.site.base}/v1/site/stop", payload, 1, retain).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()


@both
async def test_a_move_and_a_command_end_at_once_and_nothing_acts_until_all_is_released(site: Site) -> None:
    async with operator(site, "desk", "shed") as client:
        move = await client.submit("servo.move", {"angle": 90}, device="pan", node="desk")
        job = await client.submit("job.long", node="shed")
        await until(lambda: _state(client, move["id"], "running"))
        await until(lambda: _acts(site.folder / "shed.pid"))
        await client.stop("first")
        ended = await client.wait(move["id"], timeout=10)
        assert (ended.state, ended.code) == ("failed", "stopped")
        cut = await client.wait(job["id"], timeout=10)  # uncertain, if its host was too slow and had to be killed
        assert (cut.state, cut.code) in (("failed", "stopped"), ("uncertain", "lost"))
        assert not await _acts(site.folder / "shed.pid")
        await client.stop("second")
        await until(stopped(site, "desk", 2))
        with pytest.raises(EdgePandaError, match="emergency stop"):
            await local(site, "desk").request("do", {"device": "pan", "action": "move", "args": {"angle": 1}})
        read = await client.run("servo.read", device="pan", node="desk")
        assert (read.state, read.result.value["attached"]) == ("succeeded", False)  # type: ignore[union-attr, index]
        all_of_it = await in_force(client)
        await client.release({kid: ids[:1] for kid, ids in all_of_it.items()})
        await until(stopped(site, "desk", 1))
        with pytest.raises(EdgePandaError, match="emergency stop"):
            await local(site, "desk").request("do", {"device": "pan", "action": "move", "args": {"angle": 1}})
        await client.release(await in_force(client), because="it is safe again")
        await until(stopped(site, "shed", 0))
        assert (await client.run("servo.move", {"angle": 1}, device="pan", node="desk")).state == "succeeded"
        events = [event["kind"] for event in (await client.events(limit=100))["events"]]
        assert (events.count("stopped"), events.count("stop_released")) == (2, 2)


async def _acts(pid: Path) -> bool:
    def alive() -> bool:
        number = pid.read_text().strip() if pid.exists() else ""
        return bool(number) and Path(f"/proc/{number}").exists()

    return await asyncio.to_thread(alive)


async def _state(client: AsyncClient, task: str, state: str) -> bool:
    return (await client.get(task)).state == state


PAYLOADS = [b"help", b"\xff\xfe", b"{", b'{"v": 1, "body": []}', b"x" * 100_000]


async def test_a_program_without_a_key_stops_everything_with_anything(site: Site) -> None:
    async with operator(site, "desk", "shed") as client:
        for payload in PAYLOADS:
            await asyncio.to_thread(publish, site, payload)
            await until(stopped(site, "desk"))
            await until(stopped(site, "shed"))
            await until(lambda: _site_has_it(client))
            await until(lambda: _released(site, client))


async def _site_has_it(client: AsyncClient) -> bool:
    return bool((await client.stops())["site"]["stops"])


async def test_it_is_in_force_over_restarts_of_all_and_for_who_was_away(site: Site) -> None:
    async with operator(site, "desk", "shed") as client:
        site.kill("shed")
        await client.stop("while one was away")
        await until(stopped(site, "desk"))
        site.kill("desk")
        site.kill(COORDINATOR)
        for process in (COORDINATOR, "desk", "shed"):
            site.start(process)
        await until(stopped(site, "desk"))
        await until(stopped(site, "shed"))
        await until(lambda: _site_has_it(client))
        await until(lambda: _released(site, client))
        for name in ("desk", "shed"):
            site.kill(name)
            site.start(name)
            await until(stopped(site, name, 0))
        await site.claiming(client, "desk", "shed")
        assert (await client.run("servo.move", {"angle": 1}, device="pan", node="shed")).state == "succeeded"


async def _released(site: Site, client: AsyncClient) -> bool:
    wanted = await in_force(client)
    if wanted:
        await client.release(wanted)
    return not wanted and await stopped(site, "desk", 0)() and await stopped(site, "shed", 0)()


@both
async def test_a_forgotten_broker_does_not_forget_the_stop(site: Site) -> None:
    async with operator(site, "desk", "shed") as client:
        await client.stop("before the broker lost everything")
        await until(stopped(site, "shed"))
        site.kill("shed")
        site.broker.kill()  # type: ignore[attr-defined]
        site.broker.restart()  # type: ignore[attr-defined]
        (site.state("shed") / "stops.json").unlink()
        (site.state("shed") / "stops.json.previous").unlink(missing_ok=True)
        site.start("shed")
        await until(stopped(site, "shed"))


async def test_without_broker_the_socket_stops_and_an_operator_releases(site: Site) -> None:
    async with operator(site, "desk", "shed"):
        pass
    site.broker.kill()  # type: ignore[attr-defined]
    desk = local(site, "desk")
    await desk.request("stop", {"reason": "by hand"}, within=5)
    status = await desk.request("status", {}, within=5)
    ids = [stop["id"] for stop in status["stops"]]
    with pytest.raises(EdgePandaError, match="emergency stop"):
        await desk.request("do", {"device": "pan", "action": "move", "args": {"angle": 1}})
    stranger = Identity.create()
    for key in (stranger, site.site_key):
        proof = sign_release(key, "home", status["key"], ids)
        with pytest.raises(EdgePandaError, match="operator"):
            await desk.request("release", {"ids": ids, "by": key.kid, "proof": proof}, within=5)
    other = sign_release(site.operator, "home", "another", ids)
    with pytest.raises(EdgePandaError, match="operator"):
        await desk.request("release", {"ids": ids, "by": site.operator.kid, "proof": other}, within=5)
    proof = sign_release(site.operator, "home", status["key"], ids)
    await desk.request("release", {"ids": ids, "by": site.operator.kid, "proof": proof}, within=5)
    done = await desk.request("do", {"device": "pan", "action": "move", "args": {"angle": 1}})
    assert done["result"]["outcome"] == "succeeded"
    await desk.request("release", {"ids": ids, "by": site.operator.kid, "proof": proof}, within=5)  # again: nothing
    await desk.request("stop", {}, within=5)
    await desk.request("release", {"ids": ids, "by": site.operator.kid, "proof": proof}, within=5)
    assert await stopped(site, "desk", 1)()


async def test_a_record_of_stops_that_cannot_be_read_is_a_stop(site: Site) -> None:
    async with operator(site, "desk", "shed") as client:
        await client.stop("")
        await until(stopped(site, "desk"))
        await client.release(await in_force(client))
        await until(stopped(site, "desk", 0))
        site.stop("desk")
        for file in site.state("desk").glob("stops.json*"):
            file.write_bytes(b"\x00" * 40)
        site.start("desk")
        await until(stopped(site, "desk", 1))


async def test_a_device_whose_commander_is_gone_goes_to_its_safe_state(tmp_path: Path) -> None:
    nodes = {"desk": NODE.format(name="desk", pin=5, pid=tmp_path / "pid").replace("speed = 10", "link_loss = 1")}
    with Mosquitto() as broker, Site(tmp_path, broker.url, nodes) as site:
        async with operator(site, "desk") as client:
            assert (await client.run("servo.move", {"angle": 5}, device="pan")).state == "succeeded"
            broker.kill()
            await until(_attached(site, False))
            desk = local(site, "desk")
            await desk.request("do", {"device": "pan", "action": "move", "args": {"angle": 6}}, within=10)
            for _ in range(3):  # whoever stands beside it needs no broker
                await asyncio.sleep(1)
                assert await _attached(site, True)()


def _attached(site: Site, wanted: bool) -> Callable[[], Any]:
    async def look() -> bool:
        done = await local(site, "desk").request("do", {"device": "pan", "action": "read"}, within=5)
        return bool(done["result"]["value"]["attached"] is wanted)

    return look
