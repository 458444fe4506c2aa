"""PWM chips."""

from __future__ import annotations

from edgepanda.model.hardware import PwmChip
from edgepanda.node.scan import firmware
from edgepanda.node.scan.fault import denied, fields
from edgepanda.node.scan.root import DEVICE_TREE, Root

CLASS = "sys/class/pwm"


def pwm(root: Root) -> tuple[PwmChip, ...]:
    """All chips that the kernel has, and the one of a Raspberry Pi's header when it is switched off."""
    found = [_chip(root, name) for name in root.names(CLASS, r"pwmchip\d+")]
    off = firmware.switched_off(root, "__symbols__/pwm", "dtoverlay=pwm-2chan", "hardware PWM on the header")
    if off is not None:
        name = root.text(f"{DEVICE_TREE}/__symbols__/pwm").rpartition("/")[2]
        found.append(PwmChip(name=name, **off.fields))
    return tuple(found)


def _chip(root: Root, name: str) -> PwmChip:
    below = root.real(f"{CLASS}/{name}/device").rpartition("/")[2]
    return PwmChip(
        name=below or name,
        device=f"/{CLASS}/{name}",
        channels=root.number(f"{CLASS}/{name}/npwm") or 0,
        **fields(denied(root, f"/{CLASS}/{name}/export", "gpio", need=0o2)),
    )
