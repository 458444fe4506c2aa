"""USB devices: what is below a device, and interfaces that no kernel driver has taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from edgepanda.node.scan.fault import Fault
from edgepanda.node.scan.root import Root

SERIAL_CHIPS = {"1a86:7523": "ch341", "1a86:55d4": "cdc_acm", "10c4:ea60": "cp210x", "0403:6001": "ftdi_sio"} | {
    "0403:6015": "ftdi_sio",
    "067b:2303": "pl2303",
    "2341:0043": "cdc_acm",
}
"""The usual serial chips that are of no class, and the module of each."""
CLASSES = {"0101": "snd-usb-audio", "0e01": "uvcvideo", "0202": "cdc_acm"}
"""The control interfaces of a class and subclass, and the module of each."""


class Usb(NamedTuple):
    """A USB device in words."""

    id: str = ""
    name: str = ""


def of(root: Root, path: str) -> Usb:
    """The USB device that a path of sysfs is below, if any."""
    parts = root.real(path).split("/")
    if not any(part.startswith("usb") for part in parts):
        return Usb()
    while parts:
        folder = "/".join(parts)
        vendor, product = root.text(f"{folder}/idVendor"), root.text(f"{folder}/idProduct")
        if vendor and product:
            names = [root.text(f"{folder}/{name}") for name in ("manufacturer", "product")]
            return Usb(f"{vendor}:{product}", " ".join(name for name in names if name))
        parts.pop()
    return Usb()


def driverless(root: Root, kind: str) -> Iterator[tuple[Usb, Fault]]:
    """Devices that no driver has, of a kind: "snd-usb-audio", "uvcvideo" or "serial"."""
    seen = set()
    for name in root.names("sys/bus/usb/devices", r"[0-9.-]+:[0-9.]+"):
        folder = f"sys/bus/usb/devices/{name}"
        if root.has(f"{folder}/driver"):
            continue
        device = of(root, folder)
        wanted = SERIAL_CHIPS.get(device.id) or CLASSES.get(_class(root, folder), "")
        about = wanted if wanted in ("snd-usb-audio", "uvcvideo") else "serial"
        if device.id in seen or not wanted or about != kind:
            continue
        seen.add(device.id)
        yield device, Fault("module", f"no kernel driver has taken it; it needs {wanted}", f"sudo modprobe {wanted}")


def _class(root: Root, folder: str) -> str:
    return root.text(f"{folder}/bInterfaceClass") + root.text(f"{folder}/bInterfaceSubClass")
