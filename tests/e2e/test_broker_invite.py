"""Opening the embedded broker to a network, by real commands: what is printed is what the other machine takes."""

from __future__ import annotations

from pathlib import Path

from edgepanda.model.config import load_config
from tests.rig.cli import Person


def test_the_line_for_the_other_machine_is_what_init_takes(tmp_path: Path) -> None:
    first, second = Person(tmp_path / "first"), Person(tmp_path / "second")
    first.ok("init", "--yes")
    told = first.json("broker", "invite", "shed", "--allow-plaintext", "--address", "pi1.lan")
    config = load_config(first.folder / "edgepanda.toml")
    assert config.config.broker.users_file == "broker-users.toml"
    assert told["changed"] == {"users_file": "broker-users.toml", "listen": "0.0.0.0:1883", "allow_plaintext": True}
    second.ok(*told["next"].split()[1:])
    address = load_config(second.folder / "edgepanda.toml").broker_address()
    assert (address.host, address.username) == ("pi1.lan", "shed")
    assert address.password is not None
    assert len(address.password) >= 20


def test_a_second_invitation_of_one_name_needs_replace(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.ok("init", "--yes")
    person.ok("broker", "invite", "shed", "--allow-plaintext")
    refused = person.run("broker", "invite", "shed")
    assert "broker_user_exists" in refused.stderr
    assert "--replace" in refused.stderr
    assert person.json("broker", "invite", "shed", "--replace")["changed"] == {}


def test_a_site_with_a_broker_of_its_own_is_told_what_to_do(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.ok("init", "--yes", "--broker", "mqtt://broker.lan")
    refused = person.run("broker", "invite", "shed", "--allow-plaintext")
    assert refused.returncode == 2
    assert "make a user there" in refused.stderr
