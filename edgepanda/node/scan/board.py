"""Which machine it is: board, processor, memory."""

from __future__ import annotations

import re
from typing import Any

from edgepanda.node.scan import firmware
from edgepanda.node.scan.root import Root

CORES = {
    "0xb76": "ARM1176",
    "0xc07": "Cortex-A7",
    "0xc08": "Cortex-A8",
    "0xc09": "Cortex-A9",
    "0xc0f": "Cortex-A15",
    "0xd03": "Cortex-A53",
    "0xd04": "Cortex-A35",
    "0xd05": "Cortex-A55",
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
}
"""ARM's cores by their number in /proc/cpuinfo, which names none."""


def board(root: Root) -> dict[str, Any]:
    """Board and revision code."""
    dmi = [root.text(f"sys/class/dmi/id/{part}") for part in ("sys_vendor", "product_name")]
    name = firmware.model(root) or " ".join(part for part in dmi if part)
    revision = _values(root, "Revision")
    return {"board": name, "revision": revision[0] if revision and firmware.is_pi(root) else ""}


def system(root: Root) -> dict[str, Any]:
    """Instruction set and kernel."""
    machine = root.edge.machine() or root.text("proc/sys/kernel/arch")
    return {"machine": machine, "kernel": root.text("proc/sys/kernel/osrelease")}


def cpu(root: Root) -> dict[str, Any]:
    """Name, number of cores, highest frequency."""
    parts = [CORES.get(part, part) for part in _values(root, "CPU part")]
    name = ", ".join(dict.fromkeys(parts)) or next(iter(_values(root, "model name")), "")
    policies = root.names("sys/devices/system/cpu/cpufreq", r"policy\d+")
    tops = [root.number(f"sys/devices/system/cpu/cpufreq/{policy}/cpuinfo_max_freq") or 0 for policy in policies]
    return {"cpu": name, "cpus": len(_values(root, "processor")), "cpu_mhz": max(tops, default=0) // 1000}


def memory(root: Root) -> dict[str, Any]:
    """What the kernel has; a Raspberry Pi's graphics have taken their part before."""
    return {"memory_mib": meminfo(root, "MemTotal") or 0}


def meminfo(root: Root, key: str) -> int | None:
    """A line of /proc/meminfo in MiB."""
    found = re.search(rf"^{key}:\s+([0-9]{{1,18}}) kB$", root.text("proc/meminfo"), re.MULTILINE)
    return int(found[1]) // 1024 if found else None


def _values(root: Root, key: str) -> list[str]:
    return re.findall(rf"^{key}\s*: (.+)$", root.text("proc/cpuinfo"), re.MULTILINE)
