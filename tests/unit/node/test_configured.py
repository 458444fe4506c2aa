"""What a configuration says of a node's devices, and what differs between two."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepanda.model.config import ConfigError, load_text
from edgepanda.node.configured import Configured, configured, differences

COMMAND = '[capabilities."disk.free"]\nargv = ["df"]\ntier = 0\nreplay = "safe"\n'


def things(text: str) -> dict[str, Configured]:
    return configured(load_text(f"[node]\n{text}", Path("/etc/edgepanda/edgepanda.toml")))


def servo(name: str, **more: object) -> str:
    keys = {"driver": '"servo"', "pin": 18, **more}
    return f"[devices.{name}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())


def test_the_nodes_keys_are_not_the_drivers() -> None:
    found = things(servo("pan", labels='{ room = "attic" }') + COMMAND)
    assert found["pan"].config == {"pin": 18}
    assert found["pan"].labels == {"room": "attic"}
    assert found["disk.free"].program.driver == "command"
    assert found["disk.free"].capability


def test_programs_and_files_are_beside_the_configuration() -> None:
    found = things(
        '[devices.a]\ndriver = "dimmer"\ncommand = ["./dimmer", "-x"]\n[devices.b]\ndriver = "own/relay.py"\n'
    )
    assert found["a"].program.argv == ("/etc/edgepanda/dimmer", "-x")
    assert (found["b"].program.source, found["b"].program.driver) == ("/etc/edgepanda/own/relay.py", "relay")


def test_each_kind_of_difference() -> None:
    before = things(servo("kept") + servo("gone", pin=4) + servo("moved", pin=5) + servo("named", pin=6))
    after = things(
        servo("kept") + servo("new", pin=4) + servo("moved", pin=7) + servo("named", pin=6, labels='{ a = "b" }')
    )
    assert differences(before, after) == {
        "gone": "removed",
        "new": "added",
        "moved": "changed",
        "named": "relabelled",
    }


def test_a_driver_has_one_program() -> None:
    with pytest.raises(ConfigError) as caught:
        things('[devices.a]\ndriver = "d"\ncommand = ["./one"]\n[devices.b]\ndriver = "d"\ncommand = ["./two"]\n')
    assert caught.value.where.endswith("devices.b")
    assert caught.value.cure
