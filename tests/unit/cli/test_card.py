"""`card`: hardware for a person, and what people say of a node, written without harm to the file."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from edgepanda.cli import main
from edgepanda.cli.hardware_view import changes, hardware_lines
from edgepanda.model.config import load_config
from edgepanda.model.hardware import GONE, GONE_CURE, Hardware, SerialPort, items, with_missing
from tests.rig.boards import BOARDS, documented
from tests.unit.cli.test_config import editor

TEXT = """\
# mine
[coordinator]
[node]
name = "desk"   # where it stands
# labels = {}
slots = 2
[devices.pan]
driver = "servo"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "edgepanda.toml"
    path.write_text(TEXT)
    return path


def edit(path: Path, *words: str) -> int:
    return main(["card", "edit", *words, "--config", str(path)])


def test_the_hardware_of_a_board_as_a_person_reads_it() -> None:
    told = hardware_lines(msgspec.to_builtins(documented("pi4b")))
    assert (
        told[0]
        == "Raspberry Pi 4 Model B Rev 1.4, 4 x Cortex-A72 at 1800 MHz, 3793 MiB memory, Linux 6.6.47+rpt-rpi-v8"
    )
    text = "\n".join(" ".join(line.split()) for line in told)
    assert "GPIO pinctrl-bcm2711 /dev/gpiochip0, 58 lines, the pins of the header" in text
    assert "0x68 in use by kernel driver rtc-ds1307, 0x76 answers" in text
    assert "sound Device hw:3, USB PnP Sound Device, records at 44100, 48000 Hz, plays at 44100, 48000 Hz" in text
    assert "/dev/ttyACM0 is in use by minicom (pid 1432)\n-> end minicom: sudo kill 1432" in text
    assert told.index("can be used") < told.index("cannot be used")


@pytest.mark.parametrize("board", BOARDS)
def test_nothing_is_left_out(board: str) -> None:
    hardware = documented(board)
    text = "\n".join(hardware_lines(msgspec.to_builtins(hardware)))
    for _, item in items(hardware):
        assert item.name in text
        assert item.reason in text
        assert item.cure in text


def test_the_hardware_of_a_node_of_another_version_is_shown_as_it_is() -> None:
    assert hardware_lines({"cpus": "many"}) == ["cpus=many"]
    assert hardware_lines({"machine": "armv6l", "cpus": 1, "new": 2}) == ["armv6l, 1 processors"]
    assert hardware_lines({"problems": {"i2c": "no"}})[-2:] == ["not known", "  I2C    no"]


def test_what_a_new_scan_has_changed() -> None:
    before = Hardware(serial=(SerialPort(name="a", device="/dev/ttyACM0"), SerialPort(name="b", device="/dev/ttyACM1")))
    moved = Hardware(serial=(SerialPort(name="a", device="/dev/ttyACM2"), SerialPort(name="c", device="/dev/ttyACM1")))
    told = [msgspec.to_builtins(each) for each in (before, with_missing(moved, before), moved)]
    assert changes(told[0], told[0]) == []
    assert changes(told[0], told[1]) == [
        "changed: serial a, /dev/ttyACM2",
        "new: serial c, /dev/ttyACM1",
        f"cannot be used: serial b, {GONE}; {GONE_CURE}",
    ]
    assert changes(told[1], told[2]) == ["forgotten: serial b"]
    assert changes({"cpus": "many"}, told[0]) == []


def test_options_say_it_and_comments_stay(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert edit(path, "--description", "above the bench", "--label", "room=attic", "--label", "floor=2") == 0
    assert edit(path, "--label", "room=lab", "--no-label", "floor", "--json") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["description"], told["labels"], told["saved"]) == ("above the bench", {"room": "lab"}, True)
    assert told["node"] == {"running": False}
    node = load_config(path).require_node()
    assert (node.description, node.labels, node.slots) == ("above the bench", {"room": "lab"}, 2)
    text = path.read_text()
    assert all(line in text for line in TEXT.splitlines())


def test_what_is_emptied_is_taken_out(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert edit(path, "--description", "x", "--label", "room=attic") == 0
    assert edit(path, "--description", "", "--no-label", "room") == 0
    assert path.read_text() == TEXT
    assert "description: none; labels: none" in capsys.readouterr().out


def test_the_same_again_changes_nothing(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert edit(path, "--no-label", "room") == 0
    assert "nothing changed" in capsys.readouterr().out


def test_the_editor_gets_both_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = """grep -q slots "$1" && exit 3
    sed -i 's/^description = .*/description = "a lamp"/; s/^labels = .*/labels = {room = "hall"}/' "$1\""""
    editor(path.parent, script, monkeypatch)
    assert edit(path) == 0, capsys.readouterr().err
    node = load_config(path).require_node()
    assert (node.description, node.labels) == ("a lamp", {"room": "hall"})
    assert path.read_text().startswith(TEXT.split("slots", maxsplit=1)[0])


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'slots = 3' >>\"$1\"", "edgepanda.toml: node.slots)"),
        ('echo \'[devices.x]\ndriver = "servo"\' >>"$1"', "edgepanda.toml: devices.x)"),
        ("sed -i 's/^labels = .*/labels = 3/' \"$1\"", "node.labels: found 3"),
        ("sed -i 's/^description = .*/description = \"'$(printf %0600d 0)'\"/' \"$1\"", "node.description: found"),
    ],
)
def test_what_is_wrong_leaves_the_file_as_it_was(
    path: Path, script: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    editor(path.parent, script, monkeypatch)
    assert edit(path) == 2
    assert told in capsys.readouterr().err
    assert path.read_text() == TEXT


def test_a_machine_without_a_node_has_nothing_to_edit(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("[coordinator]\n")
    assert edit(path, "--label", "a=b") == 2
    assert "[node]" in capsys.readouterr().err


def test_a_node_that_does_not_run_is_said_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["card"], ["card", "show"]):
        assert main([*words, "--config", str(path)]) == 3
        told = capsys.readouterr().err
        assert "this machine's node does not answer" in told
        assert "card show NODE" in told


def test_a_node_and_all_are_too_much(path: Path) -> None:
    assert main(["card", "show", "desk", "--all", "--config", str(path)]) == 2
