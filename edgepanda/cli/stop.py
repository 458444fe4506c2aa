"""`stop` and `release`: the emergency stop, by every way that there is, and its end."""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.common import Settings, command, confirmed, node_option, quiet
from edgepanda.cli.exits import INTERRUPTED, UNREACHABLE
from edgepanda.cli.local import LocalNode
from edgepanda.cli.out import emit, hint, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.model.config import Loaded

OBEYED_WITHIN = 5.0  # seconds that are waited for the nodes' word
LOOK_EVERY = 0.05
LOCAL_WITHIN = 2.0
SAFE = "Is it safe to release these?"

Chosen = tuple[str, str, list[str]]
"""Who has stops in force: the name, the key id that a release is signed for, and the ids of those stops."""


@command(
    "stop",
    examples='edgepanda stop\nedgepanda stop --because "the arm caught a cable"\nedgepanda stop --node desk',
    returns="Exit codes: 0 all that are there have stopped, 3 one of them has not said so, or nobody could be reached.",
    timeout_help="How long to wait for the nodes' word (default: 5s).",
)
@click.option("--because", default="", help="Why; everybody who asks sees it.")
@node_option("Stop this node alone.")
def stop_command(settings: Settings, because: str, node: str | None) -> int:
    """Emergency stop: everything at the site goes to its safe state and stays there until an operator releases it.

    It is said to this machine's node over its local socket, and to the whole site over the broker, each without waiting
    for the other; without a key it is said unsigned, and holds all the same. It is in force over restarts, and nodes
    that are away hear of it before they get any work.
    """
    quiet(settings)
    told = asyncio.run(_stop(settings, settings.load(), because, node))
    if not told["stopped"] and told["errors"]:
        raise EdgePandaError.from_dict(told["errors"][-1])
    if settings.json:
        emit(told)
    else:
        _tell_stop(told)
    return 0 if told["stopped"] and not told["silent"] else UNREACHABLE


async def _stop(settings: Settings, loaded: Loaded, because: str, node: str | None) -> dict[str, Any]:
    from edgepanda.model.ids import new_id

    stop_id, within = new_id(), settings.timeout or OBEYED_WITHIN
    params = {"reason": because, "by": getpass.getuser(), "id": stop_id}
    own, site = await asyncio.gather(
        _stop_here(loaded, params, node),
        _stop_site(loaded, params, node, within),
    )
    stopped = sorted({*site["stopped"], *own["stopped"]})
    errors = [each["error"] for each in (own, site) if each["error"]]
    return {"id": stop_id, "stopped": stopped, "silent": site["silent"], "away": site["away"], "errors": errors}


def _outcome(error: EdgePandaError | None = None, **lists: list[str]) -> dict[str, Any]:
    return {"stopped": [], "silent": [], "away": [], "error": error.as_dict() if error else None, **lists}


async def _stop_here(loaded: Loaded, params: dict[str, Any], node: str | None) -> dict[str, Any]:
    """This machine's node, which needs no broker for it."""
    local = LocalNode.of(loaded)
    if not local.present:
        return _outcome()
    try:
        if node is not None and (await local.request("status", {}, within=LOCAL_WITHIN))["name"] != node:
            return _outcome()
        await local.request("stop", params, within=LOCAL_WITHIN)
        return _outcome(stopped=[(await local.request("status", {}, within=LOCAL_WITHIN))["name"]])
    except EdgePandaError as error:
        return _outcome(error)


async def _stop_site(loaded: Loaded, params: dict[str, Any], node: str | None, within: float) -> dict[str, Any]:
    from edgepanda.client import AsyncClient

    try:
        async with AsyncClient.from_loaded(loaded, answer_within=within) as client:
            if node is not None:
                from edgepanda.wire.requests import StopParams

                await client.ask_node(node, "stop", StopParams(**params), within=within)
                return _outcome(stopped=[node])
            await client.stop(params["reason"], stop_id=params["id"])
            return await _obeyed(client, params["id"], within)
    except EdgePandaError as error:
        if node is None and error.code in ("operator_key_missing", "site_key_missing"):
            return await _say_plain(loaded, params["reason"], within)
        return _outcome(error)


async def _obeyed(client: AsyncClient, stop_id: str, within: float) -> dict[str, Any]:
    """Who has the stop in force, as the coordinator hears from them."""
    end = time.monotonic() + within
    while True:
        nodes = (await client.stops())["nodes"]
        there = [name for name, each in nodes.items() if each["online"]]
        stopped = [name for name in there if any(s.get("origin") == stop_id for s in nodes[name]["stops"])]
        silent = [name for name in there if name not in stopped]
        if not silent or time.monotonic() > end:
            return _outcome(stopped=stopped, silent=silent, away=[name for name in nodes if name not in there])
        await asyncio.sleep(LOOK_EVERY)


async def _say_plain(loaded: Loaded, reason: str, within: float) -> dict[str, Any]:
    """Without a key: heard by all, but nobody answers us."""
    from edgepanda.client import say_plain_stop

    try:
        await say_plain_stop(loaded, reason, within=within)
    except EdgePandaError as error:
        return _outcome(error)
    return _outcome(silent=["the site (you have no key, so nobody answers you)"])


def _tell_stop(told: dict[str, Any]) -> None:
    for name in told["stopped"]:
        say(f"{name}: {click.style('stopped', fg='red', bold=True)}")
    for name in told["silent"]:
        say(f"{name}: {click.style('no word yet', fg='yellow')}")
    for name in told["away"]:
        say(f"{name}: away; it hears of it before it gets any work")
    for error in told["errors"]:
        hint(f"not everybody could be reached: {EdgePandaError.from_dict(error)} [{error['code']}]")
    if told["stopped"]:
        hint("It stays so over restarts, until an operator says: edgepanda release")


@command(
    "release",
    examples='edgepanda release\nedgepanda release --node desk --because "the cable is out"\nedgepanda release --yes',
    returns="Exit codes: 0 released, or nothing to release; 1 refused; 3 nobody could be reached, or a node has not "
    "said so yet; 130 not confirmed.",
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@node_option("Release the stops of this node alone.")
@click.option("--because", default="", help="Why it is safe again; it is recorded.")
@click.option("--yes", is_flag=True, help="Ask nothing.")
def release_command(settings: Settings, ids: tuple[str, ...], node: str | None, because: str, yes: bool) -> int:
    """End emergency stops: those that are in force now, or those with these ids. Needs an operator's key.

    It shows what is in force, who stopped, when and why, and asks. Nothing moves by itself after that. A stop that
    comes while you think about it stays in force. Without the site, this machine's node is released over its socket.
    """
    quiet(settings)
    return asyncio.run(_release(settings, settings.load(), ids, node, because, yes))


async def _release(
    settings: Settings, loaded: Loaded, ids: tuple[str, ...], node: str | None, because: str, yes: bool
) -> int:
    from edgepanda.client import ANSWER_WITHIN, AsyncClient

    client = AsyncClient.from_loaded(loaded, answer_within=settings.timeout or ANSWER_WITHIN)
    try:
        try:
            await client.connect()
            found = await client.stops()
        except EdgePandaError as error:
            return await _release_here(settings, loaded, client, error, ids, node, yes)
        wanted = _chosen(settings, found, ids, node, yes)
        if wanted:
            await client.release({kid: tuple(some) for _, kid, some in wanted}, because)
        return _tell_released(settings, wanted, await _released(client, wanted or []))
    finally:
        await client.close()


def _places(found: Mapping[str, Any]) -> dict[str, Any]:
    return {"the site": found["site"], **found["nodes"]}


def _chosen(
    settings: Settings, found: Mapping[str, Any], ids: tuple[str, ...], node: str | None, yes: bool
) -> list[Chosen] | None:
    """What is to be released, after a look at it; None where a person says no."""
    wanted = _wanted(found, ids, node)
    if not settings.json:
        _show(found, wanted)
    if wanted and not yes and not confirmed(settings, SAFE, "releases without asking"):
        return None
    return wanted


def _wanted(found: Mapping[str, Any], ids: tuple[str, ...], node: str | None) -> list[Chosen]:
    """Those that have some of them. Raises `EdgePandaError` (`unknown_node`). Pure."""
    places = _places(found) if node is None else found["nodes"]
    if node is not None and node not in places:
        known = ", ".join(places) or "none"
        raise EdgePandaError(
            f"there is no node {node!r}", code="unknown_node", where="--node", cure=f"known are: {known}"
        )
    wanted = []
    for name, place in places.items():
        if node in (None, name):
            some = [s["id"] for s in place["stops"] if not ids or s["id"] in ids or s.get("origin") in ids]
            if some:
                wanted.append((name, place["kid"], some))
    return wanted


def _show(found: Mapping[str, Any], wanted: list[Chosen]) -> None:
    for name, _, some in wanted:
        for stop in _places(found)[name]["stops"]:
            if stop["id"] in some:
                say(f"{name:<12} {line_of(stop)}")


def line_of(stop: Mapping[str, Any]) -> str:
    """A stop in force, in one line."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stop["at"]))
    who = stop.get("by") or "somebody without a key"
    return f"{stop['id']}  {when}  by {who} ({stop['door']})" + (f": {stop['reason']}" if stop.get("reason") else "")


async def _released(client: AsyncClient, wanted: list[Chosen]) -> list[str]:
    """The names of nodes that still have some of them in force after a while."""
    end = time.monotonic() + OBEYED_WITHIN
    while wanted:
        found = await client.stops()
        left = []
        for name, _, some in wanted:
            place = found["nodes"].get(name)
            if place is not None and place["online"] and any(s["id"] in some for s in place["stops"]):
                left.append(name)
        if not left or time.monotonic() > end:
            return left
        await asyncio.sleep(LOOK_EVERY)
    return []


async def _release_here(
    settings: Settings,
    loaded: Loaded,
    client: AsyncClient,
    error: EdgePandaError,
    ids: tuple[str, ...],
    node: str | None,
    yes: bool,
) -> int:
    """The site cannot be reached: this machine's own node. Raises the site's error where that is no way either."""
    local = LocalNode.of(loaded)
    try:
        status: dict[str, Any] = await local.request("status", {}, within=LOCAL_WITHIN)
    except EdgePandaError:
        raise error from None
    if node not in (None, status["name"]):
        raise error
    hint(f"this machine's node alone: {error} [{error.code}]")
    place = {"kid": status["key"], "stops": status["stops"], "online": True}
    found = {"site": {"kid": "", "stops": []}, "nodes": {status["name"]: place}}
    wanted = _chosen(settings, found, ids, None, yes)
    import msgspec

    for _, kid, some in wanted or ():
        await local.request("release", msgspec.to_builtins(client.signed_release(kid, some)), within=LOCAL_WITHIN)
    return _tell_released(settings, wanted, [])


def _tell_released(settings: Settings, wanted: list[Chosen] | None, left: list[str]) -> int:
    if wanted is None:
        return INTERRUPTED
    if settings.json:
        emit({"released": {name: some for name, _, some in wanted}, "waiting": left})
    elif wanted:
        say("released" + (f"; no word yet from {', '.join(left)}" if left else ""))
    else:
        say("no emergency stop is in force")
    return UNREACHABLE if left else 0
