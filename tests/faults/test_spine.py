"""What the spine must survive: killed nodes, coordinator and broker; tampered ledgers; a replayed day."""

from __future__ import annotations

import asyncio
import collections
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from edgepanda.client import AsyncClient
from edgepanda.coordinator.ledger import Ledger
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import load_config
from edgepanda.model.states import ENDED, State
from edgepanda.model.task import Limits
from edgepanda.wire.requests import TaskView
from tests.rig.brokers import Embedded, Mosquitto, Process
from tests.rig.site import COORDINATOR, RECORDER, Site, faked_time
from tests.rig.wiretap import Wiretap, say_again

JOB = Path(__file__).parents[1] / "rig" / "job.sh"
TTL = 3.0


def command_node(record: Path, name: str, replay: str, *, slots: int = 8, seconds: float = 0.0) -> str:
    return f"""
[node]
name = "{name}"
slots = {slots}
beat = 0.5
drain = 1.0

[capabilities."job.{replay}"]
argv = ["{JOB}", "{record}", "{seconds}"]
tier = 1
replay = "{replay}"
"""


def recorder_node(record: Path, name: str = "desk") -> str:
    return f"""
[node]
name = "{name}"
slots = 32
beat = 0.5
drain = 1.0

[devices.rec]
driver = "{RECORDER}"
file = "{record}"
"""


def begun(record: Path) -> collections.Counter[str]:
    """How often each task was begun, by the drivers' own record."""
    lines = record.read_text().splitlines() if record.exists() else []
    return collections.Counter(line.split()[0] for line in lines)


async def until(condition: Callable[[], bool], within: float = 20.0) -> None:
    """Look every now and then at what other processes do to files."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 the other side is a process
            await asyncio.sleep(0.02)


async def ended(client: AsyncClient, ids: Iterable[str], within: float = 60.0) -> dict[str, TaskView]:
    """Each of these tasks, once it has ended or needs a person."""
    async with asyncio.timeout(within):
        return {task_id: await _ended(client, task_id) for task_id in ids}


async def _ended(client: AsyncClient, task_id: str) -> TaskView:
    while True:
        try:
            view = await client.wait(task_id)
        except EdgePandaError as error:
            if error.code not in ("no_answer", "broker_unreachable"):
                raise
        else:
            return view


@pytest.mark.parametrize(("broker", "count"), [(Mosquitto, 200), (Embedded, 40)])
async def test_two_nodes_share_tasks_and_each_is_done_once(tmp_path: Path, broker: type[Process], count: int) -> None:
    record = tmp_path / "record"
    nodes = {name: command_node(record, name, "unsafe") for name in ("one", "two")}
    with broker() as at, Site(tmp_path / "site", at.url, nodes) as site:
        async with site.client() as client:
            await site.claiming(client, "one", "two")
            tasks = await asyncio.gather(*(client.submit("job.unsafe") for _ in range(count)))
            views = await ended(client, [t["id"] for t in tasks], within=90)
            assert {v.state for v in views.values()} == {"succeeded"}
            assert {v.node for v in views.values()} == {"one", "two"}
            assert begun(record) == collections.Counter(dict.fromkeys(views, 1))
            assert (await client.verify())["ok"]


async def test_a_killed_node_loses_nothing_and_what_it_had_begun_is_uncertain(tmp_path: Path) -> None:
    record = tmp_path / "record"
    nodes = {name: recorder_node(record, name) for name in ("one", "two")}
    with Mosquitto() as at, Site(tmp_path / "site", at.url, nodes, lease_ttl=TTL) as site:
        async with site.client() as client:
            await site.claiming(client, "one", "two")
            limits = Limits(valid_for=60)

            async def on(node: str, action: str, seconds: float) -> str:
                answer = await client.submit(
                    device="rec", node=node, action=action, args={"seconds": seconds}, limits=limits
                )
                return str(answer["id"])

            marked = await on("one", "mark", 30)
            await until(lambda: marked in begun(record))
            waiting = [await on("one", "mark", 0) for _ in range(10)]
            elsewhere = [await on("two", "mark", 0) for _ in range(10)]
            site.kill("one")
            views = await ended(client, [marked, *elsewhere])
            assert views.pop(marked).state == "uncertain"
            assert {v.state for v in views.values()} == {"succeeded"}
            site.start("one")
            views = await ended(client, waiting)
            assert {v.state for v in views.values()} == {"succeeded"}
            assert (await client.get(marked)).state == "uncertain"
            assert begun(record) == collections.Counter(dict.fromkeys([marked, *waiting, *elsewhere], 1))
            await client.resolve(marked, "failed", "the test killed the node in the middle")
            assert (await client.get(marked)).state == "failed"
            assert (await client.verify())["ok"]


async def test_a_command_outlives_its_node_and_its_end_is_told_afterwards(tmp_path: Path) -> None:
    record = tmp_path / "record"
    nodes = {"one": command_node(record, "one", "unsafe", seconds=2.0)}
    with Mosquitto() as at, Site(tmp_path / "site", at.url, nodes) as site:
        async with site.client() as client:
            await site.claiming(client, "one")
            task = (await client.submit("job.unsafe"))["id"]
            await until(lambda: task in begun(record))
            site.kill("one")
            site.start("one")
            view = await _ended(client, task)
            assert view.state == "succeeded", view
            assert begun(record)[task] == 1


@pytest.mark.parametrize("victim", ["coordinator", "broker"])
@pytest.mark.parametrize("broker", [Mosquitto, Embedded])
async def test_killing_coordinator_or_broker_under_100_tasks(
    tmp_path: Path, broker: type[Process], victim: str
) -> None:
    record = tmp_path / "record"
    with broker() as at, Site(tmp_path / "site", at.url, {"desk": recorder_node(record)}, lease_ttl=TTL) as site:
        async with site.client() as client:
            await site.claiming(client, "desk")
            limits = Limits(valid_for=120)
            ids = []
            for number in range(100):
                action = "mark" if number % 2 else "note"
                answer = await client.submit(device="rec", action=action, args={"seconds": 0.02}, limits=limits)
                ids.append(answer["id"])
            await until(lambda: len(begun(record)) >= 20)
            if victim == "coordinator":
                site.kill(COORDINATOR)
                site.start(COORDINATOR)
            else:
                at.kill()
                at.restart()
            views = await ended(client, ids)
            states = collections.Counter(v.state for v in views.values())
            assert set(states) <= {*ENDED, State.UNCERTAIN}
            counted = begun(record)
            for number, task_id in enumerate(ids):
                if number % 2:
                    assert counted[task_id] <= 1, "an unsafe action has begun twice"
                if views[task_id].state == "succeeded":
                    assert counted[task_id] >= 1, "a success of what never began"
            assert states["succeeded"] >= 90, states
            found = await client.verify()
            assert found["ok"], found


async def _some_tasks(site: Site, count: int) -> None:
    async with site.client() as client:
        await site.claiming(client, "desk")
        for number in range(count):
            view = await client.run(device="rec", action="mark" if number % 2 else "note")
            assert view.state == "succeeded"
        assert (await client.verify())["ok"]


def _tampered(path: Path, how: str) -> None:
    with sqlite3.connect(path) as connection:
        if how == "changed":
            connection.execute("UPDATE payloads SET body = replace(body, 'succeeded', 'failed') WHERE seq = 5")
        elif how == "reordered":
            connection.execute("UPDATE chain SET seq = -3 WHERE seq = 3")
            connection.execute("UPDATE chain SET seq = 3 WHERE seq = 4")
            connection.execute("UPDATE chain SET seq = 4 WHERE seq = -3")
        else:
            last = connection.execute("SELECT max(seq) FROM chain").fetchone()[0]
            connection.execute("DELETE FROM chain WHERE seq > ?", (last - 4,))
            connection.execute("DELETE FROM payloads WHERE seq > ?", (last - 4,))


@pytest.mark.parametrize("how", ["changed", "reordered", "shortened"])
async def test_a_tampered_ledger_is_found(tmp_path: Path, how: str) -> None:
    record = tmp_path / "record"
    with Mosquitto() as at, Site(tmp_path / "site", at.url, {"desk": recorder_node(record)}) as site:
        await _some_tasks(site, 10)
        site.stop(COORDINATOR)
        _tampered(site.state(COORDINATOR) / "ledger.db", how)
        site.start(COORDINATOR)
        async with site.client() as client:
            await until(lambda: "serving the site" in site.log(COORDINATOR).rpartition("connected to")[2])
            found = await client.verify()
            assert not found["ok"], found
            assert found["problems"], found


def _height(site: Site, copy: Path) -> int:
    """Entries of the ledger by its file, epochs not counted: each start of a coordinator adds one of those."""
    copy.mkdir()
    for file in site.state(COORDINATOR).glob("ledger.db*"):
        shutil.copy(file, copy)
    ledger = Ledger.open(copy / "ledger.db", writable=False)
    try:
        events = ledger.events(limit=100_000)
    finally:
        ledger.close()
    return sum(event.kind != "epoch" for event in events)


async def test_a_replayed_day_changes_nothing(tmp_path: Path) -> None:
    """At once; after both sides have restarted; and with all clocks an hour on."""
    record = tmp_path / "record"
    with Mosquitto() as at, Site(tmp_path / "site", at.url, {"desk": recorder_node(record)}) as site:
        with Wiretap(at.url) as day:
            await _some_tasks(site, 20)
            async with site.client() as client:
                task = await client.submit(device="rec", action="mark", args={"seconds": 30})
                await until(lambda: task["id"] in begun(record))
                await client.cancel(task["id"], "enough")
                assert (await client.wait(task["id"])).state == "cancelled"
                await asyncio.sleep(1.0)  # a beat or two belong to the day
        before, height = begun(record), _height(site, tmp_path / "copy0")
        for turn, restart in enumerate(("no", "yes", "an hour later")):
            if restart != "no":
                for process in ("desk", COORDINATOR):
                    site.stop(process)
                site.environment = faked_time("+1h") if restart == "an hour later" else {}
                for process in (COORDINATOR, "desk"):
                    site.start(process)
            async with site.client() as client:
                await site.claiming(client, "desk")
                assert say_again(at.url, day.heard) > 100
                view = await client.run(device="rec", action="note")  # whatever was replayed is digested before this
                assert view.state == "succeeded"
                before[view.id] += 1
                height += 4 if _has_started(await client.events(view.id)) else 3
                assert (await client.verify())["ok"]
            assert begun(record) == before, restart
            assert _height(site, tmp_path / f"copy{turn + 1}") == height, restart


def _has_started(events: dict[str, list[dict[str, object]]]) -> bool:
    return any(event["kind"] == "started" for event in events["events"])


async def test_a_second_coordinator_gives_way(tmp_path: Path) -> None:
    """Even one with the site's key and a copy of its ledger."""
    record = tmp_path / "record"
    with Mosquitto() as at, Site(tmp_path / "site", at.url, {"desk": recorder_node(record)}) as site:
        await _some_tasks(site, 2)
        copy = tmp_path / "site" / "copy"
        shutil.copytree(tmp_path / "site" / COORDINATOR, copy)
        (copy / "log").write_text("")
        site.loaded["copy"] = load_config(copy / "edgepanda.toml")
        site.start("copy", command="coordinator")
        await until(lambda: site.ended("copy"))
        assert "[second_coordinator]" in site.log("copy")
        await _some_tasks(site, 2)
