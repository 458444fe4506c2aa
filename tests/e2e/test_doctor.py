"""`edgepanda doctor` on a real site: well, and with one real fault each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rig.brokers import Mosquitto
from tests.rig.cli import Person, set_up

AREAS = [
    "configuration",
    "keys",
    "clock",
    "disk",
    "memory",
    "hardware",
    "broker",
    "coordinator",
    "node",
    "devices",
    "units",
]


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Somebody whose site is set up, and does not run."""
    with set_up(tmp_path) as someone:
        yield someone


def state(person: Person) -> Path:
    return person.folder / ".edgepanda"


def look(person: Person, *words: str, code: int) -> dict[str, Any]:
    """The doctor's document; each of its findings names a place, and each fault and warning a cure."""
    done = person.run("doctor", "--json", *words)
    assert done.returncode == code, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert set(document) == {"ok", "version", "config", "faults", "warnings", "seconds", "findings"}
    for each in document["findings"]:
        assert set(each) == {"level", "area", "code", "where", "found", "cure"}
        assert each["where"]
        assert each["found"]
        assert each["cure"] or each["level"] == "ok"
    assert document["ok"] == (document["faults"] == 0) == (code == 0)
    return document


def faults(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["code"]: each for each in document["findings"] if each["level"] == "fault"}


def test_a_site_that_is_well(person: Person) -> None:
    with person.up():
        document = look(person, code=0)
        assert faults(document) == {}
        assert list(dict.fromkeys(each["area"] for each in document["findings"])) == AREAS
        well = {each["area"] for each in document["findings"] if each["level"] == "ok"}
        assert well >= {"configuration", "keys", "disk", "broker", "coordinator", "node", "devices"}
        shown = person.run("doctor")
        assert shown.returncode == 0
        assert "no faults" in shown.stdout
        assert "pan (simulated)" in shown.stdout
        assert len(shown.stdout.splitlines()) <= 40


def test_progress_and_colours_at_a_terminal(person: Person) -> None:
    code, told = person.at_terminal("doctor")
    assert code == 1
    assert "looking at " in told
    assert told.index("fault") < told.index("no errors; ")


def test_nothing_runs(person: Person) -> None:
    """Each fault says how to start what is missing; the devices are asked all the same."""
    document = look(person, code=1)
    found = faults(document)
    assert set(found) == {"broker_unreachable", "node_not_running"}
    assert "edgepanda up" in found["broker_unreachable"]["cure"]
    assert "127.0.0.1" in found["broker_unreachable"]["where"]
    assert "edgepanda up" in found["node_not_running"]["cure"]
    assert found["node_not_running"]["where"] == str(state(person) / "run/node.sock")
    assert "ready: pan (simulated)" in [each["found"] for each in document["findings"]]


def test_looking_changes_nothing(person: Person) -> None:
    def everything() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in person.folder.rglob("*") if path.is_file()}

    (state(person) / "keys/node.key").unlink()
    before = everything()
    look(person, code=1)
    assert everything() == before


def test_no_configuration(tmp_path: Path) -> None:
    someone = Person(tmp_path)
    found = faults(look(someone, code=1))
    assert set(found) == {"config_missing"}
    assert "edgepanda init" in found["config_missing"]["cure"]
    assert set(faults(look(someone, "--config", "none.toml", code=1))) == {"config_missing"}


def test_a_broken_configuration(person: Person) -> None:
    """What is wrong is told, and what is right is looked at."""
    config = person.folder / "edgepanda.toml"
    config.write_text(config.read_text().replace("[node]", "[node]\nslotz = 3"))
    document = look(person, code=1)
    found = faults(document)
    assert set(found) == {"config_key_unknown", "broker_unreachable", "node_not_running"}
    assert "edgepanda.toml:" in found["config_key_unknown"]["where"]
    assert "node.slotz" in found["config_key_unknown"]["where"]
    assert "did you mean 'slots'?" in found["config_key_unknown"]["cure"]
    assert "ready: pan (simulated)" in [each["found"] for each in document["findings"]]


def test_a_key_that_others_may_read(person: Person) -> None:
    key = state(person) / "keys/node.key"
    key.chmod(0o644)
    found = faults(look(person, code=1))
    assert found["key_exposed"]["where"] == str(key)
    assert found["key_exposed"]["cure"] == f"chmod 600 {key}"


def test_the_sites_key_is_gone(person: Person) -> None:
    key = state(person) / "keys/site.key"
    key.unlink()
    assert faults(look(person, code=1))["site_key_missing"]["where"] == str(key)


def test_broker_gone_while_the_node_runs(person: Person) -> None:
    config = person.folder / "edgepanda.toml"
    with Mosquitto() as broker:
        config.write_text(config.read_text().replace('# url = ""', f'url = "{broker.url}"'))
        assert broker.url in config.read_text()
        with person.up():
            look(person, code=0)
            broker.kill()
            document = look(person, code=1)
            assert set(faults(document)) == {"broker_unreachable"}
            assert {each["code"] for each in document["findings"] if each["area"] == "coordinator"} == {
                "doctor_not_checked"
            }
            assert faults(document)["broker_unreachable"]["where"] == broker.url


def test_the_coordinator_does_not_run(person: Person) -> None:
    broker, node = person.start("broker", "run"), person.start("node")
    broker.wait_for("broker at")
    node.wait_for("connected to")
    found = faults(look(person, "--timeout", "4", code=1))
    assert set(found) == {"no_answer"}
    assert found["no_answer"]["where"] == "coordinator of the site home"
    assert "edgepanda coordinator" in found["no_answer"]["cure"]


def test_a_probe_that_fails_with_and_without_the_node(person: Person) -> None:
    """The driver's own reason and cure, whoever asked it."""
    (person.folder / "lamp.py").write_text(
        "import msgspec\n"
        "from edgepanda.drivers.base import Driver\n"
        "from edgepanda.drivers.contract import Probe\n"
        "class Config(msgspec.Struct):\n    pass\n"
        "class Lamp(Driver):\n"
        "    name = 'lamp'\n    version = '1'\n    Config = Config\n"
        "    @classmethod\n"
        "    def probe(cls, config):\n        return Probe(False, 'the bulb is missing', 'screw one in')\n"
    )
    person.configure('\n[devices.lamp]\ndriver = "lamp.py"\n[devices.none]\ndriver = "none.py"\n')
    alone = faults(look(person, code=1))["device_fault"]
    told = [each for each in look(person, code=1)["findings"] if each["code"] == "device_fault"]
    assert {each["where"] for each in told} == {"devices.lamp", "devices.none"}
    lamp = next(each for each in told if each["where"] == "devices.lamp")
    assert "the bulb is missing" in lamp["found"]
    assert lamp["cure"] == "screw one in"
    assert alone["cure"]
    with person.up():
        told = [each for each in look(person, code=1)["findings"] if each["code"] == "device_fault"]
        assert next(each for each in told if each["where"] == "devices.lamp") == lamp
        assert {each["where"] for each in told} == {"devices.lamp", "devices.none"}


def test_a_driver_that_hangs_does_not_hold_the_doctor_up(person: Person) -> None:
    person.configure('\n[devices.deaf]\ndriver = "deaf"\ncommand = ["sleep", "60"]\n')
    document = look(person, "--timeout", "2", code=1)
    late = [each for each in document["findings"] if each["code"] == "doctor_late"]
    assert [each["area"] for each in late] == ["devices"]
    assert "--timeout" in late[0]["cure"]


STRANGER = """
import importlib, os, pkgutil, sys
import edgepanda.doctor
names = [found.name for found in pkgutil.iter_modules(edgepanda.doctor.__path__, "edgepanda.doctor.")]
names += ["edgepanda." + name for name in "cli.doctor cli.local client node.visit node.scan wire.broker_check".split()]
for name in names:
    importlib.import_module(name)  # before the rights to read them are given up
import edgepanda.error_codes, edgepanda.redact
from edgepanda.cli import main
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ["HOME"] = "/nonexistent"
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def neighbour() -> Iterator[Person]:
    """Somebody whose site is set up in a folder that others may look into."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        someone = Person(Path(folder))
        someone.ok("init", "--name", "desk")
        someone.listen_anywhere()
        yield someone
        someone.close()


def as_stranger(person: Person, *words: str) -> subprocess.CompletedProcess[str]:
    """Another user of this machine, who may read the configuration and nothing else."""
    config = person.folder / "edgepanda.toml"
    config.chmod(0o644)
    return subprocess.run(
        [sys.executable, "-c", STRANGER, *words, "--config", str(config)],
        cwd="/",
        env=person.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_another_user_is_told_what_could_not_be_looked_at(neighbour: Person) -> None:
    with neighbour.up():
        folder = state(neighbour)
        folder.chmod(0o700 if os.geteuid() == 0 else 0o000)  # closed to the stranger, who may be the same user
        done = as_stranger(neighbour, "doctor", "--json")
        folder.chmod(0o700)
    document = json.loads(done.stdout)
    assert "Traceback" not in done.stderr
    warned = {each["where"] for each in document["findings"] if each["code"] == "doctor_not_checked"}
    assert str(folder / "keys/node.key") in warned, document
    assert str(folder / "run/node.sock") in warned
    assert "doctor_failed" not in {each["code"] for each in document["findings"]}


def test_a_device_that_the_user_may_not_open(neighbour: Person) -> None:
    """A file below /dev that belongs to root, or to a group that this user is not in."""
    path = next(path for path in (Path("/dev/mem"), *Path("/dev").iterdir()) if path.exists() and closed(path))
    neighbour.configure(f'\n[devices.port]\ndriver = "port.py"\nport = "{path}"\n')
    document = json.loads(as_stranger(neighbour, "doctor", "--json").stdout)
    (found,) = [each for each in document["findings"] if each["area"] == "groups"]
    assert found["code"] in ("group_unknown", "group_missing")
    assert found["where"] == f"{path} (port)"
    assert "usermod -aG" in found["cure"]


def closed(path: Path) -> bool:
    """Whether a device is for its owner and its group alone."""
    seen = path.stat()
    return not path.is_dir() and not seen.st_mode & 0o006 and seen.st_uid == 0


def mounted(folder: Path, *options: str) -> bool:
    """Whether a small file system could be mounted here: it takes root."""
    folder.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", ",".join(("size=2m", *options)), "tmpfs", str(folder)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(("options", "code"), [((), "storage_full"), (("ro",), "storage_readonly")])
def test_a_full_and_a_read_only_disk(person: Person, options: tuple[str, ...], code: str) -> None:
    """Where nothing may be mounted, a file system that is read-only to all: /proc."""
    small = person.folder / "small"
    config = person.folder / "edgepanda.toml"
    if mounted(small, *options):
        try:
            config.write_text(config.read_text().replace('# state_dir = ""', 'state_dir = "small"'))
            found = faults(look(person, code=1))
        finally:
            subprocess.run(["umount", str(small)], check=True)
        assert found[code]["where"] == str(small)
    else:
        config.write_text(config.read_text().replace('# state_dir = ""', 'state_dir = "/proc/self"'))
        found = faults(look(person, code=1))
        code = "storage_full"
        assert found[code]["where"] == "/proc/self"
    assert found[code]["cure"]


def test_a_broker_that_does_not_answer_in_time(person: Person) -> None:
    config = person.folder / "edgepanda.toml"
    with Mosquitto() as broker:
        config.write_text(config.read_text().replace('# url = ""', f'url = "{broker.url}"'))
        broker.suspend()
        document = look(person, "--timeout", "2", code=1)
        broker.resume()
    assert faults(document)["broker_unreachable"]["where"] == broker.url
