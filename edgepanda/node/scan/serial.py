"""Serial ports by their stable id."""

from __future__ import annotations

from edgepanda.model.hardware import SerialPort
from edgepanda.node.scan import firmware, usb
from edgepanda.node.scan.fault import Fault, busy, denied, fields
from edgepanda.node.scan.root import Root

CLASS = "sys/class/tty"
NAMES = r"tty(S|AMA|USB|ACM|O|THS|mxc|SAC|FIQ|GS|XRUSB)\d+"


def serial(root: Root) -> tuple[SerialPort, ...]:
    """All ports with hardware behind them, and the one of a Raspberry Pi's header when it is switched off."""
    stable = {root.link(f"dev/serial/by-id/{name}"): name for name in root.names("dev/serial/by-id")}
    board = {root.link(f"dev/{name}"): name for name in root.names("dev", r"serial\d+")}
    found = [
        _port(root, name, stable.get(name) or board.get(name) or name)
        for name in root.names(CLASS, NAMES)
        if root.has(f"{CLASS}/{name}/device")
        and root.text(f"{CLASS}/{name}/type") != "0"  # 0: a port of the table only
    ]
    pi5 = firmware.model(root).startswith("Raspberry Pi 5")  # its serial0 is the debug connector
    name, line = ("ttyAMA0", "dtparam=uart0=on") if pi5 else ("serial0", "enable_uart=1")
    off = firmware.switched_off(root, "aliases/serial0", line, "the serial port of the header")
    if off is not None and all(port.name != name for port in found):
        found.append(SerialPort(name=name, **off.fields))
    for device, fault in usb.driverless(root, "serial"):
        found.append(SerialPort(name=device.id, usb=device.id, model=device.name, **fault.fields))
    return tuple(found)


def _port(root: Root, name: str, stable: str) -> SerialPort:
    device, below = f"/dev/{name}", usb.of(root, f"{CLASS}/{name}/device")
    return SerialPort(
        name=stable,
        device=device,
        driver=root.link(f"{CLASS}/{name}/device/driver"),
        model=below.name,
        usb=below.id,
        **fields(_console(root, name), denied(root, device, "dialout"), busy(root, device)),
    )


def _console(root: Root, name: str) -> Fault | None:
    if name not in root.text(f"{CLASS}/console/active").split():
        return None
    tool = "`sudo raspi-config`, Interface Options, Serial Port: no login shell" if firmware.is_pi(root) else ""
    cure = tool or f"take console={name} out of the kernel's command line"
    return Fault("busy", "the kernel's console is on it", f"{cure}; then restart the machine")
