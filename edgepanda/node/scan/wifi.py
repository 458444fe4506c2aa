"""Wi-Fi interfaces."""

from __future__ import annotations

from edgepanda.model.hardware import Wifi
from edgepanda.node.scan.fault import Fault, fields
from edgepanda.node.scan.root import Root

NET = "sys/class/net"


def interfaces(root: Root) -> list[str]:
    """The names of all Wi-Fi interfaces."""
    return [
        name for name in root.names(NET) if root.has(f"{NET}/{name}/phy80211") or root.has(f"{NET}/{name}/wireless")
    ]


def wifi(root: Root) -> tuple[Wifi, ...]:
    """All of them, with what blocks the radio."""
    return tuple(
        Wifi(name=name, device=name, driver=root.link(f"{NET}/{name}/device/driver"), **fields(_blocked(root, name)))
        for name in interfaces(root)
    )


def _blocked(root: Root, name: str) -> Fault | None:
    for switch in root.names(f"{NET}/{name}/phy80211", r"rfkill\d+"):
        if root.text(f"{NET}/{name}/phy80211/{switch}/hard") == "1":
            return Fault("blocked", "the radio is off by a switch of the machine", "turn that switch")
        if root.text(f"{NET}/{name}/phy80211/{switch}/soft") == "1":
            cure = "sudo rfkill unblock wifi; a Raspberry Pi wants its Wi-Fi country first (`sudo raspi-config`)"
            return Fault("blocked", "the radio is switched off", cure)
    return None
