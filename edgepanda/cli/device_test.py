"""`device test`: the driver's probe, and what only observes, done; through the node where one runs."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.common import Settings, command, quiet
from edgepanda.cli.exits import FAILED, OK
from edgepanda.cli.local import LocalNode
from edgepanda.cli.out import aligned_fields, coloured, emit, plain, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.drivers.contract import Description, Probe
    from edgepanda.model.config import Loaded
    from edgepanda.node.hosts import Host

ANSWER_WITHIN = 20.0  # seconds
LOOK_WITHIN = 10.0  # seconds that one observing action may take


class Look(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One observing action, and what came of it."""

    action: str
    outcome: str
    value: Any = None
    evidence: Any = ()
    message: str = ""


class Tested(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a test has found."""

    device: str
    driver: str
    through: str  # the node's name; empty: a driver host of its own
    usable: bool
    simulated: bool = False
    reason: str = ""
    cure: str = ""
    facts: dict[str, Any] = {}
    looks: list[Look] = []

    @property
    def good(self) -> bool:
        """Whether all of it succeeded."""
        return self.usable and all(look.outcome == "succeeded" for look in self.looks)


@command(
    "test",
    short_help="Probe a device and read from it: NAME",
    timeout_help="",
    examples="edgepanda device test pan\nedgepanda device test pan --json",
    returns="Exit codes: 0 it can be used; 1 it cannot, and the reason is shown; 2 there is no such device.",
)
@click.argument("name")
def test_command(settings: Settings, name: str) -> int:
    """Test a device without moving it: its driver probes it, then every action that only observes (tier 0) and needs
    no argument is done once.

    Where this machine's node runs, it does that, so that nothing is opened twice. Else a driver host is started for the
    test, which opens the device and leaves it in its safe state.
    """
    from edgepanda.cli.device_work import known_device

    quiet(settings)
    loaded = settings.load()
    entry = known_device(loaded, name)
    tested = asyncio.run(_test(loaded, name, entry))
    if settings.json:
        emit({**msgspec.to_builtins(tested), "ok": tested.good})
    else:
        _show(tested)
    return OK if tested.good else FAILED


def _show(tested: Tested) -> None:
    state = "ready" if tested.usable else "unavailable"
    say(f"{tested.device}  {tested.driver}  {coloured(state)}{', simulated' if tested.simulated else ''}")
    rows = [("reason", tested.reason), ("cure", tested.cure), ("driver says", plain(tested.facts))]
    for look in tested.looks:
        shown = [f"{coloured(look.outcome)}  {plain(look.value)}" if look.value is not None else coloured(look.outcome)]
        shown += [look.message] if look.message else []
        rows.append((look.action, "\n".join([*shown, *(plain(each) for each in look.evidence)])))
    rows.append(("tested", f"by the running node {tested.through}" if tested.through else "alone; no node is running"))
    for line in aligned_fields(rows):
        say(line)


async def _test(loaded: Loaded, name: str, entry: dict[str, Any]) -> Tested:
    local = LocalNode.of(loaded)
    try:
        status: dict[str, Any] = await local.request("status", {}, within=ANSWER_WITHIN)
    except EdgePandaError as error:
        if isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
            return await _alone(loaded, name, entry)
        raise  # one that we may not ask, or that hangs, has the device open
    return await _by_node(local, status["card"], name, entry)


async def _by_node(local: LocalNode, card: dict[str, Any], name: str, entry: dict[str, Any]) -> Tested:
    device = card.get("devices", {}).get(name)
    if device is None:
        raise EdgePandaError(
            "the running node has not read this device yet",
            code="unavailable",
            where=name,
            cure="send SIGHUP to the node or to `edgepanda up`, or restart it: it reads the configuration then",
        )
    state = device.get("state", "probing")
    probe: dict[str, Any] = await local.request("probe", {"device": name}, within=ANSWER_WITHIN)
    tested = Tested(
        device=name,
        driver=device["driver"],
        through=card["node"],
        usable=probe["usable"] and state == "ready",
        simulated=probe.get("simulated", False),
        reason=probe.get("reason") or device.get("reason", ""),
        cure=probe.get("cure") or device.get("cure", ""),
        facts=probe.get("facts", {}),
    )
    if tested.usable:
        actions = card.get("drivers", {}).get(device["driver"], {}).get("actions", {})
        for action in observing(actions):
            tested.looks.append(await _look_by_node(local, name, action))
    return tested


async def _look_by_node(local: LocalNode, name: str, action: str) -> Look:
    try:
        params = {"device": name, "action": action, "timeout": LOOK_WITHIN}
        answer = await local.request("do", params, within=ANSWER_WITHIN)
    except EdgePandaError as error:
        return Look(action=action, outcome="failed", message=f"{error} [{error.code}]")
    result = answer["result"]
    message = result.get("message") or ("" if result["outcome"] == "succeeded" else result.get("narrative", ""))
    return Look(
        action=action,
        outcome=result["outcome"],
        value=result.get("value"),
        evidence=result.get("evidence", ()),
        message=message,
    )


async def _alone(loaded: Loaded, name: str, entry: dict[str, Any]) -> Tested:
    from edgepanda.cli.device_work import own_values
    from edgepanda.node.configured import program_of
    from edgepanda.node.visit import visited, visitor

    values = own_values(entry)
    try:
        program = program_of(entry, loaded.path.parent, f"devices.{name}")
        async with visited(program, user=visitor(loaded)) as host:
            description, probe = await host.describe(), await host.probe(values)
            tested = _probed(name, description, probe)
            if probe.usable:
                await host.open(name, values)
                tested.looks.extend(await _looks_alone(host, name, description))
                await host.safe(name)
            return tested
    except EdgePandaError as error:
        return Tested(
            device=name, driver=entry["driver"], through="", usable=False, reason=error.message, cure=error.cure
        )


def _probed(name: str, description: Description, probe: Probe) -> Tested:
    return Tested(
        device=name,
        driver=description.driver,
        through="",
        usable=probe.usable,
        simulated=probe.simulated,
        reason=probe.reason,
        cure=probe.cure,
        facts=probe.facts,
    )


async def _looks_alone(host: Host, name: str, description: Description) -> list[Look]:
    looks = []
    with tempfile.TemporaryDirectory(prefix="edgepanda-test-") as work:
        for action in observing(msgspec.to_builtins(description.actions)):
            try:
                done = await host.call(name, action, {}, task="test", attempt=0, work=Path(work), timeout=LOOK_WITHIN)
            except EdgePandaError as error:
                looks.append(Look(action=action, outcome="failed", message=f"{error} [{error.code}]"))
                continue
            message = "" if done.outcome == "succeeded" else done.narrative
            looks.append(
                Look(action=action, outcome=done.outcome, value=done.value, evidence=done.evidence, message=message)
            )
    return looks


def observing(actions: dict[str, Any]) -> list[str]:
    """The actions that only observe and need no argument. Pure."""
    return [
        name
        for name, action in actions.items()
        if action.get("tier") == 0 and action.get("replay") == "safe" and not action.get("args", {}).get("required")
    ]
