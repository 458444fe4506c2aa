"""`nodes`: who is there, and who is let in."""

from __future__ import annotations

from typing import Any

import click

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.out import emit, say, span, table


class _Nodes(click.Group):
    """`nodes` alone lists, with the options of `nodes list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the subcommand `list` in where none is named."""
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@command("list", examples="edgepanda nodes\nedgepanda nodes list --json")
def _list(settings: Settings) -> None:
    """List the nodes that the coordinator knows."""
    found = ask(settings, lambda client: client.nodes())
    if settings.json:
        emit({"nodes": found})
    else:
        show_nodes(found)


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


nodes_command = _Nodes(
    "nodes",
    commands={"list": _list, "add": _add, "remove": _remove},
    help="List the nodes, let one in, or let one in no longer. Without a subcommand it lists.",
)


def show_nodes(found: list[dict[str, Any]]) -> None:
    """A table of nodes as `node.list` gives them."""
    if not found:
        say("no node has said anything yet")
        return
    table(
        ["NODE", "STATE", "SLOTS FREE", "LOAD", "TEMPERATURE", "LAST HEARD"],
        [
            (
                node["name"],
                ("online" if node["online"] else "away")
                + ("" if node["claiming"] or not node["online"] else ", claims nothing"),
                f"{node.get('free', 0)} of {node.get('slots', 0)}",
                f"{node.get('load', 0.0):.2f}",
                "-" if node.get("temperature") is None else f"{node['temperature']:.0f} C",
                "-" if node.get("seen") is None else span(node["seen"]) + " ago",
            )
            for node in found
        ],
    )
