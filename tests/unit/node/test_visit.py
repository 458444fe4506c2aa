"""A driver's host for a moment: beside a running node, and as another user."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from edgepanda.drivers.contract import DriverError
from edgepanda.model.config import Config, Loaded
from edgepanda.node.configured import Program, program_of
from edgepanda.node.hosts import Host
from edgepanda.node.visit import state_owner, visited, visitor


async def test_a_visit_does_not_end_the_host_of_a_running_node(tmp_path: Path) -> None:
    host = Host("servo", None, tmp_path)
    await host.start()
    try:
        before = host.pid
        async with visited(Program("servo")) as visit:
            assert (await visit.describe()).driver == "servo"
            assert visit.pid != before
        assert (host.alive, host.pid, host.restarts) == (True, before, 0)
    finally:
        await host.close()


async def test_nothing_is_left_of_a_visit_that_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    there: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    async def visit() -> None:
        async with visited(Program("servo")) as host:
            there.set_result(host.pid)
            await asyncio.Event().wait()

    task = asyncio.create_task(visit())
    pid = await there
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid or 0, 0)
    assert not await asyncio.to_thread(os.listdir, tmp_path)


async def test_a_host_that_does_not_start_says_why() -> None:
    with pytest.raises(DriverError) as caught:
        async with visited(Program("x", ("sh", "-c", "echo no luck >&2"))):
            pass
    assert "no luck" in caught.value.message


@pytest.mark.parametrize(
    ("entry", "program"),
    [
        ({"driver": "servo"}, Program("servo")),
        ({"driver": "./x.py"}, Program("/etc/x.py")),
        ({"driver": "x", "command": ["./x", "-v"]}, Program("x", ("/etc/x", "-v"))),
        ({"driver": "x", "command": ["sh", "x"]}, Program("x", ("sh", "x"))),
    ],
)
def test_the_program_of_a_device(entry: dict[str, Any], program: Program) -> None:
    assert program_of(entry, Path("/etc"), "devices.x") == program


async def test_a_host_runs_as_the_user_of_the_nodes_state_and_root_as_nobody_else(tmp_path: Path) -> None:
    loaded = Loaded(Config(), tmp_path / "edgepanda.toml", tmp_path)
    assert (state_owner(loaded), visitor(loaded)) == ("", "")
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
        assert visitor(loaded) == "nobody"
        async with visited(Program("command"), user="nobody") as host:
            status = await asyncio.to_thread(Path(f"/proc/{host.pid}/status").read_text)
            assert "\nUid:\t65534\t65534\t65534\t65534\n" in status
            assert "\nCapEff:\t0000000000000000\n" in status
    else:
        of_root = Loaded(Config(), Path("/edgepanda.toml"), Path("/"))
        assert (state_owner(of_root), visitor(of_root)) == ("root", "")
