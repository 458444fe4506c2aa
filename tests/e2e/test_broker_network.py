"""A site over a network: the embedded broker with passwords and TLS on an address that is no loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.certificates import Authority
from tests.rig.cli import Person
from tests.rig.network import ADDRESS, Network

PASSWORD = "a long password"  # noqa: S105 of this test
SERVED = f'''
[broker]
listen = "{ADDRESS}:8883"
users_file = "users.toml"
cert_file = "cert.pem"
key_file = "key.pem"
'''


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.fixture
def desk(tmp_path: Path, network: Network) -> Iterator[Person]:
    """The site's machine, not started."""
    person = Person(tmp_path / "desk")
    person.prefix = network.prefix
    person.ok("init", "--name", "desk")
    authority = Authority()
    certificate, key = authority.issue(["broker.example"])
    for name, text in (("ca.pem", authority.certificate), ("cert.pem", certificate), ("key.pem", key)):
        (person.folder / name).write_text(text)
    config = person.folder / "edgepanda.toml"
    config.write_text(config.read_text().replace("\n[broker]\n", SERVED))
    yield person
    person.close()


def add_user(person: Person, name: str) -> None:
    """By the command, as a script does it."""
    words = [sys.executable, "-m", "edgepanda", "broker", "user", "add", name, "--password-stdin"]
    subprocess.run(words, cwd=person.folder, env=person.environment, input=PASSWORD, text=True, check=True)


@pytest.fixture
def shed(tmp_path: Path, network: Network, desk: Person) -> Iterator[Person]:
    """A second machine that joins; the site's has not let it in yet."""
    person = Person(tmp_path / "shed")
    person.prefix = network.prefix
    key = desk.json("init")["site_key"]
    url = f"mqtts://shed@{ADDRESS}:8883"
    person.ok("init", "--node-only", "--name", "shed", "--site", "home", "--site-key", key, "--broker", url)
    (person.folder / "ca.pem").write_text((desk.folder / "ca.pem").read_text())
    (person.folder / "password").write_text(PASSWORD + "\n")
    config = person.folder / "edgepanda.toml"
    more = 'password_file = "password"\nca_file = "ca.pem"\nserver_name = "broker.example"\n'
    config.write_text(config.read_text().replace(f'url = "{url}"\n', f'url = "{url}"\n{more}'))
    yield person
    person.close()


def test_a_site_of_two_machines_with_passwords_and_tls(desk: Person, shed: Person) -> None:
    """Its own processes and commands log in without a setting; the other machine with its user, checking the name."""
    add_user(desk, "shed")
    with desk.up() as up:
        assert f"broker at mqtts://{ADDRESS}:8883" in "\n".join(up.lines)
        assert desk.json("do", "pan.move", "30")["state"] == "succeeded"
        desk.ok("nodes", "add", "shed", shed.json("init")["node_key"])
        node = shed.start("node")
        up.wait_for("node shed is here")
        assert desk.json("do", "pan.move", "20", "--node", "shed")["state"] == "succeeded"
        assert node.end() == 0
        checked = shed.json("broker", "check")
        assert checked["missing"] == []
        assert (checked["observed"]["user"], checked["observed"]["anonymous"]) == ("shed", False)
        assert desk.json("broker", "check")["missing"] == []
        secret = (desk.folder / ".edgepanda/keys/broker.secret").read_text()
        told = "\n".join(up.lines + node.lines)
        assert secret not in told
        assert PASSWORD not in told
        assert not any(secret in line or PASSWORD in line for line in desk.processes() + shed.processes())


def test_a_user_who_is_removed_is_cut_off_while_all_others_stay(desk: Person, shed: Person) -> None:
    add_user(desk, "shed")
    with desk.up() as up:
        desk.ok("nodes", "add", "shed", shed.json("init")["node_key"])
        shed.start("node")
        up.wait_for("node shed is here")
        desk.ok("broker", "user", "remove", "shed")
        up.wait_for("node shed is (gone|away)")
        refused = shed.run("broker", "check", "--json")
        assert '"broker_refused"' in refused.stdout
        assert desk.json("do", "pan.move", "10", "--node", "desk")["state"] == "succeeded"


@pytest.mark.parametrize("without", ["users_file", "cert_file"])
def test_it_is_refused_with_less(without: str, desk: Person) -> None:
    config = desk.folder / "edgepanda.toml"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith((without, without.replace("cert", "key")))))
    for words in (("config", "check"), ("broker", "run"), ("up",)):
        done = desk.run(*words)
        assert done.returncode == 2
        assert "broker.listen" in done.stderr
        assert without in done.stderr
