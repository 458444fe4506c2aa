"""What each area makes of what was read: facts in, findings out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.doctor import (
    broker,
    clock,
    configuration,
    coordinator,
    devices,
    disk,
    groups,
    hardware,
    keys,
    memory,
    node,
    units,
)
from edgepanda.doctor.finding import Finding, worst
from edgepanda.doctor.patient import NodeSeen, Patient
from edgepanda.error_codes import CODES
from edgepanda.errors import EdgePandaError
from edgepanda.model.broker_needs import LARGEST_NEEDED, Observed
from edgepanda.model.config import load_what_is_right
from edgepanda.model.hardware import Readings, WifiReading

MIB = 1 << 20
REFUSED = EdgePandaError("Connection refused", code="broker_unreachable", where="mqtt://x:1883")


def told(findings: list[Finding]) -> list[tuple[str, str]]:
    """Level and code; each that is not in order has a place, words and a cure, and its code is explained."""
    for finding in findings:
        assert finding.where
        assert finding.found
        if finding.level != "ok":
            assert finding.cure
            assert finding.code in CODES
    return [(finding.level, finding.code) for finding in findings]


CLOCK = clock.ClockFacts(now=clock.EARLIEST + 1e6, synchronised=True, jumps=1)
DISK = disk.DiskFacts(path="/var/lib/x", free=9000 * MIB, size=30_000 * MIB, inodes=100_000, mount="/", kind="ext4")
MEMORY = memory.MemoryFacts(total=512, available=300, killed=0)
BROKER = Observed(
    address="mqtt://127.0.0.1:1883",
    host="127.0.0.1",
    topics=True,
    qos=True,
    answer=0.0005,
    round_trip=0.002,
    round_trip_p95=0.003,
    largest=LARGEST_NEEDED,
    retained=True,
    retained_wildcard=True,
    retained_cleared=True,
    will=True,
)
SITE = coordinator.CoordinatorFacts(
    site="home", here=True, digest={"epoch": 3, "problem": None, "head": {"height": 7}}, proof={"ok": True}
)
STATUS: dict[str, Any] = {"name": "desk", "broker": True, "coordinator": True, "running": [], "unacknowledged": 0}


def changed(facts: Any, **what: Any) -> Any:
    return msgspec.structs.replace(facts, **what)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, [("ok", "ok")]),
        ({"synchronised": False}, [("warning", "clock_unsynchronised")]),
        ({"now": 0.0}, [("fault", "clock_wrong")]),
        ({"newest": CLOCK.now + 1e5, "newest_file": "/f"}, [("fault", "clock_behind")]),
        ({"newest": CLOCK.now + 1, "newest_file": "/f"}, [("ok", "ok")]),
        ({"jumps": 9}, [("warning", "clock_jumps")]),
        ({"jumps": None}, [("ok", "ok")]),
    ],
)
def test_clock(what: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert told(clock.judge(changed(CLOCK, **what))) == expected


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, [("ok", "ok")]),
        ({"free": MIB}, [("fault", "storage_full")]),
        ({"inodes": 3}, [("fault", "storage_full")]),
        ({"inodes": 400}, [("warning", "disk_low")]),
        ({"inodes": None}, [("ok", "ok")]),
        ({"free": 100 * MIB}, [("warning", "disk_low")]),
        ({"read_only": True}, [("fault", "storage_readonly")]),
        ({"writable": False}, [("warning", "doctor_not_checked")]),
        ({"kind": "tmpfs"}, [("warning", "disk_volatile")]),
        ({"wear": 0x0B, "card": "eMMC"}, [("warning", "disk_worn")]),
        ({"wear": 2, "card": "eMMC"}, [("ok", "ok")]),
        ({"reserve": 3}, [("warning", "disk_worn")]),
        ({"error": "Input/output error"}, [("fault", "storage_unwritable")]),
        ({"free": 0, "read_only": True}, [("fault", "storage_full"), ("fault", "storage_readonly")]),
    ],
)
def test_disk(what: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert told(disk.judge(changed(DISK, **what))) == expected


def test_the_limits_of_a_disk_can_be_given() -> None:
    assert told(disk.judge(DISK, disk.Limits(full=10_000 * MIB))) == [("fault", "storage_full")]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, [("ok", "ok")]),
        ({"available": 50}, [("warning", "memory_low")]),
        ({"available": 5}, [("fault", "memory_low")]),
        ({"killed": 2}, [("warning", "memory_killed")]),
        ({"killed": None}, [("ok", "ok")]),
        ({"total": 0}, [("warning", "doctor_not_checked")]),
    ],
)
def test_memory(what: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert told(memory.judge(changed(MEMORY, **what))) == expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Readings(), [("ok", "ok")]),
        (Readings(temperature=50.0, under_voltage=False), [("ok", "ok")]),
        (Readings(temperature=81.0), [("warning", "hardware_hot")]),
        (Readings(temperature=60.0, throttled=("frequency capped",)), [("warning", "hardware_hot")]),
        (Readings(under_voltage=True, throttled=("under-voltage",)), [("fault", "hardware_under_voltage")]),
        (Readings(under_voltage=False, throttled_before=("under-voltage",)), [("warning", "hardware_under_voltage")]),
        (Readings(wifi={"w": WifiReading(connected=True, signal_dbm=-50)}), [("ok", "ok")]),
        (Readings(wifi={"w": WifiReading(connected=False, signal_dbm=-90, power_saving=True)}), [("ok", "ok")]),
        (
            Readings(wifi={"w": WifiReading(connected=True, signal_dbm=-80, power_saving=True)}),
            [("warning", "wifi_weak"), ("warning", "wifi_power_saving")],
        ),
    ],
)
def test_hardware(seen: Readings, expected: list[tuple[str, str]]) -> None:
    assert told(hardware.judge(seen)) == expected


def at_broker(*, embedded: bool = False, **what: Any) -> list[Finding]:
    return broker.judge(broker.BrokerFacts(seen=changed(BROKER, **what), now=1.7e9, embedded=embedded))


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, [("ok", "ok")]),
        ({"failure": "broker_unreachable", "failure_text": "Connection refused"}, [("fault", "broker_unreachable")]),
        ({"failure": "broker_refused"}, [("fault", "broker_refused")]),
        ({"topics": False}, [("fault", "broker_topics")]),
        ({"round_trip": 0.044}, [("warning", "broker_delays")]),
        ({"round_trip": 0.1, "answer": 0.045}, [("ok", "ok")]),
        ({"round_trip_p95": 0.9}, [("warning", "broker_slow")]),
        ({"largest": 0, "retained": False}, [("fault", "broker_no_retain"), ("fault", "broker_small_messages")]),
        ({"will": False}, [("fault", "broker_no_will")]),
        ({"host": "broker.lan", "user": "me"}, [("warning", "broker_plaintext")]),
        ({"tls": True, "certificate_until": 1.7e9 + 86_400}, [("warning", "broker_certificate_ends")]),
        ({"unanswered": ("will",)}, [("warning", "broker_unanswered")]),
    ],
)
def test_broker(what: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert told(at_broker(**what)) == expected


def test_who_has_the_embedded_broker_is_told_how_to_start_it() -> None:
    assert "edgepanda up" in at_broker(embedded=True, failure="broker_unreachable")[0].cure
    assert "edgepanda up" not in at_broker(failure="broker_unreachable")[0].cure


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({}, [("ok", "ok")]),
        ({"proof": None}, [("ok", "ok")]),
        ({"digest": None}, [("warning", "doctor_not_checked")]),
        ({"proof": {"ok": False, "problems": [1]}}, [("fault", "ledger_damaged")]),
        ({"digest": {**(SITE.digest or {}), "problem": {"code": "storage_full"}}}, [("fault", "storage_full")]),
        ({"error": REFUSED}, [("warning", "doctor_not_checked")]),
        ({"error": EdgePandaError("no", code="operator_key_missing", where="k")}, [("warning", "doctor_not_checked")]),
        ({"error": EdgePandaError("", code="no_answer", where="x")}, [("fault", "no_answer")]),
        ({"error": EdgePandaError("no", code="replayed", where="x")}, [("fault", "replayed")]),
    ],
)
def test_coordinator(what: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = coordinator.judge(changed(SITE, **what))
    assert [(each.level, each.code) for each in found] == expected


def test_a_silent_coordinator_is_started_where_it_belongs() -> None:
    silent = changed(SITE, error=EdgePandaError("", code="no_answer", where="x"))
    assert "edgepanda up" in coordinator.judge(silent)[0].cure
    assert "edgepanda up" not in coordinator.judge(changed(silent, here=False))[0].cure


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (NodeSeen(status=STATUS), [("ok", "ok")]),
        (NodeSeen(), [("fault", "node_not_running")]),
        (NodeSeen(error=EdgePandaError("", code="no_answer", where="s")), [("fault", "node_not_running")]),
        (NodeSeen(denied=True), [("warning", "doctor_not_checked")]),
        (NodeSeen(status={**STATUS, "broker": False}), [("warning", "node_alone")]),
        (NodeSeen(status={**STATUS, "coordinator": False}), [("warning", "node_alone")]),
        (NodeSeen(status={**STATUS, "problem": {"code": "not_let_in", "where": "x"}}), [("fault", "not_let_in")]),
        (NodeSeen(status={**STATUS, "journal_problem": {"code": "storage_full"}}), [("fault", "storage_full")]),
        (NodeSeen(status={**STATUS, "unacknowledged": 500}), [("warning", "node_reports_wait")]),
    ],
)
def test_node(seen: NodeSeen, expected: list[tuple[str, str]]) -> None:
    assert [(each.level, each.code) for each in node.judge(seen, where="node.sock")] == expected


def test_devices_say_their_drivers_reason_and_cure() -> None:
    card = {
        "devices": {
            "pan": {"driver": "servo", "state": "ready", "simulated": True},
            "tilt": {"driver": "servo", "state": "unavailable", "reason": "busy", "cure": "free it"},
            "new": {"driver": "servo"},
        },
        "capabilities": {"a.b": {"state": "problem"}},
    }
    found = devices.judge(devices.from_card(card))
    assert told(found) == [
        ("fault", "device_fault"),
        ("warning", "doctor_not_checked"),
        ("fault", "device_fault"),
        ("ok", "ok"),
    ]
    assert (found[0].where, found[0].found, found[0].cure) == ("devices.tilt", "cannot be used: busy", "free it")
    assert found[2].where == "capabilities.a.b"
    assert found[3].found == "ready: pan (simulated)"


def key(**what: Any) -> keys.KeyFacts:
    return keys.KeyFacts(**{"role": "node", "path": "/k", "exists": True, "uid": 7, **what})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (key(), ("ok", "ok")),
        (key(exists=False, made=True), ("ok", "ok")),
        (key(exists=False, role="site"), ("fault", "site_key_missing")),
        (key(exists=False, role="operator"), ("warning", "operator_key_missing")),
        (key(hidden=True), ("warning", "doctor_not_checked")),
        (key(error=EdgePandaError("x", code="key_exposed", where="/k", cure="chmod")), ("fault", "key_exposed")),
        (key(error=EdgePandaError("x", code="key_damaged", where="/k")), ("fault", "key_damaged")),
    ],
)
def test_keys(facts: keys.KeyFacts, expected: tuple[str, str]) -> None:
    assert told(keys.judge([facts], None)) == [expected]


def test_the_folder_of_keys() -> None:
    assert told(keys.judge([], keys.FolderFacts(path="/s", mode=0o777, uid=7))) == [("fault", "state_exposed")]
    assert told(keys.judge([], keys.FolderFacts(path="/s", mode=0o755, uid=7))) == []
    assert told(keys.judge([key(uid=0)], keys.FolderFacts(path="/s", mode=0o700, uid=7)))[1:] == [
        ("warning", "key_owner")
    ]


USER = groups.UserFacts(name="me", uid=1000, gids=frozenset({1000}), listed=frozenset({1000}))


def need(**what: Any) -> groups.NeedFacts:
    return groups.NeedFacts(
        **{"device": "pan", "path": "/dev/gpiochip0", "uid": 0, "gid": 997, "mode": 0o660, "group": "gpio", **what}
    )


@pytest.mark.parametrize(
    ("user", "needed", "expected"),
    [
        ({}, [], []),
        ({}, [need()], [("fault", "group_missing")]),
        ({"gids": frozenset({997})}, [need()], [("ok", "ok")]),
        ({"uid": 0}, [need(mode=0o600)], [("ok", "ok")]),
        ({"listed": frozenset({997})}, [need()], [("fault", "group_not_in_effect")]),
        ({}, [need(gid=0, group="root", mode=0o600)], [("fault", "group_unknown")]),
        ({}, [need(group="")], [("fault", "group_unknown")]),
        ({}, [need(mode=0o666)], [("ok", "ok")]),
        ({"uid": 1000}, [need(uid=1000, mode=0o600)], [("ok", "ok")]),
        ({}, [need(), need(device="tilt")], [("fault", "group_missing")]),
    ],
)
def test_groups(user: dict[str, Any], needed: list[groups.NeedFacts], expected: list[tuple[str, str]]) -> None:
    found = groups.judge(changed(USER, **user), needed)
    assert told(found) == expected


def test_a_missing_group_is_named_with_the_command_that_adds_it() -> None:
    (found,) = groups.judge(changed(USER, runs=True), [need(), need(device="tilt")])
    assert found.where == "/dev/gpiochip0 (pan, tilt)"
    assert found.cure == "`sudo usermod -aG gpio me`, then restart the node"


SHOWN = """Id=edgepanda@node.service
LoadState=loaded
ActiveState=failed
Result=exit-code
ExecMainStatus=2
UnitFileState=enabled
NRestarts=3

Id=edgepanda@broker.service
LoadState=loaded
ActiveState=inactive
Result=success
ExecMainStatus=0
UnitFileState=enabled
NRestarts=0

Id=edgepanda@voice.service
LoadState=loaded
ActiveState=active
Result=success
ExecMainStatus=0
UnitFileState=enabled
NRestarts=40

Id=edgepanda@gone.service
LoadState=not-found
ActiveState=inactive
"""


def test_units() -> None:
    found = units.judge(units.parse(SHOWN))
    assert told(found) == [("fault", "unit_failed"), ("warning", "unit_stopped"), ("warning", "unit_restarts")]
    assert found[0].found == "it failed: exit-code, exit status 2"
    assert told(units.judge(units.parse(""))) == [("ok", "ok")]
    assert told(units.judge(None)) == [("ok", "ok")]


def test_a_broken_configuration_becomes_findings_and_the_rest_of_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "edgepanda.toml"
    path.write_text(
        '[site]\nname = "My Home"\n[node]\nname = "desk"\nslotz = 3\n[devices.pan]\ndriver = "servo"\n'
        '[devices.tilt]\npin = 3\n[capabilities."a.b"]\nargv = "df"\ntier = 0\nreplay = "safe"\nx = y\n'
    )
    loaded, problems = load_what_is_right(path)
    assert len(problems) == 5
    assert loaded is not None
    assert loaded.config.node is not None
    assert (loaded.config.node.name, loaded.config.site.name) == ("desk", "home")
    assert list(loaded.config.devices) == ["pan"]
    _, facts = configuration.read(str(path))
    found = configuration.judge(facts)
    assert {level for level, _ in told(found)} == {"fault"}
    assert all(f"{path}:" in each.where for each in found)


def test_a_configuration_of_which_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "edgepanda.toml"
    path.write_text("[node\n")
    loaded, facts = configuration.read(str(path))
    assert loaded is None
    assert told(configuration.judge(facts)) == [("fault", "config_syntax"), ("warning", "doctor_not_checked")]
    assert told(configuration.judge(configuration.read(str(tmp_path / "none"))[1])) == [("fault", "config_missing")]


def test_a_password_that_others_may_read(tmp_path: Path) -> None:
    path = tmp_path / "edgepanda.toml"
    path.write_text('[broker]\nurl = "mqtt://me:secret@broker.lan"\n[node]\n')
    path.chmod(0o644)
    assert told(configuration.judge(configuration.read(str(path))[1])) == [("warning", "config_exposed")]
    path.chmod(0o600)
    assert told(configuration.judge(configuration.read(str(path))[1])) == [("ok", "ok")]
    path.write_text('[broker]\nurl = "mqtt://me@broker.lan"\npassword_file = "none"\n[node]\n')
    assert [level for level, _ in told(configuration.judge(configuration.read(str(path))[1]))] == ["fault"]


def test_an_emmc_tells_its_wear_and_an_sd_card_does_not(tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    disk_folder = tmp_path / "sys/devices/mmc/block/mmcblk0"
    (disk_folder / "device").mkdir(parents=True)
    (disk_folder / "mmcblk0p2").mkdir()
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block" / device).symlink_to(disk_folder / "mmcblk0p2")
    (disk_folder / "device/type").write_text("MMC\n")
    (disk_folder / "device/life_time").write_text("0x02 0x0b\n")
    facts = disk.read(Patient(None, root=tmp_path), tmp_path)
    assert (facts.wear, facts.card) == (0x0B, "eMMC")
    (disk_folder / "device/type").write_text("SD\n")
    (disk_folder / "device/life_time").unlink()
    facts = disk.read(Patient(None, root=tmp_path), tmp_path / "not/yet")
    assert (facts.wear, facts.card) == (None, "SD card")
    assert "SD card: wear not readable" in disk.judge(changed(DISK, wear=facts.wear, card=facts.card))[0].found


def test_memory_is_read_from_the_kernels_files(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal:  441012 kB\nMemAvailable:  204800 kB\nSwapTotal: 102396 kB\n")
    (tmp_path / "proc/vmstat").write_text("nr_free_pages 3\noom_kill 4\n")
    facts = memory.read(Patient(None, root=tmp_path))
    assert facts == memory.MemoryFacts(total=430, available=200, swap_total=99, swap_free=0, killed=4)
    assert memory.read(Patient(None, root=tmp_path / "none")) == memory.MemoryFacts()


def test_the_worst_of_nothing_is_fine() -> None:
    assert worst([]) == "ok"
