"""Switches of a Raspberry Pi's config.txt, as the device tree shows them: a node that is there and `disabled`."""

from __future__ import annotations

from edgepanda.node.scan.fault import Fault
from edgepanda.node.scan.root import DEVICE_TREE, Root

CONFIGS = ("boot/firmware/config.txt", "boot/config.txt")


def model(root: Root) -> str:
    """The board's name in its device tree; empty on a machine without one."""
    return root.text(f"{DEVICE_TREE}/model")


def is_pi(root: Root) -> bool:
    """True on a Raspberry Pi."""
    return model(root).startswith("Raspberry Pi")


def switched_off(root: Root, node: str, line: str, what: str) -> Fault | None:
    """A part of a Raspberry Pi that is off.

    `node`: where the device tree names its path (`aliases/i2c`); `line`: what config.txt needs.
    """
    path = root.text(f"{DEVICE_TREE}/{node}").lstrip("/")
    if not is_pi(root) or not path or root.text(f"{DEVICE_TREE}/{path}/status") != "disabled":
        return None
    file = next((name for name in CONFIGS if root.has(name)), CONFIGS[0])
    if line in {text.strip() for text in root.lines(file)}:
        return Fault("overlay", f"{what} is switched off", f"/{file} has `{line}` already: restart the machine")
    return Fault("overlay", f"{what} is switched off", f"add the line `{line}` to /{file} and restart the machine")
