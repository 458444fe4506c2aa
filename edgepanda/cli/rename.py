"""`rename`: another name for this machine's node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.local import CONNECT_WITHIN, LocalNode
from edgepanda.cli.out import emit, hint, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded

_NO_OPERATOR = frozenset({"operator_key_missing", "site_key_missing"})


@command("rename", examples="edgepanda rename lab\nedgepanda rename lab --json")
@click.argument("name", metavar="NEW")
def rename_command(settings: Settings, name: str) -> None:
    """Give this machine's node another name: at its site, and in its configuration, whose comments stay.

    The site comes first, as `edgepanda nodes rename`, and may refuse; then nothing is changed. Where you have no
    operator's key, the configuration alone is changed, and you are told what an operator types. If it was interrupted,
    the same command completes it.
    """
    from edgepanda.model.ids import check_name

    check_name(name, "NEW")
    loaded = settings.load()
    loaded.require_node()
    old = _present_name(loaded)
    told = old == name or _tell_site(settings, old, name)
    changed = _write(loaded, name)
    if settings.json:
        emit({"name": name, "formerly": old, "site": told, "configuration": changed})
        return
    say(f"{old} is {name} from now on" if told else f"the configuration calls this node {name}")
    if not told:
        hint(f"At the site it is {old} still. An operator renames it there: edgepanda nodes rename {old} {name}")
        hint("If it was not let in yet, start the node anew and let it in under the new name.")


def _present_name(loaded: Loaded) -> str:
    """What the node is called now: as it says itself, or as the site has told it, or as it is configured."""
    from edgepanda.node.daemon import node_key_path, node_name
    from edgepanda.node.site import name_at_site
    from edgepanda.trust.identity import Identity, encode_key

    local = LocalNode.of(loaded)
    if local.present:
        try:
            status: dict[str, Any] = asyncio.run(local.request("status", {}, within=CONNECT_WITHIN))
            return str(status["name"])
        except EdgePandaError as error:
            if error.code != "no_answer":
                raise
    identity = Identity.load(node_key_path(loaded))
    known = name_at_site(loaded.state_dir / "node-peers.json", encode_key(identity.public))
    return known or node_name(loaded, identity)


def _tell_site(settings: Settings, old: str, new: str) -> bool:
    """Rename it at the site; False where that is an operator's business, or the site does not know it yet."""
    try:
        ask(settings, lambda client: client.rename_node(old, new))
    except EdgePandaError as error:
        if error.code in _NO_OPERATOR or error.code == "unknown_node":
            return False
        raise
    return True


def _write(loaded: Loaded, name: str) -> bool:
    """Whether the configuration had another name."""
    from edgepanda.config_edit import ConfigFile

    file = ConfigFile(loaded.path)
    file.set(("node", "name"), name)
    return file.save()
