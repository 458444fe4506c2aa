"""Disks and cards."""

from __future__ import annotations

from edgepanda.model.hardware import Disk
from edgepanda.node.scan.fault import Fault, fields
from edgepanda.node.scan.root import Root

NO_DISK = r"(?!loop|ram|zram|dm-|md|sr|fd|nbd|mtd|.*boot\d|.*rpmb).+"
CARDS = {"SD": "SD card", "MMC": "eMMC"}


def disks(root: Root) -> tuple[Disk, ...]:
    """All that have a size; no partitions, no virtual layers, no empty card readers."""
    return tuple(
        _disk(root, name) for name in root.names("sys/block", NO_DISK) if root.number(f"sys/block/{name}/size")
    )


def _disk(root: Root, name: str) -> Disk:
    block = f"sys/block/{name}"
    read_only = Fault("read_only", "it can only be read", "is the card's switch on lock, or the card worn out?")
    return Disk(
        name=name,
        device=f"/dev/{name}",
        kind=_kind(root, name),
        model=root.text(f"{block}/device/model") or root.text(f"{block}/device/name"),
        size_mib=(root.number(f"{block}/size") or 0) // 2048,  # sectors of 512 bytes, whatever the disk has
        **fields(read_only if root.text(f"{block}/ro") == "1" else None),
    )


def _kind(root: Root, name: str) -> str:
    if name.startswith("mmcblk"):
        return CARDS.get(root.text(f"sys/block/{name}/device/type"), "")
    if name.startswith("nvme"):
        return "NVMe"
    if name.startswith(("vd", "xvd")):
        return "virtual"
    return "USB" if "/usb" in root.real(f"sys/block/{name}") else "SATA" if name.startswith("sd") else ""
