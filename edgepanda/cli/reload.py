"""Have this machine's node take up what a command wrote into its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from edgepanda.cli.local import LocalNode
from edgepanda.cli.out import hint, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.cli.common import Settings
    from edgepanda.model.config import Loaded

RELOAD_WITHIN = 30.0  # seconds: the node itself answers within 12


class Taken(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of a change at the running node."""

    running: bool
    reloaded: bool = False
    state: str = ""  # of the device, on the node's card
    reason: str = ""
    cure: str = ""
    restart: tuple[str, ...] = ()  # keys that only a restart takes up
    error: dict[str, Any] | None = None


async def take_up(loaded: Loaded, name: str = "") -> Taken:
    """Have the node reload; what it says of the device `name`. Raises nothing that a node says."""
    local = LocalNode.of(loaded)
    if not local.present:
        return Taken(running=False)
    try:
        told = await local.request("reload", {}, within=RELOAD_WITHIN)
    except EdgePandaError as error:
        return Taken(running=error.code != "no_answer", error=error.as_dict())
    restart = tuple(told["restart"])
    if not name:
        return Taken(running=True, reloaded=True, restart=restart)
    return Taken(running=True, reloaded=True, restart=restart, **told["states"].get(name, {"state": "gone"}))


def tell(taken: Taken, option: str) -> None:
    """Says it to a person; `option` is `--config FILE` where that is needed."""
    if taken.reloaded:
        if taken.state not in ("", "ready", "gone"):
            why = "; ".join(text for text in (taken.reason, taken.cure) if text)
            hint(f"the node has it, but it is {taken.state}" + (f": {why}" if why else ""))
        if taken.restart:
            hint(f"only a restart of EdgePanda on this machine takes up: {', '.join(taken.restart)}")
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
