"""Runs inside the virtual machine: scans it, and holds what is found against what its kernel was told to have."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.model.hardware import Hardware
from edgepanda.node import hotplug
from edgepanda.node.scan import Edge, readings, scan

failed: list[str] = []


def check(what: str, right: bool, shown: object = "") -> None:
    """Say how one thing went."""
    print(f"{'ok  ' if right else 'FAIL'} {what} {shown if not right else ''}".rstrip(), flush=True)
    if not right:
        failed.append(what)


def shell(text: str) -> None:
    """A command of the guest; its output goes to the console."""
    subprocess.run(["/bin/sh", "-c", text], check=False)


def item(hardware: Hardware, kind: str, name: str) -> Any:
    """An item by the beginning of its name."""
    return next((each for each in getattr(hardware, kind) if each.name.startswith(name)), None)


def pi3() -> None:
    """A Raspberry Pi 3 Model B."""
    found = scan()
    print(json.dumps(msgspec.to_builtins(found)))
    check("board", found.board == "Raspberry Pi 3 Model B", found.board)
    check("processor", (found.cpu, found.cpus) == ("Cortex-A53", 4), (found.cpu, found.cpus))
    chips = {chip.device: (chip.name, chip.lines) for chip in found.gpio}
    wanted = {"/dev/gpiochip0": ("pinctrl-bcm2835", 54), "/dev/gpiochip1": ("raspberrypi-exp-gpio", 8)}
    check("GPIO chips by sysfs", chips == wanted, chips)
    asked = {device: Edge().gpio_chip(Path(device)) for device in chips}
    check("GPIO chips by ioctl", asked == wanted, asked)
    check("a bus that does not answer", item(found, "i2c", "i2c-1").why == "stuck", found.i2c)
    check("PWM", [chip.name for chip in found.pwm] == ["3f20c000.pwm"], found.pwm)
    check("temperature", readings().temperature is not None)


def pc() -> None:
    """A PC with drivers that stand for hardware."""
    for module in ("i2c-dev", "i2c-stub chip_addr=0x20,0x50,0x68", "snd-aloop", "mac80211_hwsim radios=1"):
        shell(f"modprobe {module}")
    shell("udevadm settle")
    bus = next(each for each in scan().i2c if "stub" in each.adapter)
    found = Edge().i2c_answers(Path(bus.device), frozenset())
    check("I2C chips answer", found == [0x20, 0x50, 0x68], found)
    check("an address is left out", Edge().i2c_answers(Path(bus.device), frozenset({0x50})) == [0x20, 0x68])
    shell(f"echo 24c02 0x50 >/sys/bus/i2c/devices/{bus.name}/new_device; modprobe at24; udevadm settle")
    taken = item(scan(), "i2c", bus.name).addresses
    check("a driver's address is named", taken == {"0x50": "in use by kernel driver at24"}, taken)
    found = Edge().i2c_answers(Path(bus.device), frozenset())
    check("and is not asked", found == [0x20, 0x68], found)
    check("a gadget is heard when it comes", asyncio.run(_heard("modprobe dummy_hcd; modprobe g_serial")))
    shell("udevadm settle")
    port = item(scan(), "serial", "usb-")
    check("and found by its id", port is not None and port.device == "/dev/ttyACM0", scan().serial)
    with subprocess.Popen(["sleep", "600"], stdin=open("/dev/ttyACM0")) as holder:
        port = item(_as("pass"), "serial", "usb-")
        check("with who has it", port.why == "busy" and f"sleep (pid {holder.pid})" in port.reason, port)
        holder.kill()
    port = item(_as("os.setgroups([]); os.setgid(65534); os.setuid(65534)"), "serial", "usb-")
    check("and which group may use it", port.why == "group" and "dialout nobody" in port.cure, port)
    check("sound", item(scan(), "sound", "Loopback").state == "usable")
    shell("for each in /sys/class/net/wlan0/phy80211/rfkill*/soft; do echo 1 >$each; done")
    check("a radio that is off", item(scan(), "wifi", "wlan0").why == "blocked", scan().wifi)


async def _heard(command: str) -> bool:
    came = asyncio.Event()
    listener = hotplug.Hotplug(came.set)
    listener.start()
    shell(command)
    try:
        async with asyncio.timeout(120):
            await came.wait()
    except TimeoutError:
        return False
    finally:
        listener.close()
    return True


def _as(before: str) -> Hardware:
    """A scan by another process, which does this first."""
    shown = "import msgspec; from edgepanda.node.scan import scan; print(msgspec.json.encode(scan()).decode())"
    code = f"import os; {before}; {shown}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return msgspec.json.decode(done.stdout, type=Hardware)


if __name__ == "__main__":
    {"pi3": pi3, "pc": pc}[sys.argv[1]]()
    print(f"guest: {'FAILED ' + ', '.join(failed) if failed else 'all right'} on {os.uname().release}", flush=True)
