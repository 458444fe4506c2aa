"""Six boards' trees of files: the scan finds what those boards' documents say (docs/boards.md lists the documents)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edgepanda.model.hardware import KINDS, Readings, WifiReading
from edgepanda.node.scan import readings, scan
from edgepanda.node.scan.edge import Still
from edgepanda.node.scan.gpio import header_chip
from edgepanda.node.scan.root import Root
from tests.rig.boards import BOARDS, documented, unfold


@pytest.mark.parametrize("board", BOARDS)
def test_the_scan_finds_what_the_documents_say(board: str, tmp_path: Path) -> None:
    tree = unfold(board, tmp_path)
    found, wanted = scan(tree.root, tree.edge), documented(board)
    for kind in KINDS:
        assert getattr(found, kind) == getattr(wanted, kind), kind
    assert found == wanted


@pytest.mark.parametrize("board", BOARDS)
def test_a_second_scan_finds_the_same(board: str, tmp_path: Path) -> None:
    tree = unfold(board, tmp_path)
    assert scan(tree.root, tree.edge) == scan(tree.root, tree.edge)


@pytest.mark.parametrize("board", BOARDS)
def test_every_item_that_cannot_be_used_says_why_and_what_to_do(board: str) -> None:
    for kind in KINDS:
        for item in getattr(documented(board), kind):
            told = (bool(item.why), bool(item.reason), bool(item.cure))
            assert told == ((item.state == "unavailable"),) * 3, item


@pytest.mark.parametrize(
    ("board", "chip"),
    [("pi3bplus", "gpiochip0"), ("pi4b", "gpiochip0"), ("pi5", "gpiochip0"), ("rock4cplus", "gpiochip0"), ("pc", None)],
)
def test_numbers_of_the_header_are_lines_of_its_chip(board: str, chip: str | None, tmp_path: Path) -> None:
    tree = unfold(board, tmp_path)
    assert header_chip(Root(tree.root, tree.edge)) == chip


def test_the_header_of_a_pi_5_of_the_first_kernels_is_found_by_its_label(tmp_path: Path) -> None:
    class First(Still):
        def gpio_chip(self, path: Path) -> tuple[str, int] | None:
            return {"gpiochip0": ("gpio-brcmstb@107d508500", 32), "gpiochip4": ("pinctrl-rp1", 54)}.get(path.name)

    (tmp_path / "dev").mkdir()
    for name in ("gpiochip0", "gpiochip4"):
        (tmp_path / "dev" / name).touch()
    assert header_chip(Root(tmp_path, First())) == "gpiochip4"


READINGS = {
    "pi3bplus": Readings(
        temperature=48.3,
        cpu_mhz=600,
        under_voltage=True,
        throttled=("under-voltage", "throttled"),
        throttled_before=("under-voltage", "throttled"),
        memory_free_mib=600,
        wifi={"wlan0": WifiReading(connected=True, signal_dbm=-48)},
    ),
    "pi4b": Readings(
        temperature=51.1, cpu_mhz=1800, under_voltage=False, memory_free_mib=3200, wifi={"wlan0": WifiReading()}
    ),
    "pi5": Readings(
        temperature=45.4,
        cpu_mhz=1500,
        under_voltage=False,
        memory_free_mib=7168,
        wifi={"wlan0": WifiReading(connected=True)},
    ),
    "zero2w": Readings(
        temperature=38.1, cpu_mhz=1000, under_voltage=False, memory_free_mib=300, wifi={"wlan0": WifiReading()}
    ),
    "rock4cplus": Readings(memory_free_mib=3417),
    "pc": Readings(temperature=44.0, cpu_mhz=800, memory_free_mib=6000, wifi={"wlp2s0": WifiReading(connected=True)}),
}


@pytest.mark.parametrize("board", BOARDS)
def test_readings_are_apart_from_the_facts(board: str, tmp_path: Path) -> None:
    tree = unfold(board, tmp_path)
    before = scan(tree.root, tree.edge)
    assert readings(tree.root, tree.edge) == READINGS[board]
    for name, value in {
        "sys/class/thermal/thermal_zone0/temp": "85000\n",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "700000\n",
        "proc/meminfo": (tree.root / "proc/meminfo").read_text().replace("MemAvailable:", "MemAvailable:  1"),
        "proc/net/wireless": "",
    }.items():
        if (tree.root / name).exists():
            (tree.root / name).write_text(value)
    assert scan(tree.root, tree.edge) == before


def test_the_card_of_a_board_is_small(tmp_path: Path) -> None:
    tree = unfold("pi4b", tmp_path)
    assert len(msgspec.json.encode(scan(tree.root, tree.edge))) < 8192
