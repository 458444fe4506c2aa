"""SPI chip selects."""

from __future__ import annotations

from edgepanda.model.hardware import SpiDevice
from edgepanda.node.scan import firmware
from edgepanda.node.scan.fault import Fault, denied, fields
from edgepanda.node.scan.root import Root


def spi(root: Root) -> tuple[SpiDevice, ...]:
    """All chip selects that the kernel has, and a Raspberry Pi's own when they are switched off."""
    found = [_device(root, name) for name in root.names("sys/bus/spi/devices", r"spi\d+\.\d+")]
    off = firmware.switched_off(root, "aliases/spi0", "dtparam=spi=on", "the SPI bus of the header")
    if off is not None and all(not device.name.startswith("spi0.") for device in found):
        found += [SpiDevice(name=f"spi0.{select}", **off.fields) for select in (0, 1)]
    return tuple(found)


def _device(root: Root, name: str) -> SpiDevice:
    driver, device = root.link(f"sys/bus/spi/devices/{name}/driver"), f"/dev/{name.replace('spi', 'spidev')}"
    if driver != "spidev":
        reason = f"in use by kernel driver {driver}" if driver else "no kernel driver has it"
        cure = "it is the board's own, or an overlay's: take that out of the configuration to use it yourself"
        return SpiDevice(name=name, **Fault("kernel", reason, cure).fields)
    if not root.has(device[1:]):
        return SpiDevice(name=name, **Fault("kernel", f"there is no {device}", "is udev running?").fields)
    return SpiDevice(name=name, device=device, **fields(denied(root, device, "spi")))
