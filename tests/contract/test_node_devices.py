"""Devices that come, change and go while their node runs, with real driver hosts."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edgepanda.drivers.contract import CallResult, DriverError
from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Card
from edgepanda.model.config import Node, load_text
from edgepanda.node import devices as devices_module
from edgepanda.node.arbiter import Arbiter
from edgepanda.node.breaker import FAILURES
from edgepanda.node.configured import Configured, configured
from edgepanda.node.devices import Devices
from edgepanda.node.memory import Memory
from edgepanda.node.read_back import read_back

RECORDER = Path(__file__).parents[1] / "rig/recorder.py"


class Bench:
    """A node's devices, and its lanes."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.arbiter = Arbiter()
        self.memory = Memory(folder / "positions.json")
        self.changed = asyncio.Event()
        self.devices = Devices(
            self.things(text),
            self.memory,
            folder / "run",
            free=lambda name: self.arbiter.lane(name).free(),
            on_change=self.changed.set,
            on_output=lambda *_: None,
            on_event=lambda *_: None,
        )

    def things(self, text: str) -> dict[str, Configured]:
        return configured(load_text(f"[node]\n{text}", self.folder / "edgepanda.toml"))

    async def become(self, text: str, within: float = 20.0) -> dict[str, str]:
        return dict(await self.devices.become(self.things(text), within=within))

    def states(self) -> dict[str, str]:
        card: Card = self.devices.card(Node(), node="n", revision=1, incarnation=1)
        return {name: thing.state for name, thing in {**card.devices, **card.capabilities}.items()}

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def call(self, device: str, action: str, **args: Any) -> CallResult:
        """As an attempt does it: in its turn."""
        turn = await self.arbiter.lane(device).take("queue", lambda: None)
        try:
            return await self.devices.call(device, action, args, task="t", attempt=1, timeout=20)
        finally:
            self.arbiter.lane(device).give_back(turn)


@asynccontextmanager
async def bench(folder: Path, text: str) -> AsyncIterator[Bench]:
    made = Bench(folder, text)
    await made.devices.start()
    try:
        yield made
    finally:
        await made.devices.close()
        made.memory.close()


def servo(name: str, **more: object) -> str:
    keys = {"driver": '"servo"', "pin": 18, "simulate": "true", "start": 0, **more}
    return f"[devices.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())


def recorder(name: str, file: Path | str = "") -> str:
    return f'[devices.{name}]\ndriver = "{RECORDER}"\nfile = "{file}"\n'


async def test_a_device_comes_changes_and_goes(tmp_path: Path) -> None:
    async with bench(tmp_path, servo("pan")) as node:
        first = next(iter(node.devices._hosts.values()))
        both = servo("pan", speed=50) + servo("tilt", pin=19)
        assert await node.become(both) == {"pan": "changed", "tilt": "added"}
        assert node.states() == {"pan": "ready", "tilt": "ready"}
        assert (await node.call("tilt", "move", angle=1)).outcome == "succeeded"
        assert (node.devices.reading_action("tilt"), node.devices.reading_action("gone")) == ("read", None)
        for _ in range(FAILURES):
            node.devices.breakers.failed("tilt", DriverError("it does not answer"))
        assert node.states() == {"pan": "ready", "tilt": "problem"}
        assert await node.become(servo("tilt", pin=19)) == {"pan": "removed"}
        assert node.states() == {"tilt": "problem"}
        node.devices.breakers.try_now()
        assert node.states() == {"tilt": "ready"}
        with pytest.raises(EdgePandaError, match="no device 'pan'"):
            node.devices.action("pan", "move")
        assert await node.become("") == {"tilt": "removed"}
        assert (node.devices._hosts, first.pid) == ({}, None)


async def test_a_device_is_read_back_after_its_host_was_killed(tmp_path: Path) -> None:
    async with bench(tmp_path, servo("pan")) as node:
        work = asyncio.create_task(node.call("pan", "move", angle=80, speed=8))
        await asyncio.sleep(0)
        os.kill(next(iter(node.devices._hosts.values())).pid or 0, signal.SIGKILL)
        with pytest.raises(DriverError, match="died"):
            await work
        known = await read_back(node.devices, "pan", "task-0001", 1)
        assert set(known["reads"]) >= {"angle", "attached"}
        assert await read_back(node.devices, "gone", "task-0001", 1) == {}


async def test_two_devices_change_pins_with_each_other(tmp_path: Path) -> None:
    async with bench(tmp_path, servo("pan") + servo("tilt", pin=19)) as node:
        await node.become(servo("pan", pin=19) + servo("tilt"))
        await node.until(lambda: node.states() == {"pan": "ready", "tilt": "ready"})


async def test_a_device_with_work_on_it_changes_when_that_has_ended(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    async with bench(tmp_path, recorder("a", old)) as node:
        work = asyncio.create_task(node.call("a", "note", seconds=0.6))
        await asyncio.sleep(0)
        behind = asyncio.create_task(node.call("a", "note"))
        await asyncio.sleep(0)
        assert await node.become(recorder("a", new), within=0.01) == {"a": "changed"}
        assert node.states() == {"a": "problem"}
        with pytest.raises(EdgePandaError, match="its configuration has changed"):
            node.devices.action("a", "note")
        assert (await work).outcome == (await behind).outcome == "succeeded"
        await node.until(lambda: node.states() == {"a": "ready"})
        await node.call("a", "note")
        assert [len(file.read_text().splitlines()) for file in (old, new)] == [2, 1]


async def test_a_change_of_mind_while_work_goes_on(tmp_path: Path) -> None:
    async with bench(tmp_path, recorder("a")) as node:
        work = asyncio.create_task(node.call("a", "note", seconds=0.4))
        await asyncio.sleep(0)
        assert await node.become("", within=0.01) == {"a": "removed"}
        assert await node.become(recorder("a", tmp_path / "new"), within=0.01) == {"a": "added"}
        await work
        await node.until(lambda: node.states() == {"a": "ready"})
        await node.call("a", "note")
        assert (tmp_path / "new").exists()


async def test_new_labels_open_nothing_anew(tmp_path: Path) -> None:
    async with bench(tmp_path, recorder("a")) as node:
        thing = node.devices.things["a"]
        assert await node.become(recorder("a") + 'labels = { room = "attic" }\n') == {"a": "relabelled"}
        assert node.devices.things["a"] is thing
        card = node.devices.card(Node(), node="n", revision=1, incarnation=1)
        assert card.devices["a"].labels == {"room": "attic"}


async def test_a_position_is_kept_for_the_same_servo_only(tmp_path: Path) -> None:
    async with bench(tmp_path, servo("pan", speed=400)) as node:

        async def angle() -> float:
            return float((await node.call("pan", "read")).value["angle"])

        node.memory.before_move("pan")
        await node.call("pan", "move", angle=20)
        node.memory._settle("pan")  # it has been at rest
        await node.become(servo("pan", speed=300))
        assert await angle() == 20
        await node.become(servo("pan", speed=300, pin=19))
        assert await angle() == 0
        await node.become("")
        assert node.memory.known("pan") is None


async def test_what_cannot_be_used_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_module, "LOOK_FIRST", 0.05)
    driver = tmp_path / "own.py"
    text = f'[devices.a]\ndriver = "{driver}"\n[devices.b]\ndriver = "{RECORDER}"\nfile = "{tmp_path}/not/there"\n'
    async with bench(tmp_path, text) as node:
        assert node.states() == {"a": "problem", "b": "problem"}
        driver.write_text(RECORDER.read_text())
        (tmp_path / "not").mkdir()
        await node.until(lambda: node.states() == {"a": "ready", "b": "ready"})


async def test_a_host_that_never_starts_does_not_keep_the_node_from_starting(tmp_path: Path) -> None:
    async with bench(tmp_path, '[devices.a]\ndriver = "x"\ncommand = ["/no/such"]\n' + servo("pan")) as node:
        assert node.states() == {"a": "problem", "pan": "ready"}
        await node.become('[devices.a]\ndriver = "servo"\npin = 4\nsimulate = true\n' + servo("pan"))
        assert node.states() == {"a": "ready", "pan": "ready"}
