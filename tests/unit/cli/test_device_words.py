"""The pure parts of `device set`, `remove` and `test`."""

from __future__ import annotations

from typing import Any

import pytest

from edgepanda.cli.device_change import left_in, without
from edgepanda.cli.device_test import observing
from edgepanda.cli.reload import Taken
from edgepanda.errors import EdgePandaError


def test_what_is_unset_must_be_there() -> None:
    assert without({"pin": 1, "max_speed": 3}, ("--max-speed",), where="") == {"pin": 1}
    assert without({"a-b": 1}, ("a-b",), where="") == {}
    with pytest.raises(EdgePandaError) as caught:
        without({"speed": 1}, ("sped",), where="devices.pan")
    assert (caught.value.code, caught.value.cure) == ("config_key_unknown", "did you mean 'speed'?")


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (Taken(running=True, reloaded=True, state="gone"), "has brought it to its safe state (safe = detach)"),
        (Taken(running=True, reloaded=True, state="problem"), "work still runs on it"),
        (Taken(running=True, error={"code": "unsupported"}), "the node still has it"),
        (Taken(running=False), "no node drives it"),
    ],
)
def test_in_which_state_a_removed_device_was_left(taken: Taken, said: str) -> None:
    assert said in left_in(taken, {"safe": "detach"})


def test_only_what_observes_and_needs_nothing_is_done_in_a_test() -> None:
    actions: dict[str, Any] = {
        "read": {"tier": 0, "replay": "safe"},
        "find": {"tier": 0, "replay": "safe", "args": {"required": ["what"]}},
        "count": {"tier": 0, "replay": "unsafe"},
        "move": {"tier": 1, "replay": "safe"},
    }
    assert observing(actions) == ["read"]
