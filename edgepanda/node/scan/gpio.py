"""GPIO chips: number, label and lines from sysfs, or from the chip itself where sysfs has no labels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from edgepanda.drivers.gpio import HEADER_LABELS
from edgepanda.model.hardware import GpioChip
from edgepanda.node.scan.fault import Fault, denied, fields
from edgepanda.node.scan.root import Root


def gpio(root: Root) -> tuple[GpioChip, ...]:
    """All chips, by number."""
    chips = root.names("sys/bus/gpio/devices", r"gpiochip\d+") or [
        name for name in root.names("dev", r"gpiochip\d+") if not root.link(f"dev/{name}")
    ]
    known = _labels(root)
    found = [(chip, *(known.get(chip) or root.edge.gpio_chip(root.path / "dev" / chip) or ("", 0))) for chip in chips]
    often = Counter(label for _, label, _ in found)
    return tuple(
        GpioChip(
            name=(label if often[label] == 1 else f"{label} {chip}") if label else chip,
            device=f"/dev/{chip}",
            lines=lines,
            header=label in HEADER_LABELS,
            **fields(_fault(root, chip)),
        )
        for chip, label, lines in found
    )


def header_chip(root: Root | None = None) -> str | None:
    """The chip that numbers of a Raspberry Pi's header are lines of, as the servo's driver chooses it: by its label,
    else the first. None where no chip tells its label.
    """
    chips = [chip for chip in gpio(root or Root(Path("/"))) if chip.lines]
    header = [Path(chip.device).name for chip in chips if chip.header]
    return header[0] if header else "gpiochip0" if chips else None


def _fault(root: Root, chip: str) -> Fault | None:
    if not root.has(f"dev/{chip}"):
        return Fault("kernel", f"there is no /dev/{chip}", "is udev running? a container needs the device passed in")
    return denied(root, f"/dev/{chip}", "gpio")


def _labels(root: Root) -> dict[str, tuple[str, int]]:
    """Label and lines of each chip. /sys/class/gpio numbers chips by their first line; both it and the chip's own
    folder are below the same hardware, and in the same order.
    """
    by_parent: dict[str, list[tuple[str, int]]] = {}
    for name in root.names("sys/class/gpio", r"gpiochip\d+"):
        folder = f"sys/class/gpio/{name}"
        label, lines = root.text(f"{folder}/label"), root.number(f"{folder}/ngpio")
        if label and lines is not None:
            by_parent.setdefault(root.real(f"{folder}/device"), []).append((label, lines))
    found: dict[str, tuple[str, int]] = {}
    for parent, labels in by_parent.items():
        chips = root.names(parent, r"gpiochip\d+") if parent else []
        chips = [chip for chip in chips if root.has(f"sys/bus/gpio/devices/{chip}")]
        if len(chips) == len(labels):
            found.update(zip(chips, labels, strict=True))
    return found
