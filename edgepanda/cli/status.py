"""`status`: one screen for the site; or for this machine's node alone, when the site cannot be reached."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.cards import fetch_nodes
from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.exits import UNREACHABLE, exit_code
from edgepanda.cli.local import CONNECT_WITHIN, LocalNode
from edgepanda.cli.names import remember_tasks
from edgepanda.cli.nodes import show_nodes, summary, troubles
from edgepanda.cli.out import coloured, emit, fields, hint, plain, say
from edgepanda.cli.tasks import show_tasks
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient

ASIDE = 3.0  # seconds for the site's answer, when this machine's node can speak for itself
FAILURES = 5  # newest ones that are shown
FAILED = ("failed", "timed_out", "expired")
RECENT = 86_400.0  # seconds: what failed longer ago is no news
_TURN_TO_NODE = frozenset({"operator_key_missing", "site_key_missing"})


@command("status", examples="edgepanda status\nedgepanda status --json")
def status_command(settings: Settings) -> int:
    """One screen for the site: coordinator, nodes, what runs and waits, what needs a person, what failed of late.

    When broker or coordinator cannot be reached, this machine's own node tells what it knows, and the exit code is 3.
    """
    local = LocalNode.of(settings.load())
    asking = settings if settings.timeout or not local.present else settings._replace(timeout=ASIDE)
    try:
        found = ask(asking, fetch)
    except EdgePandaError as error:
        if exit_code(error) != UNREACHABLE and error.code not in _TURN_TO_NODE:
            raise
        return _alone(settings, local, error)
    if settings.json:
        emit({"from": "coordinator", **found, "nodes": [summary(node) for node in found["nodes"]]})
    else:
        show_status(found)
    return 0


async def fetch(client: AsyncClient) -> dict[str, Any]:
    """The digest, with the nodes' cards in it and the newest `failures`. Raises `EdgePandaError`."""
    digest, failed, nodes = await asyncio.gather(
        client.digest(), client.list(states=FAILED, limit=FAILURES), fetch_nodes(client)
    )
    failures = [row for row in failed["tasks"] if row["age"] <= RECENT]
    seen = [row["id"] for key in ("needs_person", "running", "queued") for row in digest[key]]
    remember_tasks(client.site, [*seen, *(row["id"] for row in failures)])
    return {**digest, "nodes": nodes, "failures": failures}


def show_status(found: dict[str, Any]) -> None:
    """Print what `fetch` or `digest` gave."""
    head = found["head"]
    fields(
        [
            ("coordinator", f"{coloured('online')}, epoch {found['epoch']}, {head['height']} entries in its ledger"),
            ("tasks", plain(found["counts"]) or "none yet"),
            ("problem", plain(found["problem"]) if found["problem"] else ""),
        ],
        indent="",
    )
    for title, key in (
        ("Needs a person", "needs_person"),
        ("Running", "running"),
        ("Waiting", "queued"),
        ("Failed in the last day", "failures"),
    ):
        if found.get(key):
            say(f"\n{click.style(title, bold=True)}")
            show_tasks(found[key])
    say(f"\n{click.style('Nodes', bold=True)}")
    show_nodes(found["nodes"])
    faults = [line for node in found["nodes"] for line in troubles(node)]
    for line in faults:
        say(f"  {line}")
    for line in next_steps(found):
        hint(line)


def next_steps(found: dict[str, Any]) -> list[str]:
    """The commands that make sense now, each with its reason. Pure."""
    steps = []
    if any(node.get("stops") for node in found["nodes"]):
        steps.append(("once it is safe again", "edgepanda release"))
    if found["needs_person"]:
        steps.append(("what to say to it", f"edgepanda show {found['needs_person'][0]['id']}"))
    if found.get("failures"):
        steps.append(("why it failed", f"edgepanda show {found['failures'][0]['id']}"))
    if found["running"]:
        steps.append(("follow it", f"edgepanda watch {found['running'][0]['id']}"))
    if not found["nodes"]:
        steps.append(("let a node in", "edgepanda nodes add NAME KEY"))
    elif not steps:
        steps.append(("what can be done", "edgepanda card --all"))
    width = max((len(text) for _, text in steps), default=0)
    return ["", *(f"{text.ljust(width)}   {why}" for why, text in steps)]


def _alone(settings: Settings, local: LocalNode, error: EdgePandaError) -> int:
    """What this machine's node says. Raises the site's error where it does not answer either."""
    try:
        node: dict[str, Any] = asyncio.run(local.request("status", {}, within=CONNECT_WITHIN))
    except EdgePandaError:
        raise error from None
    if settings.json:
        emit({"from": "node", "error": error.as_dict(), "node": node})
    else:
        for line in local_lines(node):
            say(line)
        hint(f"\nThis is this machine's node alone: {error} [{error.code}]")
        hint("Its own devices obey all the same: edgepanda do DEVICE.ACTION")
    return UNREACHABLE


def local_lines(node: dict[str, Any]) -> list[str]:
    """A node's own status, for a person. Pure."""
    card = node.get("card") or {}
    broker = node.get("broker_error") or {}
    lines = [
        f"node         {node['name']}, start {node['incarnation']}, card {card.get('revision', '-')}",
        f"broker       {'connected' if node['broker'] else 'not connected'}{_told(broker)}",
        f"coordinator  {_coordinator(node)}{_told(node.get('problem') or {})}",
    ]
    for stop in node.get("stops", ()):
        lines.insert(1, f"STOPPED      by {stop.get('by') or 'somebody'}: {stop.get('reason') or 'no reason given'}")
    if node.get("journal_problem"):
        lines.append(f"journal      {_told(node['journal_problem'])[2:]}")
    lines.append(f"reports      {node['unacknowledged']} that the coordinator has not acknowledged")
    lines += [f"running      {run['task']} on {run['device'] or node['name']}" for run in node["running"]]
    for kind in ("devices", "capabilities"):
        for name, thing in card.get(kind, {}).items():
            why = "; ".join(text for text in (thing.get("reason"), thing.get("cure")) if text)
            state = thing.get("state", "probing")
            lines.append(
                f"  {name}  {coloured(state)}{', simulated' if thing.get('simulated') else ''}  {why}".rstrip()
            )
    return lines


def _coordinator(node: dict[str, Any]) -> str:
    if not node.get("coordinator"):
        return "not heard of since this node started"
    return f"epoch {node['epoch']}, {'obeyed' if node.get('accepted') else 'not proven yet'}"


def _told(error: dict[str, Any]) -> str:
    return f": {error['message']}" + (f"; {error['cure']}" if error.get("cure") else "") if error else ""
