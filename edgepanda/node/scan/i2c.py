"""I2C buses, and what answers on those where asking is harmless."""

from __future__ import annotations

import re

from edgepanda.model.hardware import I2cBus
from edgepanda.node.scan import firmware
from edgepanda.node.scan.edge import StuckBus
from edgepanda.node.scan.fault import Fault, denied, fields, module
from edgepanda.node.scan.root import Root

PI_HEADER = range(1, 10)  # 0 and those from 10 on are its own: identification of HATs, camera, display
DISPLAY = re.compile(
    r"7e805000|hdmi|ddc|gmbus|aux|amdgpu|nvidia|radeon", re.IGNORECASE
)  # 7e805000: of a Pi before the 5
STUCK = Fault("stuck", "the bus does not answer: a chip or a wire holds SDA or SCL low", "check wires and power")


def i2c(root: Root) -> tuple[I2cBus, ...]:
    """All buses that the kernel has, and a Raspberry Pi's own when it is switched off."""
    found = [_bus(root, name) for name in root.names("sys/bus/i2c/devices", r"i2c-\d+")]
    off = firmware.switched_off(root, "aliases/i2c", "dtparam=i2c_arm=on", "the I2C bus of the header")
    if off is not None and all(bus.name != "i2c-1" for bus in found):
        found.insert(0, I2cBus(name="i2c-1", **off.fields))
    return tuple(found)


def _bus(root: Root, name: str) -> I2cBus:
    adapter, taken = root.text(f"sys/bus/i2c/devices/{name}/name"), _taken(root, name)
    device = f"/dev/{name}"
    fault = None
    if not root.has(device[1:]):
        fault = module("i2c-dev", f"there is no {device}: the module i2c-dev is not loaded")
    else:
        fault = denied(root, device, "i2c")
    answers, probed = list[int](), False
    if fault is None and _harmless(root, name, adapter, taken):
        try:
            answers, probed = root.edge.i2c_answers(root.path / device[1:], frozenset(taken)), True
        except StuckBus:
            fault = STUCK
        except OSError as error:
            fault = Fault(
                "unreadable", f"{device} cannot be asked: {error.strerror}", "`i2cdetect -F` shows what it can"
            )
    told = {**taken, **dict.fromkeys(answers, "answers")}
    addresses = {f"0x{address:02x}": told[address] for address in sorted(told)}
    return I2cBus(name=name, device=device, adapter=adapter, probed=probed, addresses=addresses, **fields(fault))


def _taken(root: Root, name: str) -> dict[int, str]:
    """The addresses that the kernel knows, with the driver of each."""
    number, found = name.removeprefix("i2c-"), {}
    for client in root.names("sys/bus/i2c/devices", rf"{number}-[0-9a-f]{{4}}"):
        driver = root.link(f"sys/bus/i2c/devices/{client}/driver")
        chip = root.text(f"sys/bus/i2c/devices/{client}/name") or "a chip"
        told = f"in use by kernel driver {driver}" if driver else f"known to the kernel as {chip}, without a driver"
        found[int(client[-4:], 16)] = told
    return found


def _harmless(root: Root, name: str, adapter: str, taken: dict[int, str]) -> bool:
    """Whether unknown chips may be asked: on a bus for people's own chips. Not on displays' and cameras' buses, nor on
    those of a PC's or another board's power supply and sensors.
    """
    if DISPLAY.search(adapter) or "mux" in adapter.lower() or "smbus" in adapter.lower():
        return False
    if "/usb" in root.real(f"sys/bus/i2c/devices/{name}"):
        return True
    if firmware.is_pi(root):
        return int(name.removeprefix("i2c-")) in PI_HEADER and not any("csi" in told for told in taken.values())
    return bool(firmware.model(root)) and not taken
