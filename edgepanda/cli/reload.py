"""Have this machine's node take up what a command wrote into its configuration."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from edgepanda.cli.local import LocalNode
from edgepanda.cli.out import hint, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.cli.common import Settings
    from edgepanda.model.config import Loaded

RELOAD_WITHIN = 60.0  # seconds: a changed device waits for its running work
SETTLED_WITHIN = 10.0  # seconds in which a new device is probed
LOOK_EVERY = 0.05


class Taken(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of a change at the running node."""

    running: bool
    reloaded: bool = False
    state: str = ""  # of the device, on the node's card
    reason: str = ""
    cure: str = ""
    error: dict[str, Any] | None = None

    @property
    def ready(self) -> bool:
        """Whether the device can be used now."""
        return self.reloaded and self.state == "ready"


async def take_up(loaded: Loaded, name: str) -> Taken:
    """Tell the node to reload, and wait until it knows what becomes of the device. Raises nothing that a node says."""
    taken = await ask_reload(loaded)
    return await _settled(LocalNode.of(loaded), name) if taken.reloaded else taken


async def ask_reload(loaded: Loaded) -> Taken:
    """Tell the node to reload. Raises nothing that a node says."""
    local = LocalNode.of(loaded)
    if not local.present:
        return Taken(running=False)
    try:
        await local.request("reload", {}, within=RELOAD_WITHIN)
    except EdgePandaError as error:
        return Taken(running=error.code != "no_answer", error=error.as_dict())
    return Taken(running=True, reloaded=True)


async def _settled(local: LocalNode, name: str) -> Taken:
    taken = Taken(running=True, reloaded=True)
    for _ in range(int(SETTLED_WITHIN / LOOK_EVERY)):
        card = await local.card() or {}
        thing = {**card.get("devices", {}), **card.get("capabilities", {})}.get(name)
        if thing is None:
            return Taken(running=True, reloaded=True, state="gone")
        told = {key: thing.get(key, "") for key in ("reason", "cure")}
        taken = Taken(running=True, reloaded=True, state=thing.get("state", "probing"), **told)
        if taken.state != "probing":
            break
        await asyncio.sleep(LOOK_EVERY)  # the card is all that tells
    return taken


def tell(taken: Taken, option: str) -> None:
    """Says it to a person; `option` is `--config FILE` where that is needed."""
    if taken.reloaded:
        if taken.state not in ("", "ready", "gone"):
            why = "; ".join(text for text in (taken.reason, taken.cure) if text)
            hint(f"the node has it, but it is {taken.state}" + (f": {why}" if why else ""))
        return
    if not taken.running:
        say(f"no node is running; it counts once you start it: edgepanda up{option}")
    elif taken.error is not None and taken.error["code"] == "unsupported":
        hint("the running node is of a version that cannot reload; restart it: only then it counts")
    elif taken.error is not None:
        hint(f"the running node did not take it up: {EdgePandaError.from_dict(taken.error)} [{taken.error['code']}]")


def option_of(settings: Settings, loaded: Loaded) -> str:
    """` --config FILE` for a command that is shown, where this one needed it too."""
    return f" --config {loaded.path}" if settings.config else ""
