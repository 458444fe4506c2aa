"""Why a task waits: told from what the nodes say of themselves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edgepanda.cli.waiting import reason
from edgepanda.model.card import Action, Capability, Card
from edgepanda.wire.requests import TaskView

TASK = TaskView(id="task-0001", state="queued", capability="disk.free", created=0.0, updated=0.0)
ACTION = Action(tier=0, replay="safe")


def node(name: str, capability: Capability, **more: Any) -> dict[str, Any]:
    card = Card(node=name, revision=1, incarnation=1, capabilities={"disk.free": capability})
    seen = {"online": True, "claiming": True, "free": 2, **more}
    return {"name": name, "card": msgspec.to_builtins(card), **seen}


READY = Capability(action=ACTION, state="ready")


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([], "nobody offers disk.free any more"),
        ([node("desk", READY, online=False)], "desk is away"),
        ([node("desk", READY, claiming=False)], "desk claims no work"),
        ([node("desk", READY, free=0)], "desk has no free slot"),
        (
            [node("desk", Capability(action=ACTION, state="unavailable", reason="there is no df"))],
            "disk.free on desk is unavailable: there is no df",
        ),
        ([node("desk", READY, online=False), node("shed", READY, free=0)], "desk is away; shed has no free slot"),
        ([node("desk", READY)], "desk has declined it for now, or is about to take it"),
    ],
)
def test_each_reason(nodes: list[dict[str, Any]], told: str) -> None:
    assert reason(TASK, nodes) == told


def test_a_task_that_waits_for_its_next_attempt_says_so() -> None:
    failed = msgspec.structs.replace(
        TASK, code="io", reason="attempt 1 failed: silence [io]; it is tried again after 1 s"
    )
    assert reason(failed, [node("desk", READY)]) == failed.reason
    assert reason(failed, [node("desk", READY, online=False)]) == "desk is away"


def test_only_nodes_that_could_do_it_are_named() -> None:
    pinned = msgspec.structs.replace(TASK, node="shed")
    assert reason(pinned, [node("desk", READY), node("shed", READY, online=False)]) == "shed is away"
    labelled = msgspec.structs.replace(TASK, labels={"room": "attic"})
    assert reason(labelled, [node("desk", READY)]) == "nobody offers disk.free any more"
