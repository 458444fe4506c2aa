"""Devices by commands: added, used, refused. Real processes on simulated pins; what is refused changes nothing."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepanda.cli.local import LocalNode
from edgepanda.errors import EdgePandaError
from tests.rig.cli import Person, set_up

DIMMER = '''
import msgspec
from pathlib import Path
from edgepanda.drivers.base import Driver, action
from edgepanda.drivers.context import Context
from edgepanda.drivers.contract import Probe, about
from typing import Annotated


class Config(msgspec.Struct, forbid_unknown_fields=True):
    file: Annotated[str, about("The brightness file.")]
    pin: Annotated[int, about("The wire that switches it on.", gpio=True)] = 40


class Dimmer(Driver):
    """A dimmer."""

    name = "dimmer"
    Config = Config

    @classmethod
    def probe(cls, config: Config) -> Probe:
        if Path(config.file).is_file():
            return Probe(True)
        return Probe(False, f"there is no file {config.file}", "`ls /sys/class/leds` shows the LEDs")

    @action(tier=1, replay="safe")
    def fade(self, ctx: Context, to: int) -> int:
        """Fades"""
        Path(self.config.file).write_text(str(to))
        return to
'''


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with set_up(tmp_path) as someone:
        (someone.folder / "dimmer.py").write_text(DIMMER)
        yield someone


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose configuration nobody changes: for what must be refused."""
    someone = Person(tmp_path_factory.mktemp("settled"))
    someone.ok("init", "--name", "desk")
    (someone.folder / "dimmer.py").write_text(DIMMER)
    someone.configure('\n[devices.other]\ndriver = "servo"\npin = 19\nsimulate = true\n')
    yield someone
    someone.close()


def config_of(person: Person) -> dict[str, dict[str, dict[str, object]]]:
    return tomllib.loads((person.folder / "edgepanda.toml").read_text())


def test_a_servo_is_added_and_moves_by_the_command_that_was_shown(person: Person) -> None:
    before = (person.folder / "edgepanda.toml").read_text()
    told = person.ok(
        "device", "add", "servo", "tilt", "--pin", "12", "--start", "0", "--simulate", "--label", "room=attic"
    )
    text = (person.folder / "edgepanda.toml").read_text()
    assert text.startswith(before)
    assert config_of(person)["devices"]["tilt"] == {
        "driver": "servo", "labels": {"room": "attic"}, "pin": 12, "start": 0, "simulate": True,
    }  # fmt: skip
    assert "no node is running; it counts once you start it: edgepanda up" in told
    assert told.splitlines()[-1] == "Try: edgepanda do tilt.move 30"
    assert "tilt  servo   GPIO12  node not running  simulated" in person.ok("device", "list")
    with person.up():
        done = person.json("do", "tilt.move", "30")
        assert (done["state"], done["result"]["evidence"][0]["simulated"]) == ("succeeded", True)
        assert [row["state"] for row in person.json("device", "list")["devices"]] == ["ready", "ready"]
    assert person.processes() == []
    assert list(person.temporary.iterdir()) == []


def test_the_help_is_the_drivers_own(person: Person) -> None:
    told = person.ok("device", "add", "./dimmer.py", "--help")
    assert "--file" in told
    assert "The brightness file." in told
    assert "NAME.fade" in told
    assert "--max-speed" in person.ok("device", "add", "servo", "--help")
    assert "DRIVER" in person.ok("device", "add", "--help")


def test_a_driver_of_ones_own_from_another_folder(person: Person) -> None:
    (person.folder / "brightness").write_text("0")
    config = str(person.folder / "edgepanda.toml")
    (person.folder / "other").mkdir()
    done = person.run(
        "device", "add", "./dimmer.py", "shelf", f"file={person.folder / 'brightness'}", "--config", config
    )
    assert done.returncode == 0, done.stderr
    assert config_of(person)["devices"]["shelf"]["driver"] == "./dimmer.py"
    assert f"Try: edgepanda do shelf.fade 30 --config {config}" in done.stdout


REFUSED = [
    ("add srvo tilt --pin 12", 2, "unknown_driver", "did you mean 'servo'?"),
    ("add nothing.py tilt", 1, "unavailable", "no such file"),
    ("add command tilt", 2, "usage", "edgepanda capability add"),
    ("add servo pan --pin 12 --simulate", 2, "device_exists", "edgepanda.toml:"),
    ("add servo Tilt --pin 12 --simulate", 2, "invalid_name", "a-z"),
    ("add servo tilt --pin 12 --simulate --sped 3", 2, "invalid_args", "did you mean --speed?"),
    ("add servo tilt --pin twelve --simulate", 2, "invalid_args", "a whole number 0 to 63"),
    ("add servo tilt --pin 12 --speed 5rpm --simulate", 2, "invalid_args", "the unit is degree/s"),
    ("add servo tilt --pin 12 --start 91 --simulate", 2, "invalid_args", "-90 to 90"),
    ("add servo tilt --simulate", 2, "invalid_args", "--pin"),
    ("add servo tilt --pin 18 --simulate", 2, "pin_conflict", "belongs to the device 'pan'"),
    ("add ./dimmer.py shelf --file no/such/file", 1, "device_unusable", "ls /sys/class/leds"),
    ("add relay pump --command ./none.sh", 1, "unavailable", "none.sh"),
    ("add relay pump --command 'sh -c true'", 1, "unavailable", "the driver host ended"),
]


@pytest.mark.parametrize(("line", "code", "name", "said"), REFUSED)
def test_what_cannot_be_changes_nothing(settled: Person, line: str, code: int, name: str, said: str) -> None:
    before = (settled.folder / "edgepanda.toml").read_bytes()
    done = settled.run("device", *shlex.split(line), "--json")
    error = json.loads(done.stdout)["error"]
    told = " ".join(str(error.get(part, "")) for part in ("message", "where", "cure"))
    assert (done.returncode, error["code"], said in told) == (code, name, True), error
    assert error.get("where") or error.get("cure")
    assert (settled.folder / "edgepanda.toml").read_bytes() == before
    assert settled.processes() == []


def test_a_pin_conflict_names_both_and_the_line(person: Person) -> None:
    text = (person.folder / "edgepanda.toml").read_text()
    line = next(number for number, each in enumerate(text.splitlines(), 1) if each.startswith("pin = 18"))
    told = person.run("device", "add", "servo", "tilt", "--pin", "18", "--simulate").stderr
    assert "tilt: GPIO18 belongs to the device 'pan' already" in told
    assert f"edgepanda.toml:{line}: devices.pan.pin" in told


def test_what_cannot_be_used_is_added_when_asked_for(person: Person) -> None:
    done = person.run("device", "add", "./dimmer.py", "shelf", "--file", "none", "--anyway")
    assert done.returncode == 0
    assert "it cannot be used now: there is no file none; `ls /sys/class/leds` shows the LEDs" in done.stderr
    assert "Try:" not in done.stdout
    assert config_of(person)["devices"]["shelf"] == {"driver": "./dimmer.py", "file": "none"}


@pytest.mark.parametrize(
    ("damage", "code"),
    [("[node]\nslots = 0\n", "config_value"), ("pan =\n", "config_syntax"), ("[site]\nname = 'home'\n", "no node")],
)
def test_a_wrong_configuration_is_not_made_worse(person: Person, damage: str, code: str) -> None:
    (person.folder / "edgepanda.toml").write_text(damage)
    done = person.run("device", "add", "servo", "tilt", "--pin", "12", "--simulate")
    assert (done.returncode, "error: " in done.stderr) == (2, True)
    assert code in done.stderr
    assert (person.folder / "edgepanda.toml").read_text() == damage


def test_a_file_that_cannot_be_read_or_written_stays(person: Person) -> None:
    config = person.folder / "edgepanda.toml"
    config.write_bytes(b"# \xff\n" + config.read_bytes())
    done = person.run("device", "add", "servo", "tilt", "--pin", "12", "--simulate")
    assert (done.returncode, "[config_unreadable]" in done.stderr) == (2, True)
    config.write_bytes(config.read_bytes()[4:] + b"# more\n" * 3000)
    before = config.read_bytes()
    limit = ["prlimit", "--fsize=10000", sys.executable, "-m", "edgepanda"]  # not even root writes more to a file
    done = subprocess.run(
        [*limit, "device", "add", "servo", "tilt", "--pin", "12", "--simulate"],
        cwd=person.folder,
        env=person.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "[config_unwritable]" in done.stderr) == (2, True), done.stderr
    assert (config.read_bytes() == before, list(person.folder.glob(".edgepanda.toml*"))) == (True, [])


def test_a_driver_of_a_name_that_another_file_has_is_refused_before_the_node_meets_it(person: Person) -> None:
    (person.folder / "brightness").write_text("0")
    (person.folder / "other").mkdir()
    (person.folder / "other" / "dimmer.py").write_text(DIMMER)
    person.ok("device", "add", "./dimmer.py", "shelf", "--file", str(person.folder / "brightness"), "--pin", "1")
    before = (person.folder / "edgepanda.toml").read_bytes()
    done = person.run("device", "add", "./other/dimmer.py", "lamp", "--file", str(person.folder / "brightness"))
    assert (done.returncode, "name different programs as the driver 'dimmer'" in done.stderr) == (2, True), done.stderr
    assert (person.folder / "edgepanda.toml").read_bytes() == before


def test_two_people_at_once_lose_nothing(person: Person) -> None:
    running = [
        person.start(
            "device", "add", "servo", f"servo-{pin}", "--pin", str(pin), "--start", "0", "--simulate", "--json"
        )
        for pin in (11, 12, 13)
    ]
    added = set()
    for each in running:
        code = each.process.wait(30)
        told = json.loads(each.wait_for("^{"))
        assert (code, told.get("error", {}).get("code")) in ((0, None), (2, "config_changed")), told
        added |= {told["device"]} if code == 0 else set()
    assert added
    assert set(config_of(person)["devices"]) == {"pan", *added}


def test_without_a_configuration(person: Person) -> None:
    (person.folder / "edgepanda.toml").unlink()
    done = person.run("device", "add", "servo", "tilt", "--pin", "12")
    assert (done.returncode, "[config_missing]" in done.stderr, "edgepanda init" in done.stderr) == (2, True, True)


def test_a_value_is_set_and_unset_and_the_rest_of_the_file_stays(person: Person) -> None:
    config = person.folder / "edgepanda.toml"
    before = config.read_text()
    told = person.ok("device", "set", "pan", "pin=17", "--max-angle", "45", "--label", "room=attic")
    assert told.startswith("changed  pan (servo, simulated)")
    assert config_of(person)["devices"]["pan"] == {
        "driver": "servo", "pin": 17, "start": 0.0, "safe": "detach", "simulate": True, "max_angle": 45,
        "labels": {"room": "attic"},
    }  # fmt: skip
    assert "# degrees: where it stands when nobody knows" in config.read_text()
    person.ok("device", "set", "pan", "pin=18", "--unset", "max-angle", "--label", "room=")
    assert "labels" not in config_of(person)["devices"]["pan"]
    person.ok("device", "set", "pan", "speed=90")
    assert "pan is as it was" in person.ok("device", "set", "pan", "speed=90")
    person.ok("device", "set", "pan", "--unset", "speed")
    assert config.read_text() == before


def test_what_the_node_keeps_of_a_device_stays_when_it_changes(person: Person) -> None:
    person.configure('\n[devices.arm]\ndriver = "servo"\npin = 20\nsimulate = true\nlink_loss = 10.0\n')
    person.ok("device", "set", "arm", "pin=21")
    assert config_of(person)["devices"]["arm"] == {
        "driver": "servo", "pin": 21, "simulate": True, "link_loss": 10.0,
    }  # fmt: skip
    assert json.loads(person.run("device", "test", "arm", "--json").stdout)["usable"]


CHANGES_REFUSED = [
    ("set pna pin=3", "unknown_device", "did you mean 'pan'?"),
    ("set pan pin=x", "invalid_args", "a whole number 0 to 63"),
    ("set pan colour=red", "invalid_args", "it has pin"),
    ("set pan --start 91", "invalid_args", "-90 to 90"),
    ("set pan --unset sped", "config_key_unknown", "is not set"),
    ("set pan --unset pin", "invalid_args", "--pin"),
    ("set other pin=18", "pin_conflict", "belongs to the device 'pan'"),
    ("remove pna --yes", "unknown_device", "did you mean 'pan'?"),
    ("remove pan", "usage", "--yes removes it without asking"),
    ("test pna", "unknown_device", "did you mean 'pan'?"),
]


@pytest.mark.parametrize(("line", "name", "said"), CHANGES_REFUSED)
def test_a_change_that_cannot_be_changes_nothing(settled: Person, line: str, name: str, said: str) -> None:
    before = (settled.folder / "edgepanda.toml").read_bytes()
    done = settled.run("device", *line.split())
    assert (done.returncode, f"[{name}]" in done.stderr, said in done.stderr, done.stdout) == (2, True, True, "")
    assert (settled.folder / "edgepanda.toml").read_bytes() == before


def test_a_device_is_removed_after_a_question(person: Person) -> None:
    config = person.folder / "edgepanda.toml"
    before = config.read_text()
    code, told = person.at_terminal("device", "remove", "pan", typed="n\n")
    assert (code, "Remove pan (servo, GPIO18) from edgepanda.toml?" in told) == (130, True)
    assert config.read_text() == before
    code, told = person.at_terminal("device", "remove", "pan", typed="y\n")
    assert (code, "in its safe state (safe = detach)" in told) == (0, True), told
    assert "devices" not in config_of(person)
    assert [line for line in before.splitlines() if line.startswith("#")] == [
        line for line in config.read_text().splitlines() if line.startswith("#")
    ]
    assert "has no devices; add one" in person.ok("device", "list")


def test_a_device_is_tested_without_and_through_the_node(person: Person) -> None:
    alone = person.json("device", "test", "pan")
    assert (alone["ok"], alone["through"], alone["simulated"], alone["facts"]["pin"]) == (True, "", True, "GPIO18")
    assert [(look["action"], look["outcome"], look["value"]["angle"]) for look in alone["looks"]] == [
        ("read", "succeeded", 0.0)
    ]
    with person.up():
        person.ok("do", "pan.move", "30")
        told = person.json("device", "test", "pan")
        assert (told["ok"], told["through"], told["looks"][0]["value"]["angle"]) == (True, "desk", 30.0)
        assert "by the running node desk" in person.ok("device", "test", "pan")
        person.configure('\n[devices.late]\ndriver = "servo"\npin = 4\nsimulate = true\n')
        done = person.run("device", "test", "late")
        assert (done.returncode, "[unavailable]" in done.stderr) == (1, True)
    assert person.processes() == []


def test_a_device_that_cannot_be_used_fails_its_test(person: Person) -> None:
    person.configure('\n[devices.shelf]\ndriver = "./dimmer.py"\nfile = "none"\n')
    done = person.run("device", "test", "shelf")
    assert (done.returncode, "there is no file none" in done.stdout, "ls /sys/class/leds" in done.stdout) == (
        1,
        True,
        True,
    )
    with person.up():
        told = json.loads(person.run("device", "test", "shelf", "--json").stdout)
        assert (told["ok"], told["through"], told["reason"]) == (False, "desk", "there is no file none")


def test_a_running_node_takes_a_device_up_changes_it_and_lets_it_go(person: Person) -> None:
    with person.up():
        added = person.json("device", "add", "servo", "tilt", "--pin", "12", "--start", "0", "--simulate")
        assert (added["node"], added["next"]) == (
            {"running": True, "reloaded": True, "state": "ready"},
            ["edgepanda do tilt.move 30"],
        )
        moved = person.json("do", "tilt.move", "30")
        assert (moved["state"], moved["result"]["evidence"][0]["read_back_us"]) == ("succeeded", 1666.667)
        person.ok("device", "set", "tilt", "--max-angle", "20", "--max-pulse-us", "1.9ms")
        refused = person.run("do", "tilt.move", "30")
        assert (refused.returncode, "[limit]" in refused.stderr) == (2, True), refused.stderr
        assert person.json("do", "tilt.move", "20")["result"]["evidence"][0]["read_back_us"] == 1900.0
        told = person.ok("device", "remove", "tilt", "--yes")
        assert "the node has brought it to its safe state and closed it" in told
        assert [row["name"] for row in person.json("device", "list")["devices"]] == ["pan"]
        assert "tilt" not in person.ok("card")
    assert person.processes() == []


def test_a_line_that_is_given_up_goes_to_who_waits_for_it(person: Person) -> None:
    person.configure('\n[devices.tilt]\ndriver = "servo"\npin = 18\nstart = 0\nsimulate = true\n')
    with person.up():
        told = person.run("device", "test", "tilt", "--json")
        assert json.loads(told.stdout)["reason"] == "GPIO18 belongs to the device 'pan' already"
        person.ok("device", "set", "pan", "pin=17")
        assert person.json("do", "tilt.move", "10")["state"] == "succeeded"
        assert person.json("device", "test", "tilt")["ok"]


def test_two_devices_on_one_line_of_the_file_are_told_apart_by_the_node(person: Person) -> None:
    person.configure('\n[devices.tilt]\ndriver = "servo"\npin = 18\nstart = 0\nsimulate = true\n')
    with person.up():
        rows = {row["name"]: row for row in person.json("device", "list")["devices"]}
        assert (rows["pan"]["state"], rows["tilt"]["state"]) == ("ready", "problem")
        assert rows["tilt"]["reason"] == "GPIO18 belongs to the device 'pan' already"
        assert "edgepanda device set tilt pin=..." in rows["tilt"]["cure"]
        assert person.json("do", "pan.move", "10")["state"] == "succeeded"
        node = LocalNode(person.folder / ".edgepanda/run/node.sock")
        with pytest.raises(EdgePandaError) as caught:
            asyncio.run(node.request("do", {"device": "tilt", "action": "move", "args": {"angle": 10.0}}))
        assert (caught.value.code, "GPIO18 belongs to the device 'pan'" in str(caught.value)) == ("pin_conflict", True)
