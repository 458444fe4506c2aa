"""`edgepanda doctor --report`: one archive with all that helps, and no secret of this machine in it."""

from __future__ import annotations

import base64
import gzip
import json
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.rig.brokers import Mosquitto
from tests.rig.certificates import Authority
from tests.rig.cli import Person

URL, ENCODED, NESTED, LONG = "Url-0815-pass", "Per:cent/0816@", "Nested-0817", "Long-0818-pass"
API, PUBLISH, CURL, TOLD, FILE = "Api-0819-key", "Publish-0820", "Curl-0821", "Told-0822-token", "File 0823 words"
BARE = "Bare-0824-in-a-log"  # nothing about it says that it is secret, but that it is one in the configuration

CONFIG = f'''
[devices.door]
driver = "door.py"
api_key = "{API}"
camera = "http://me:{NESTED}@camera.lan/stream"
pass_phrase = "no secret by its name"
[devices.door.login]
password = """
{LONG}
"""
token = "{BARE}"

[capabilities."tell.all"]
argv = ["mosquitto_pub", "-u", "me", "-P", "{PUBLISH}", "-t", "a"]
tier = 0
replay = "safe"

[capabilities."fetch.all"]
argv = ["sh", "-c", "curl -s -u me:{CURL} https://host/"]
tier = 0
replay = "safe"
'''
DRIVER = f"""
import sys
from pathlib import Path
from typing import Any
import msgspec
from edgepanda.drivers.base import Driver
from edgepanda.drivers.contract import Probe


class Config(msgspec.Struct):
    api_key: str
    camera: str
    pass_phrase: str
    login: dict[str, str]


class Door(Driver):
    name = "door"
    version = "1"
    Config = Config

    @classmethod
    def probe(cls, config: Config) -> Probe:
        folder = Path(__file__).parent
        for path in sorted((folder / ".edgepanda/keys").iterdir()):
            print(f"{{path.name}}: {{path.read_text()}}", file=sys.stderr)
        print(f"opening {{config.camera}} as {BARE} with {{config.login}}", file=sys.stderr, flush=True)
        return Probe(False, "the door does not take token={TOLD}, nor {BARE}", f"set password={{config.api_key}}")
"""


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    """Somebody whose site is set up, with secrets everywhere."""
    someone = Person(tmp_path)
    someone.ok("init", "--name", "desk")
    someone.configure(CONFIG)
    (someone.folder / "door.py").write_text(DRIVER)
    (someone.folder / ".edgepanda/keys/tls.key").write_text(Authority().issue(["localhost"])[1])
    (someone.folder / "broker.password").write_text(FILE + "\n")
    yield someone
    someone.close()


def secrets(person: Person) -> list[str]:
    """All of them, in the forms in which they stand somewhere."""
    found = [URL, ENCODED, quote(ENCODED, safe=""), NESTED, LONG, API, PUBLISH, CURL, TOLD, FILE, BARE]
    keys = [*(person.folder / ".edgepanda/keys").iterdir(), *person.home.rglob("operator.key")]
    assert {path.name for path in keys} == {"node.key", "site.key", "tls.key", "operator.key"}
    for path in keys:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("-----")]
        found += lines
        found += [base64.b64decode(line).hex() for line in lines if len(line) == 44]
    return found


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        names = archive.getnames()
        assert len({name.partition("/")[0] for name in names}) == 1  # it unpacks into one folder
        files = {name.partition("/")[2]: archive.extractfile(name) for name in names}
        return {name: file.read().decode() for name, file in files.items() if file}


def check(person: Person, path: Path, printed: str) -> dict[str, str]:
    """The archive's files, in which no byte of a secret is."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    everything = gzip.decompress(path.read_bytes()).decode()
    for secret in secrets(person):
        assert secret not in everything
        assert secret not in printed
    files = members(path)
    assert all(f"\n  {name}\n" in files["README.txt"] for name in files if name != "README.txt")
    assert "Secrets were taken out" in files["README.txt"]
    return files


def with_url(person: Person, url: str, more: str = "") -> None:
    config = person.folder / "edgepanda.toml"
    config.write_text(config.read_text().replace('# url = ""', f'url = "{url}"\n{more}'))
    assert url in config.read_text()


@pytest.mark.parametrize("password", [URL, ENCODED])
def test_secrets_everywhere_and_none_in_the_report(person: Person, password: str) -> None:
    with Mosquitto(users={"me": password}) as broker:
        with_url(person, broker.url.replace("://", f"://me:{quote(password, safe='')}@"))
        with person.up():
            done = person.run("doctor", "--report", "report.tar.gz")
    assert done.returncode == 1, done.stderr  # the door is a fault
    files = check(person, person.folder / "report.tar.gz", done.stdout + done.stderr)
    assert set(files) >= {"doctor.json", "edgepanda.toml", "versions.json", "node.json", "card.json", "log.txt"}
    assert "wrote report.tar.gz: README.txt, doctor.json, " in done.stdout
    assert json.loads(files["versions.json"])["packages"]["msgspec"]
    found = {each["code"]: each for each in json.loads(files["doctor.json"])["findings"]}
    assert found["device_fault"]["where"] == "devices.door"
    assert "me:***@127.0.0.1" in files["edgepanda.toml"]
    assert 'pass_phrase = "no secret by its name"' in files["edgepanda.toml"]
    assert "# The site's name." in files["edgepanda.toml"]  # comments help, and stay
    assert "opening http://me:***@camera.lan/stream as ***" in files["log.txt"]
    assert json.loads(files["card.json"])["devices"]["door"]["state"] == "unavailable"


def test_a_password_in_a_file(person: Person) -> None:
    with Mosquitto(users={"me": FILE}) as broker:
        with_url(person, broker.url.replace("://", "://me@"), 'password_file = "broker.password"')
        with person.up():
            done = person.run("doctor", "--report", "--json")
    document = json.loads(done.stdout)
    files = check(person, person.folder / document["report"], done.stdout + done.stderr)
    assert document["contains"] == list(files)
    assert 'password_file = "broker.password"' in files["edgepanda.toml"]


def test_a_report_without_anything_and_of_a_broken_configuration(person: Person) -> None:
    config = person.folder / "edgepanda.toml"
    config.write_text(config.read_text() + "\n[[[\n")
    done = person.run("doctor", "--report", "broken.tar.gz")
    assert done.returncode == 1
    files = check(person, person.folder / "broken.tar.gz", done.stdout + done.stderr)
    assert "edgepanda.toml" in files
    config.unlink()
    assert person.run("doctor", "--report", "none.tar.gz").returncode == 1
    assert set(members(person.folder / "none.tar.gz")) >= {"README.txt", "doctor.json", "versions.json"}


def test_nothing_is_overwritten(person: Person) -> None:
    (person.folder / "mine").write_text("mine")
    done = person.run("doctor", "--report", "mine")
    assert done.returncode == 1
    assert "[report_unwritable]" in done.stderr
    assert (person.folder / "mine").read_text() == "mine"
