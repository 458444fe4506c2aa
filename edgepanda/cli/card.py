"""`card`: what a node is and can do; what people may say of it; a new look at its hardware."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from edgepanda.cli.card_edit import edit_command
from edgepanda.cli.card_rescan import rescan_command
from edgepanda.cli.cards import fetch_nodes, offers_of
from edgepanda.cli.common import Settings, ask, command, label_option, node_argument, quiet
from edgepanda.cli.nodes import suits
from edgepanda.cli.out import coloured, emit, fields, plain, say
from edgepanda.errors import EdgePandaError

OWN_WITHIN = 5.0  # seconds for this machine's node to answer


class _Card(click.Group):
    """`card` alone shows, with the options of `card show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the subcommand `show` in where none is named."""
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@command(
    "show",
    short_help="What a node is and can do",
    examples="edgepanda card\nedgepanda card show desk\nedgepanda card --all\nedgepanda card show desk --json",
)
@node_argument
@click.option("--all", "everyone", is_flag=True, help="All nodes of the site.")
@label_option("Only nodes of the site with this label.")
def _show(settings: Settings, node: str | None, everyone: bool, labels: dict[str, str]) -> None:
    """Show the card of NODE, or of this machine's node: hardware with what can be used and why the rest cannot, devices
    with their state, actions with arguments, units and limits, capabilities.

    This machine's node is asked itself, so that works without broker and coordinator. Where this machine has no node,
    all nodes are shown.
    """
    if node and everyone:
        raise click.UsageError("name a node, or take --all")
    own = None if node or everyone or labels else asyncio.run(_own(settings))
    found = [own] if own is not None else ask(settings, lambda client: fetch_nodes(client, node))
    found = [each for each in found if suits(each, labels, None)]
    if settings.json:
        emit(found[0] if found and (node or own is not None) else {"nodes": found})
    elif not found:
        say("no such node" if labels else "no node has said anything yet")
    else:
        for each in found:
            _print(each)


async def _own(settings: Settings) -> dict[str, Any] | None:
    """This machine's node as it says itself; None where the configuration has none. Raises `EdgePandaError`
    (`no_answer`).
    """
    from edgepanda.cli.local import LocalNode

    quiet(settings)
    loaded = settings.load()
    if loaded.config.node is None:
        return None
    try:
        status = await LocalNode.of(loaded).request("status", {}, within=settings.timeout or OWN_WITHIN)
    except EdgePandaError as error:
        if error.code != "no_answer":
            raise
        raise EdgePandaError(
            "this machine's node does not answer",
            code="no_answer",
            where=error.where,
            cure="start it with `edgepanda up`; `edgepanda doctor` says why; others: edgepanda card show NODE",
        ) from error
    return {"name": status["name"], "online": status["broker"], "card": status["card"]}


def _print(node: dict[str, Any]) -> None:
    card = node.get("card") or {}
    state = coloured("online") if node["online"] else "away"
    say(f"{click.style(node['name'], bold=True)}  {state}  card {card.get('revision', '-')}")
    fields([("description", card.get("description", "")), ("labels", plain(card.get("labels", {})))])
    _print_hardware(card.get("hardware", {}))
    for name, device in card.get("devices", {}).items():
        say(f"  {click.style(name, bold=True)}  {device['driver']}  {_state(device)}")
        _print_actions(card, name)
    for name, own in card.get("capabilities", {}).items():
        say(f"  {click.style(name, bold=True)}  {_state(own)}")
        _print_actions(card, None, name)


def _print_hardware(hardware: dict[str, Any]) -> None:
    from edgepanda.cli.hardware_view import hardware_lines

    for line in hardware_lines(hardware) if hardware else []:
        say(f"  {line}")


def _state(thing: dict[str, Any]) -> str:
    words = [coloured(thing.get("state", "probing"))]
    if thing.get("simulated"):
        words.append("simulated")
    if thing.get("reason"):
        words.append(f"{thing['reason']}" + (f"; {thing['cure']}" if thing.get("cure") else ""))
    return ", ".join(words)


def _print_actions(card: dict[str, Any], device: str | None, capability: str | None = None) -> None:
    for offer in offers_of(card):
        if offer.device != device or (capability and offer.capability != capability):
            continue
        action = offer.action
        name = f"{device}.{offer.action_name}" if device else offer.capability
        rules = f"tier {action.tier}, replay {action.replay}"
        say(f"    {name}   {action.description}  [{rules}]")
        properties = action.args.get("properties", {})
        required = action.args.get("required", [])
        fields(((key, _argument(schema, key in required)) for key, schema in properties.items()), indent="      ")


def _argument(schema: dict[str, Any], required: bool) -> str:
    kind = schema.get("type") or " or ".join(
        str(part.get("type")) for part in schema.get("anyOf", []) if part.get("type") != "null"
    )
    words = [kind if isinstance(kind, str) else " or ".join(kind)]
    if "enum" in schema:
        words = ["one of " + ", ".join(str(value) for value in schema["enum"])]
    if schema.get("unit"):
        words.append(f"({schema['unit']})")
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None or high is not None:
        words.append(f"{_limit(low)}..{_limit(high)}")
    if schema.get("default") is not None:
        words.append(f"default {plain(schema['default'])}")
    words.append("required" if required else "optional")
    return " ".join(word for word in words if word) + (
        f"  {schema['description']}" if schema.get("description") else ""
    )


def _limit(value: Any) -> str:
    return "" if value is None else plain(value)


card_command = _Card(
    "card",
    commands={"show": _show, "edit": edit_command, "rescan": rescan_command},
    help="What a node is and can do: show it, edit what people say of it, have it look again.",
)
