"""Readings: what changes by itself, and so is not on the card."""

from __future__ import annotations

import re
from pathlib import Path

from edgepanda.model.hardware import Readings, WifiReading
from edgepanda.node.scan.board import meminfo
from edgepanda.node.scan.edge import Edge
from edgepanda.node.scan.root import Root
from edgepanda.node.scan.wifi import NET, interfaces

CPU_ZONES = ("cpu-thermal", "cpu_thermal", "soc-thermal", "x86_pkg_temp", "package-thermal")
BITS = {0: "under-voltage", 1: "frequency capped", 2: "throttled", 3: "soft temperature limit"}
THROTTLED = r"sys/devices/platform/soc/soc:firmware/get_throttled"


def readings(root: Path = Path("/"), edge: Edge | None = None) -> Readings:
    """Read them now. What this machine does not tell is None."""
    tree = Root(root, edge)
    word = _throttled(tree)
    frequency = tree.number("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq")
    free = tree.edge.disk_free(root)
    return Readings(
        temperature=temperature(tree),
        cpu_mhz=None if frequency is None else frequency // 1000,
        under_voltage=_under_voltage(tree, word),
        throttled=_words(word or 0),
        throttled_before=_words((word or 0) >> 16),
        memory_free_mib=meminfo(tree, "MemAvailable"),
        disk_free_mib=None if free is None else free // 2**20,
        wifi={name: _link(tree, name) for name in interfaces(tree)},
    )


def temperature(root: Root) -> float | None:
    """Degrees Celsius of the processor's zone, else of the first one."""
    zones = root.names("sys/class/thermal", r"thermal_zone\d+")
    zones.sort(key=lambda zone: root.text(f"sys/class/thermal/{zone}/type") not in CPU_ZONES)
    values = (root.number(f"sys/class/thermal/{zone}/temp") for zone in zones)
    return next((round(value / 1000, 1) for value in values if value is not None and abs(value) < 200_000), None)


def _throttled(root: Root) -> int | None:
    word = root.edge.throttled()
    if word is not None:
        return word
    found = re.fullmatch(r"(?:0x)?([0-9a-fA-F]{1,8})", root.text(THROTTLED))
    return int(found[1], 16) if found else None


def _under_voltage(root: Root, word: int | None) -> bool | None:
    for name in root.names("sys/class/hwmon", r"hwmon\d+"):
        if root.text(f"sys/class/hwmon/{name}/name") == "rpi_volt":
            alarm = root.text(f"sys/class/hwmon/{name}/in0_lcrit_alarm")
            return alarm == "1" if alarm else None
    return None if word is None else bool(word & 1)


def _words(bits: int) -> tuple[str, ...]:
    return tuple(word for bit, word in BITS.items() if bits >> bit & 1)


def _link(root: Root, name: str) -> WifiReading:
    mhz, saving = root.edge.wifi(name)
    band = "" if mhz is None else "2.4 GHz" if mhz < 3000 else "5 GHz" if mhz < 5925 else "6 GHz"
    found = re.search(
        rf"^\s*{re.escape(name)}: \S+\s+[0-9.]+\s+(-?[0-9]{{1,4}})\.?\s", root.text("proc/net/wireless"), re.M
    )
    connected = root.text(f"{NET}/{name}/operstate") == "up"
    signal = int(found[1]) if found and connected and int(found[1]) < 0 else None
    return WifiReading(connected=connected, signal_dbm=signal, band=band, power_saving=saving)
