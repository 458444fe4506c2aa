"""Why a task waits in the queue, from what its nodes say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepanda.cli.cards import fetch_nodes, offers_of
from edgepanda.errors import EdgePandaError
from edgepanda.model.task import TRANSIENT

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.model.card import Offer
    from edgepanda.wire.requests import TaskView

PATIENCE = 1.5  # seconds in the queue before the reason is told


async def why_it_waits(client: AsyncClient, task_id: str) -> str:
    """The reason why a task is in the queue still, after a moment; empty if it is not, or nobody can tell."""
    await asyncio.sleep(PATIENCE)
    try:
        task = await client.get(task_id)
        return reason(task, await fetch_nodes(client)) if task.state == "queued" else ""
    except EdgePandaError:
        return ""


def reason(task: TaskView, nodes: Sequence[dict[str, Any]]) -> str:
    """What keeps each node that could do the task from doing it now. Pure."""
    found = [
        _keeps_from(task, node, offer) for node in nodes for offer in offers_of(node.get("card")) if _suits(task, offer)
    ]
    return "; ".join(found) if found else f"nobody offers {task.capability} any more"


def _suits(task: TaskView, offer: Offer) -> bool:
    return (
        offer.capability == task.capability
        and task.device in (None, offer.device)
        and task.node in (None, offer.node)
        and all(offer.labels.get(key) == value for key, value in task.labels.items())
    )


def _keeps_from(task: TaskView, node: dict[str, Any], offer: Offer) -> str:
    name = node["name"]
    if not node["online"]:
        return f"{name} is away"
    if offer.state != "ready":
        return f"{offer.device or offer.capability} on {name} is {offer.state}: {offer.reason}".rstrip(": ")
    if node.get("stops") and offer.action.tier > 0:
        return f"{name} is stopped: `edgepanda release` ends that"
    if not node["claiming"]:
        return f"{name} claims no work"
    if not node.get("free", 0):
        return f"{name} has no free slot"
    if task.code in TRANSIENT and task.reason:
        return task.reason
    return f"{name} has declined it for now, or is about to take it"
