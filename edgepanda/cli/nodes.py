"""`nodes`: who is there, and who is let in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from edgepanda.cli.cards import fetch_nodes
from edgepanda.cli.common import Settings, ask, command, label_option, node_option
from edgepanda.cli.out import emit, say, span, table


class _Nodes(click.Group):
    """`nodes` alone lists, with the options of `nodes list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the subcommand `list` in where none is named."""
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@command(
    "list",
    examples="""
    edgepanda nodes
    edgepanda nodes --online --label room=lab
    edgepanda nodes list --json
    """,
)
@label_option("Only nodes with this label.")
@node_option("Only this one.")
@click.option("--online", "state", flag_value="online", help="Only those that are here.")
@click.option("--away", "state", flag_value="away", help="Only those that are not.")
def _list(settings: Settings, node: str | None, labels: dict[str, str], state: str | None) -> None:
    """List the nodes that the coordinator knows, with what they say of themselves."""
    known = ask(settings, lambda client: fetch_nodes(client, node))
    found = [each for each in known if suits(each, labels, state)]
    if settings.json:
        emit({"nodes": [summary(node) for node in found]})
    elif found or not (labels or state):
        show_nodes(found)
    else:
        say("no such node")


@command("add", short_help="Let a node in: NAME KEY", examples="edgepanda nodes add shed ed25519:...")
@click.argument("name")
@click.argument("key")
def _add(settings: Settings, name: str, key: str) -> None:
    """Let a node in: its name and public key, as `edgepanda init --node-only` printed them on that machine."""
    from edgepanda.model.ids import check_name
    from edgepanda.trust.identity import decode_key
    from edgepanda.trust.peers import Peer

    check_name(name, "NAME")
    decode_key(key)
    done = ask(settings, lambda client: client.add_peer(Peer(key=key, name=name, role="node")))
    if settings.json:
        emit({"name": name, **done})
    else:
        say(f"{name} is let in; it shows up in `edgepanda nodes` once it runs")


@command("remove", short_help="Let a node in no longer: NAME", examples="edgepanda nodes remove shed")
@click.argument("name")
def _remove(settings: Settings, name: str) -> None:
    """Let a node in no longer: its key is revoked, and nothing that it says counts."""
    done = ask(settings, lambda client: client.remove_peer(name))
    if settings.json:
        emit({"name": name, **done})
    else:
        say(f"{name} is let in no longer")


@command("rename", short_help="Give a node another name: OLD NEW", examples="edgepanda nodes rename desk lab")
@click.argument("old")
@click.argument("new")
def _rename(settings: Settings, old: str, new: str) -> None:
    """Give a node another name. Its key stays, and so do its tasks: what waits for it comes to it under the new name.

    The node takes the name by itself, at once or as soon as it is connected; nothing stays under the old one on the
    broker. What the ledger has recorded keeps the name of its time. It is refused while the node works.
    """
    from edgepanda.model.ids import check_name

    check_name(new, "NEW")
    done = ask(settings, lambda client: client.rename_node(old, new))
    if settings.json:
        emit({"name": new, "formerly": old, **done})
    else:
        say(f"{old} is {new} from now on; it takes the name by itself, as soon as it is connected")


nodes_command = _Nodes(
    "nodes",
    commands={"list": _list, "add": _add, "rename": _rename, "remove": _remove},
    help="List the nodes, let one in, rename one, or let one in no longer. Without a subcommand it lists.",
)


def suits(node: dict[str, Any], labels: dict[str, str], state: str | None) -> bool:
    """Whether a node has these labels and is `online` or `away`. Pure."""
    own = (node.get("card") or {}).get("labels", {})
    return state in (None, _word(node)) and all(own.get(key) == value for key, value in labels.items())


def summary(node: dict[str, Any]) -> dict[str, Any]:
    """A node as `node.get` gives it, with a digest of its card in the card's place. Pure."""
    card = node.get("card") or {}
    devices = card.get("devices", {})
    offered = {f"{device['driver']}.{action}" for device in devices.values() for action in _actions(card, device)}
    return {
        **{key: value for key, value in node.items() if key != "card"},
        "devices": {name: device.get("state", "probing") for name, device in devices.items()},
        "capabilities": sorted(offered | set(card.get("capabilities", {}))),
        "labels": card.get("labels", {}),
        "software": card.get("software", ""),
        "troubles": troubles(node),
    }


def _actions(card: dict[str, Any], device: dict[str, Any]) -> dict[str, Any]:
    actions: dict[str, Any] = card.get("drivers", {}).get(device["driver"], {}).get("actions", {})
    return actions


def troubles(node: dict[str, Any]) -> list[str]:
    """What of a node cannot be used: its place, the reason and the cure. Pure."""
    card = node.get("card") or {}
    found = [
        f"{node['name']} is stopped by {stop.get('by') or 'somebody'}"
        + (f": {stop['reason']}" if stop.get("reason") else "")
        + "; `edgepanda release` ends it"
        for stop in node.get("stops", ())
    ]
    for name, thing in {**card.get("devices", {}), **card.get("capabilities", {})}.items():
        state = thing.get("state", "probing")
        if state not in ("ready", "probing"):
            why = "; ".join(text for text in (thing.get("reason"), thing.get("cure")) if text)
            found.append(f"{node['name']}/{name} is {state}" + (f": {why}" if why else ""))
    return found


def _word(node: dict[str, Any]) -> str:
    return "online" if node["online"] else "away"


def show_nodes(found: list[dict[str, Any]]) -> None:
    """A table of nodes as `node.list` or, with their cards, `node.get` gives them."""
    if not found:
        say("no node has said anything yet")
        return
    headers = ["NODE", "STATE", "HEARD", "FREE", "LOAD", "TEMP"]
    cards = any(node.get("card") for node in found)
    table(
        [*headers, "DEVICES", "SOFTWARE", "CAPABILITIES"] if cards else headers,
        [[*_signs(node), *(_offered(node) if cards else ())] for node in found],
    )


def _signs(node: dict[str, Any]) -> list[str]:
    return [
        node["name"],
        _word(node) + _holds_back(node),
        "-" if node.get("seen") is None else span(node["seen"]) + " ago",
        f"{node.get('free', 0)}/{node.get('slots', 0)}",
        f"{node.get('load', 0.0):.2f}",
        "-" if node.get("temperature") is None else f"{node['temperature']:.0f} C",
    ]


def _holds_back(node: dict[str, Any]) -> str:
    if node.get("stops"):
        return ", STOPPED"
    return "" if node["claiming"] or not node["online"] else ", claims nothing"


def _offered(node: dict[str, Any]) -> list[str]:
    told = summary(node)
    states = list(told["devices"].values())
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states, reverse=True))]
    return [", ".join(counts) or "-", told["software"] or "-", families(told["capabilities"]) or "-"]


def families(capabilities: Sequence[str]) -> str:
    """Capabilities with the common part said once: `servo.{move,read}`. Pure."""
    groups: dict[str, list[str]] = {}
    for name in capabilities:
        family, _, action = name.partition(".")
        groups.setdefault(family, []).append(action)
    return " ".join(
        ".".join(word for word in (family, *actions) if word)
        if len(actions) == 1
        else f"{family}.{{{','.join(actions)}}}"
        for family, actions in groups.items()
    )
