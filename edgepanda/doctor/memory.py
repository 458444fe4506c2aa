"""Memory, swap, and whether the kernel had to end processes for want of it."""

from __future__ import annotations

import re

import msgspec

from edgepanda.doctor.finding import Finding, fault, ok, warning
from edgepanda.doctor.patient import Patient

LOW, LEAST = 96, 24  # MiB available: below the first it is tight, below the second nothing starts any more


class MemoryFacts(msgspec.Struct, frozen=True):
    """In MiB; 0 where it cannot be read. `killed`: processes ended by the kernel since boot, None where not told."""

    total: int = 0
    available: int = 0
    swap_total: int = 0
    swap_free: int = 0
    killed: int | None = None


def read(patient: Patient) -> MemoryFacts:
    """The facts."""
    found = re.findall(r"^(\w+): +(\d+) kB", patient.text("proc/meminfo"), re.MULTILINE)
    sizes = {name: int(size) // 1024 for name, size in found}
    killed = re.search(r"^oom_kill (\d+)", patient.text("proc/vmstat"), re.M)
    return MemoryFacts(
        total=sizes.get("MemTotal", 0),
        available=sizes.get("MemAvailable", 0),
        swap_total=sizes.get("SwapTotal", 0),
        swap_free=sizes.get("SwapFree", 0),
        killed=int(killed[1]) if killed else None,
    )


def judge(facts: MemoryFacts) -> list[Finding]:
    """A shortage now is worse than one that was."""
    if not facts.total:
        cure = "nothing to do; /proc/meminfo is missing here"
        return [warning(code="doctor_not_checked", where="memory", found="it cannot be read", cure=cure)]
    swap = f"swap {facts.swap_total - facts.swap_free} of {facts.swap_total} MiB"
    told = f"{facts.available} of {facts.total} MiB available, {swap}"
    found = []
    cure = "`ps aux --sort=-rss | head` shows who has it; end what is not needed, or give the board swap"
    if facts.available < LEAST:
        found.append(fault(code="memory_low", where="memory", found=told, cure=cure))
    elif facts.available < LOW:
        found.append(warning(code="memory_low", where="memory", found=told, cure=cure))
    if facts.killed:
        found.append(
            warning(
                code="memory_killed",
                where="memory",
                found=f"the kernel ended {facts.killed} processes for want of memory since boot",
                cure="`journalctl -k -b -g 'Out of memory'` names them",
            )
        )
    return found or [ok(where="memory", found=told)]
