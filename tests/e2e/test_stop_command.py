"""`edgepanda stop` and `release` as a person and a script give them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.cli import Person, set_up


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with set_up(tmp_path) as someone, someone.up():
        yield someone


def test_it_is_in_force_until_it_is_released(person: Person) -> None:
    told = person.json("stop", "--because", "the arm caught a cable")
    assert (told["stopped"], told["silent"], told["away"], told["errors"]) == (["desk"], [], [], [])
    refused = person.run("do", "pan.move", "10")
    assert (refused.returncode, "the arm caught a cable" in refused.stderr, "[stopped]" in refused.stderr) == (
        1,
        True,
        True,
    )
    assert "desk is stopped" in person.ok("status")
    asked = person.run("release")
    assert (asked.returncode, asked.stderr.strip().endswith("--yes releases without asking [usage]")) == (2, True)
    assert "the arm caught a cable" in asked.stdout
    assert person.at_terminal("release", typed="n\n")[0] == 130
    assert person.run("do", "pan.move", "10").returncode == 1
    code, shown = person.at_terminal("release", typed="y\n")
    assert (code, shown.strip().endswith("released")) == (0, True)
    person.ok("do", "pan.move", "10")
    assert person.json("release", "--yes") == {"released": {}, "waiting": []}
    assert "no emergency stop is in force" in person.ok("release")


def test_one_of_two_is_released_by_its_id_and_without_the_site_at_the_node(person: Person) -> None:
    first, second = person.json("stop")["id"], person.json("stop", "--node", "desk")["id"]
    released = person.json("release", first, "--yes")["released"]
    assert set(released) == {"the site", "desk"}
    assert person.run("do", "pan.move", "10").returncode == 1
    config = person.folder / "edgepanda.toml"
    whole = config.read_text()
    config.write_text(whole.replace('listen = "', 'listen = "127.0.0.2:1" # '))
    alone = person.json("release", second, "--yes")
    config.write_text(whole)
    assert (set(alone["released"]), alone["waiting"]) == ({"desk"}, [])
    person.ok("do", "pan.move", "10")
    assert json.loads(person.ok("status", "--json"))["nodes"][0].get("stops", []) == []
