"""The method `probe`: of a device, and of a built-in driver with a configuration that may come."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.node.configured import Configured, Program
from edgepanda.node.devices import Thing
from edgepanda.node.hosts import Host
from edgepanda.node.probe import probe

SERVO = Program("servo")
CONFIG = {"pin": 12, "simulate": True}


async def test_a_device_and_its_driver_are_probed_by_the_host_that_runs(tmp_path: Path) -> None:
    host = Host("servo", None, tmp_path)
    things = {"pan": Thing(Configured("pan", SERVO, CONFIG, {}), host)}
    await host.start()
    try:
        before = host.pid
        assert (await probe(things, {"device": "pan"})).facts["pin"] == "GPIO12"
        other = await probe(things, {"driver": "servo", "config": {"pin": 13, "simulate": True}})
        assert (other.usable, other.facts["pin"], host.pid) == (True, "GPIO13", before)
        with pytest.raises(EdgePandaError) as caught:
            await probe(things, {"driver": "servo", "config": {"pin": "x"}})
        assert caught.value.code == "invalid_args"
    finally:
        await host.close()


async def test_a_driver_that_does_not_run_is_started_for_it() -> None:
    assert (await probe({}, {"driver": "servo", "config": CONFIG})).usable


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"device": "pna"}, "unknown_device"),
        ({}, "unknown_device"),
        ({"driver": "/tmp/evil.py"}, "unknown_driver"),
        ({"driver": "os"}, "unknown_driver"),
        ({"driver": "servo", "command": ["sh"]}, "malformed"),
        ({"device": 3}, "malformed"),
    ],
)
async def test_what_may_not_be_asked(params: dict[str, object], code: str) -> None:
    with pytest.raises(EdgePandaError) as caught:
        await probe({}, params)
    assert (caught.value.code, bool(caught.value.where), bool(caught.value.cure)) == (code, True, True)
