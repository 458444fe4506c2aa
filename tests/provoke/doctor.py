"""What only the doctor says: facts as its readers give them, and the code that is made of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.doctor import (
    broker,
    clock,
    configuration,
    coordinator,
    devices,
    disk,
    examine,
    groups,
    hardware,
    keys,
    memory,
    units,
)
from edgepanda.doctor import node as nodes
from edgepanda.doctor.finding import Finding
from edgepanda.doctor.patient import NodeSeen, Patient
from edgepanda.model.broker_needs import LARGEST_NEEDED, Observed
from edgepanda.model.hardware import Readings, WifiReading
from tests.provoke.kit import Here, Words, provokes

MIB = 1 << 20
CLOCK = clock.ClockFacts(now=clock.EARLIEST + 1e6, synchronised=True, jumps=1)
DISK = disk.DiskFacts(path="/var/lib/x", free=9000 * MIB, size=30_000 * MIB, inodes=100_000, mount="/", kind="ext4")
MEMORY = memory.MemoryFacts(total=512, available=300, killed=0)
BROKER = Observed(
    address="mqtt://127.0.0.1:1883",
    host="127.0.0.1",
    answer=0.0005,
    round_trip=0.002,
    round_trip_p95=0.003,
    largest=LARGEST_NEEDED,
    retained=True,
    will=True,
)
SITE = coordinator.CoordinatorFacts(
    site="home", digest={"epoch": 3, "problem": None, "head": {"height": 7}}, proof={"ok": True}
)
STATUS = {"name": "desk", "broker": True, "coordinator": True, "running": [], "unacknowledged": 0}
KEY = keys.KeyFacts(role="node", path="/k", exists=True, uid=0)
USER = groups.UserFacts(name="me", uid=1000, gids=frozenset({1000}), listed=frozenset({1000}))
NEED = groups.NeedFacts(device="pan", path="/dev/gpiochip0", uid=0, gid=997, mode=0o660, group="gpio")
UNIT = units.UnitFacts(name="edgepanda@node.service", active="active", file="enabled")
changed = msgspec.structs.replace


def at_broker(**what: Any) -> list[Finding]:
    return broker.judge(broker.BrokerFacts(seen=changed(BROKER, **what), now=0.0))


FOUND: dict[str, Callable[[], list[Finding]]] = {
    "clock_wrong": lambda: clock.judge(changed(CLOCK, now=0.0)),
    "clock_behind": lambda: clock.judge(changed(CLOCK, newest=CLOCK.now + 1e5, newest_file="/f")),
    "clock_unsynchronised": lambda: clock.judge(changed(CLOCK, synchronised=False)),
    "clock_jumps": lambda: clock.judge(changed(CLOCK, jumps=9)),
    "disk_low": lambda: disk.judge(changed(DISK, free=100 * MIB)),
    "disk_volatile": lambda: disk.judge(changed(DISK, kind="tmpfs")),
    "disk_worn": lambda: disk.judge(changed(DISK, wear=11)),
    "memory_low": lambda: memory.judge(changed(MEMORY, available=9)),
    "memory_killed": lambda: memory.judge(changed(MEMORY, killed=2)),
    "hardware_hot": lambda: hardware.judge(Readings(temperature=82.0)),
    "hardware_under_voltage": lambda: hardware.judge(Readings(under_voltage=True)),
    "wifi_weak": lambda: hardware.judge(Readings(wifi={"wlan0": WifiReading(connected=True, signal_dbm=-82)})),
    "wifi_power_saving": lambda: hardware.judge(
        Readings(wifi={"wlan0": WifiReading(connected=True, power_saving=True)})
    ),
    "broker_delays": lambda: at_broker(round_trip=0.044),
    "broker_slow": lambda: at_broker(round_trip_p95=0.9),
    "ledger_damaged": lambda: coordinator.judge(changed(SITE, proof={"ok": False, "problems": [1]})),
    "doctor_not_checked": lambda: nodes.judge(NodeSeen(denied=True), where="node.sock"),
    "node_not_running": lambda: nodes.judge(NodeSeen(), where="node.sock"),
    "node_alone": lambda: nodes.judge(NodeSeen(status={**STATUS, "broker": False}), where="node.sock"),
    "node_reports_wait": lambda: nodes.judge(NodeSeen(status={**STATUS, "unacknowledged": 500}), where="node.sock"),
    "device_fault": lambda: devices.judge([devices.DeviceFacts(name="pan", driver="servo", state="problem")]),
    "state_exposed": lambda: keys.judge([], keys.FolderFacts(path="/s", mode=0o777, uid=0)),
    "key_owner": lambda: keys.judge([KEY], keys.FolderFacts(path="/s", mode=0o700, uid=7)),
    "group_missing": lambda: groups.judge(USER, [NEED]),
    "group_not_in_effect": lambda: groups.judge(changed(USER, listed=frozenset({997})), [NEED]),
    "group_unknown": lambda: groups.judge(USER, [changed(NEED, group="")]),
    "unit_failed": lambda: units.judge([changed(UNIT, active="failed", result="exit-code", status=2)]),
    "unit_stopped": lambda: units.judge([changed(UNIT, active="inactive")]),
    "unit_restarts": lambda: units.judge([changed(UNIT, restarts=40)]),
}


def as_line(findings: list[Finding], code: str) -> str:
    """The finding of this code as a person reads it."""
    (found,) = [each for each in findings if each.code == code]
    return f"{found.found} ({found.where}); {found.cure} [{code}]"


for _code, _find in FOUND.items():
    provokes(_code)(lambda _here, code=_code, find=_find: as_line(find(), code))


@provokes("config_exposed")
def _(here: Here) -> str:
    path = Path(here.config('[broker]\nurl = "mqtt://me:secret@broker.lan"\n[node]\n'))
    path.chmod(0o644)
    return as_line(configuration.judge(configuration.read(str(path))[1]), "config_exposed")


@provokes("report_unwritable")
def _(here: Here) -> Words:
    (here.folder / "report").touch()
    return Words(["doctor", "--report", str(here.folder / "report")])


@provokes("doctor_failed")
async def _(here: Here) -> str:
    async def fail(_patient: Patient) -> list[Finding]:
        raise ValueError("a case that nobody thought of")

    return as_line(await examine._check(Patient(None), "clock", fail), "doctor_failed")


@provokes("doctor_late")
async def _(here: Here) -> str:
    async def hang(_patient: Patient) -> list[Finding]:
        await asyncio.Event().wait()
        return []

    return as_line(await examine._check(Patient(None, within=0.05), "clock", hang), "doctor_late")
