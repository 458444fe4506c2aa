"""Changing the configuration: comments stay, nothing invalid is saved, the file is replaced whole."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path

import pytest

from edgepanda.cli.init_file import render
from edgepanda.config_edit import ConfigFile
from edgepanda.model.config import ConfigError, load_config

TEXT = """\
# mine
[node]
name = "desk"   # the desk's
slots = 2

# moves the head
[devices.pan]
driver = "servo"
pin = 18        # yellow wire
simulate = true
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "edgepanda.toml"
    path.write_text(TEXT)
    return path


def test_a_changed_value_changes_its_line_alone(path: Path) -> None:
    file = ConfigFile(path)
    file.set(("devices", "pan", "pin"), 12)
    file.set(("node", "slots"), 4)
    assert file.save()
    assert path.read_text() == TEXT.replace("pin = 18 ", "pin = 12 ").replace("slots = 2", "slots = 4")
    assert not file.save()


def test_a_new_device_is_a_table_of_its_own(path: Path) -> None:
    file = ConfigFile(path)
    file.set(("devices", "tilt"), {"driver": "servo", "pin": 13, "labels": {"room": "attic"}})
    file.save()
    assert path.read_text().startswith(TEXT)
    assert '[devices.tilt]\ndriver = "servo"\npin = 13\nlabels = {room = "attic"}\n' in path.read_text()
    assert load_config(path).config.devices["tilt"]["labels"] == {"room": "attic"}
    assert file.get(("devices", "tilt", "pin")) == 13


def test_the_first_device_makes_no_empty_table(path: Path) -> None:
    path.write_text('[node]\nname = "desk"\n')
    file = ConfigFile(path)
    file.set(("devices", "pan"), {"driver": "servo", "pin": 13})
    file.set(("capabilities", "disk.free"), {"argv": ["df"], "tier": 0, "replay": "safe"})
    file.save()
    text = path.read_text()
    assert "[devices.pan]" in text
    assert "[devices]" not in text
    assert '[capabilities."disk.free"]' in text
    assert "[capabilities]" not in text


def test_a_table_that_is_set_again_keeps_the_comments_of_what_stays(path: Path) -> None:
    file = ConfigFile(path)
    file.set(("devices", "pan"), {"driver": "servo", "pin": 18, "safe": 90})
    file.save()
    assert "pin = 18        # yellow wire" in path.read_text()
    assert "# moves the head" in path.read_text()
    assert load_config(path).config.devices["pan"] == {"driver": "servo", "pin": 18, "safe": 90}


def test_a_device_is_removed(path: Path) -> None:
    file = ConfigFile(path)
    file.remove(("devices", "pan"))
    file.save()
    assert load_config(path).config.devices == {}
    assert "the desk's" in path.read_text()


OWN_AND_NEXT = """\
# the head
[devices.pan]
driver = "servo"
pin = 18
# its own

# of the next one
[devices.tilt]
driver = "servo"
pin = 19

# the end
"""


def test_what_is_removed_takes_no_comment_of_what_follows_along(path: Path) -> None:
    path.write_text(OWN_AND_NEXT)
    file = ConfigFile(path)
    file.remove(("devices", "pan"))
    file.save()
    assert path.read_text() == (
        '# the head\n\n# of the next one\n[devices.tilt]\ndriver = "servo"\npin = 19\n\n# the end\n'
    )
    file.remove(("devices", "tilt"))
    file.save()
    assert path.read_text() == "# the head\n\n# of the next one\n\n# the end\n"


def test_a_new_key_stands_above_the_comments_below(path: Path) -> None:
    path.write_text(OWN_AND_NEXT)
    file = ConfigFile(path)
    file.set(("devices", "pan", "speed"), 60)
    file.set(("devices", "tilt"), {"driver": "servo", "pin": 19, "labels": {"room": "attic"}})
    file.save()
    assert "pin = 18\nspeed = 60\n# its own\n\n# of the next one\n" in path.read_text()
    assert path.read_text().endswith('pin = 19\nlabels = {room = "attic"}\n\n# the end\n')


def test_a_device_in_several_tables_is_removed_whole(path: Path) -> None:
    path.write_text(TEXT + '\n[devices.pan.labels]\nroom = "attic"\n\n[site]\nname = "home" # ours\n')
    file = ConfigFile(path)
    file.remove(("devices", "pan"))
    file.save()
    assert load_config(path).config.devices == {}
    assert path.read_text().endswith('[site]\nname = "home" # ours\n')


def test_what_init_explains_below_its_device_stays_when_that_goes(path: Path) -> None:
    path.write_text(render(site="home", site_key="", broker="", node="desk"))
    comments = [line for line in path.read_text().splitlines() if line.startswith("#")]
    file = ConfigFile(path)
    file.remove(("devices", "pan"))
    file.save()
    assert [line for line in path.read_text().splitlines() if line.startswith("#")] == comments


def test_the_file_that_init_writes_can_be_edited(path: Path) -> None:
    before = render(site="home", site_key="", broker="", node="desk")
    path.write_text(before)
    file = ConfigFile(path)
    file.set(("devices", "tilt"), {"driver": "servo", "pin": 13})
    file.set(("node", "slots"), 4)
    file.save()
    assert load_config(path).require_node().slots == 4
    assert set(before.splitlines()) <= set(path.read_text().splitlines())


def test_what_would_be_invalid_is_not_saved(path: Path) -> None:
    file = ConfigFile(path)
    file.set(("node", "slots"), 0)
    with pytest.raises(ConfigError) as caught:
        file.save()
    assert caught.value.code == "config_invalid"
    assert path.read_text() == TEXT
    assert os.listdir(path.parent) == [path.name]


def test_what_somebody_else_wrote_meanwhile_is_not_lost(path: Path) -> None:
    file = ConfigFile(path)
    path.write_text(TEXT + "# theirs\n")
    file.set(("node", "slots"), 3)
    with pytest.raises(ConfigError) as caught:
        file.save()
    assert caught.value.code == "config_changed"
    assert path.read_text().endswith("# theirs\n")


def test_mode_and_link_stay(path: Path, tmp_path: Path) -> None:
    path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    file = ConfigFile(link)
    file.set(("node", "slots"), 3)
    file.save()
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert load_config(path).require_node().slots == 3


@pytest.mark.parametrize("key", [("devices", "tilt"), ("node", "slots", "x"), ("zoo", "a")])
def test_a_key_that_is_not_there_is_named(path: Path, key: tuple[str, ...]) -> None:
    for act in (ConfigFile(path).get, ConfigFile(path).remove):
        with pytest.raises(ConfigError) as caught:
            act(key)
        assert caught.value.code == "config_key_unknown"
        assert caught.value.where == f"{path}: {'.'.join(key)}"


def test_a_missing_and_an_unreadable_file_say_so(tmp_path: Path) -> None:
    for name, content, code in (("none", None, "config_missing"), ("bad", "[node\n", "config_invalid")):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError) as caught:
            ConfigFile(tmp_path / name)
        assert caught.value.code == code
        assert str(tmp_path / name) in caught.value.where


def test_a_folder_that_does_not_exist_any_more_is_an_error_with_a_cure(path: Path) -> None:
    from edgepanda.config_edit import replace_text

    with pytest.raises(ConfigError) as caught:
        replace_text(path.parent / "gone" / "edgepanda.toml", TEXT)
    assert caught.value.code == "config_unwritable"
    assert caught.value.cure


FORMS = {
    "out of order": '[devices.pan]\ndriver = "servo"\n[node]\n[devices.tilt]\ndriver = "servo" # c\npin = 1\n',
    "inline": 'node = { name = "x" }\ndevices = { pan = { driver = "servo" }, tilt = { driver = "servo" } }\n',
    "mixed": '[devices]\npan = { driver = "servo" }\ntilt.driver = "servo"\n[node]\n',
    "windows": '[devices.pan]\r\ndriver = "servo"\r\n[devices.tilt]\r\ndriver = "servo"\r\n',
    "dotted": 'node.slots = 4\ndevices.pan.driver = "servo"\ndevices.tilt.driver = "servo"\ndevices.tilt.pin = 1\n',
}


@pytest.mark.parametrize("form", FORMS)
def test_whatever_the_form_the_file_says_what_was_wanted_or_is_as_it_was(path: Path, form: str) -> None:
    new = {"driver": "servo", "pin": 2, "labels": {"a": "b"}}
    changes: list[tuple[tuple[str, ...], object]] = [
        (("devices", "tilt", "pin"), 9),
        (("devices", "tilt"), new),
        (("devices", "new"), new),
        (("node", "slots"), 7),
        (("capabilities", "a.b"), {"argv": ["x"], "tier": 0, "replay": "safe", "args": {"w": {"type": "string"}}}),
    ]
    refused: list[str] = []
    for key, value in changes:
        told = len(refused)
        path.write_bytes(FORMS[form].encode())
        before = tomllib.loads(path.read_text())
        file = ConfigFile(path)
        file.set(key, value)
        try:
            file.save()
        except ConfigError as error:
            refused.append(error.code)
        wanted = before
        for part in key[:-1]:
            wanted = wanted.setdefault(part, {})
        wanted[key[-1]] = value
        as_it_was = path.read_bytes() == FORMS[form].encode()
        assert as_it_was or tomllib.loads(path.read_text()) == before
        assert as_it_was == (len(refused) > told)
    assert set(refused) == ({"config_form"} if form in ("dotted", "mixed") else set())
    path.write_bytes(FORMS[form].encode())
    file = ConfigFile(path)
    file.remove(("devices", "pan"))
    file.remove(("devices", "tilt"))
    file.save()
    assert load_config(path).config.devices == {}
