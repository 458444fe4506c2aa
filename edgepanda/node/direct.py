"""`do` on the local socket: a command of somebody at this machine, for a device of this node, without the site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.ids import is_task_id, new_id
from edgepanda.model.task import Limits, Task
from edgepanda.node.devices import Thing
from edgepanda.node.methods import converted
from edgepanda.wire.requests import LARGEST_SUBMIT

LONGEST_TIMEOUT = 10 * 365 * 86_400  # seconds of a direct command
EXAMPLE = 'send {"device": "pan", "action": "move", "args": {"angle": 30}}'


class DirectCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of `do`. `id` is the idempotency key."""

    device: str
    action: str = "run"
    args: dict[str, Any] = {}
    id: str = ""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_TIMEOUT)] | None = None
    goal: str = ""
    criteria: tuple[str, ...] = ()


def direct_task(params: dict[str, Any], things: Mapping[str, Thing], node: str) -> tuple[Task, str]:
    """The task that a direct command is from then on, and its action. Pure.

    Raises `EdgePandaError`: `malformed`, `invalid_task_id`, `oversized`.
    """
    call = converted(params, DirectCall, "do", EXAMPLE)
    if call.id and not is_task_id(call.id):
        raise EdgePandaError(f"{call.id!r} cannot name a task", code="invalid_task_id", where="id")
    if len(msgspec.json.encode(call)) > LARGEST_SUBMIT:
        raise EdgePandaError(f"more than {LARGEST_SUBMIT} bytes", code="oversized", where="do params")
    thing = things.get(call.device)
    own = thing is not None and thing.capability
    task = Task(
        id=call.id or new_id(),
        capability=call.device if own or thing is None else f"{thing.driver}.{call.action}",
        args=call.args,
        device=None if own else call.device,
        node=node,
        goal=call.goal,
        criteria=call.criteria,
        limits=Limits(timeout=call.timeout),
        by=node,
        door="local",
    )
    return task, call.action
