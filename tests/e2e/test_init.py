"""How a machine is set up: by questions at a terminal, by options, and from the boot partition without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepanda.model.config import load_config
from tests.rig.cli import Person

KEY = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
OUTCOME = "boot/edgepanda-outcome.txt"


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path)
    (person.folder / "boot").mkdir()
    yield person
    person.close()


def boot(person: Person, text: str) -> Path:
    path = person.folder / "boot/edgepanda.toml"
    path.write_text(text)
    return path


def test_a_terminal_is_asked_and_a_wrong_answer_is_asked_again(person: Person) -> None:
    code, told = person.at_terminal("init", typed="sight\nsite\nMy Desk\ndesk\n\nhttp://no\nembedded\n\n")
    assert code == 0, told
    assert "Found here:" in told
    assert "use 1 to 32 of the characters" in told
    assert told.count("Broker [embedded]") == 2


def test_the_answers_become_the_configuration(person: Person) -> None:
    code, told = person.at_terminal("init", typed="\ndesk\nattic\nmqtt://broker.lan\n\n")
    assert code == 0, told
    config = load_config(person.folder / "edgepanda.toml").config
    assert config.node is not None
    assert (config.node.name, config.site.name, config.broker.url) == ("desk", "attic", "mqtt://broker.lan")
    assert config.coordinator is not None


def test_a_node_of_a_site_is_asked_for_key_and_broker(person: Person) -> None:
    code, told = person.at_terminal("init", typed=f"node\nshed\n\nnonsense\n{KEY}\nmqtt://broker.lan\n\n")
    assert code == 0, told
    assert "nodes add shed ed25519:" in told
    config = load_config(person.folder / "edgepanda.toml").config
    assert (config.site.key, config.coordinator) == (KEY, None)


@pytest.mark.parametrize("words", [("--yes",), ("--json",)])
def test_yes_and_json_ask_nothing(person: Person, words: tuple[str, ...]) -> None:
    code, told = person.at_terminal("init", *words, typed="\n")
    assert code == 0
    assert "questions" not in told


def test_a_file_on_the_boot_partition_makes_a_site(person: Person) -> None:
    source = boot(person, '[site]\nname = "home"\n[coordinator]\n[node]\nname = "desk"\n')
    person.ok("init", "--from", "boot/edgepanda.toml", "--config", "etc/edgepanda.toml")
    outcome = (person.folder / OUTCOME).read_bytes().decode()
    assert "node      desk   ed25519:" in outcome
    assert outcome.count("\r\n") == outcome.count("\n")
    assert not source.exists()
    taken = person.folder / "etc/edgepanda.toml"
    assert taken.stat().st_mode & 0o777 == 0o600
    assert load_config(taken).require_node().name == "desk"


def test_a_node_without_a_name_gets_one_and_the_outcome_says_what_to_type(person: Person) -> None:
    boot(person, f'[site]\nkey = "{KEY}"\n[broker]\nurl = "mqtt://broker.lan"\n[node]\n')
    person.ok("init", "--from", "boot/edgepanda.toml", "--config", "etc/edgepanda.toml")
    assert "edgepanda nodes add " in (person.folder / OUTCOME).read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[site]\nnmae = "home"\n', "did you mean 'name'?"),
        ("[node\n", "no TOML"),
        ("[node]\n", "site's key is not known here"),
        ("[site]\n", "neither coordinator nor node"),
    ],
)
def test_what_is_wrong_in_it_stands_beside_it(person: Person, text: str, said: str) -> None:
    source = boot(person, text)
    done = person.run("init", "--from", "boot/edgepanda.toml", "--config", "etc/edgepanda.toml")
    assert done.returncode == 2
    outcome = (person.folder / OUTCOME).read_text()
    assert said in outcome
    assert "Correct it" in outcome
    assert source.read_text() == text


def test_an_earlier_configuration_is_kept(person: Person) -> None:
    person.ok("init", "--name", "old")
    boot(person, '[coordinator]\n[node]\nname = "new"\n')
    person.ok("init", "--from", "boot/edgepanda.toml")
    assert load_config(person.folder / "edgepanda.toml").require_node().name == "new"
    assert 'name = "old"' in (person.folder / "edgepanda.toml.before").read_text()


def test_the_other_options_do_not_go_with_it(person: Person) -> None:
    boot(person, "[coordinator]\n[node]\n")
    done = person.run("init", "--from", "boot/edgepanda.toml", "--name", "desk")
    assert done.returncode == 2
    assert "--from takes all from the file" in done.stderr
