"""`card`: what the nodes can do."""

from __future__ import annotations

from typing import Any

import click

from edgepanda.cli.cards import fetch_nodes, offers_of
from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.out import coloured, emit, fields, plain, say


@command("card", examples="edgepanda card\nedgepanda card desk\nedgepanda card desk --json")
@click.argument("node", required=False)
def card_command(settings: Settings, node: str | None) -> None:
    """What the nodes can do: devices with their state, actions with arguments, units and limits, capabilities."""
    found = ask(settings, lambda client: fetch_nodes(client, node))
    if settings.json:
        emit(found[0] if node else {"nodes": found})
    elif not found:
        say("no node has said anything yet")
    else:
        for each in found:
            _print(each)


def _print(node: dict[str, Any]) -> None:
    card = node.get("card") or {}
    state = coloured("online") if node["online"] else "away"
    say(f"{click.style(node['name'], bold=True)}  {state}  card {card.get('revision', '-')}")
    fields([("labels", plain(card.get("labels", {}))), ("hardware", plain(card.get("hardware", {})))])
    for name, device in card.get("devices", {}).items():
        say(f"  {click.style(name, bold=True)}  {device['driver']}  {_state(device)}")
        _print_actions(card, name)
    for name, own in card.get("capabilities", {}).items():
        say(f"  {click.style(name, bold=True)}  {_state(own)}")
        _print_actions(card, None, name)


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
