"""Broken configurations: each error names file, line, key, what is allowed, and what to do; all are told at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepanda.errors import EdgePandaError
from edgepanda.model.config import ConfigError, load_config
from edgepanda.model.config_check import Problem, check_text

PATH = Path("edgepanda.toml")
DEVICE = '[devices.pan]\ndriver = "servo"\n'
COMMAND = '[capabilities."disk.free"]\nargv = ["df"]\ntier = 0\nreplay = "safe"\n'

BROKEN: list[tuple[str, int, str, str, str]] = [  # text, line, key, code, part of the cure
    # keys that do not exist
    ("[nodes]\nslots = 2", 1, "nodes", "config_key_unknown", "did you mean 'node'?"),
    ("[node]\nnmae = 'x'", 2, "node.nmae", "config_key_unknown", "did you mean 'name'?"),
    ("[node]\n\n# more\nslot = 3", 4, "node.slot", "config_key_unknown", "did you mean 'slots'?"),
    ("[site]\nslots = 3", 2, "site.slots", "config_key_unknown", "it belongs into [node]"),
    ("lease_ttl = 3", 1, "lease_ttl", "config_key_unknown", "it belongs into [coordinator]"),
    ("[broker]\nzzz = 1", 2, "broker.zzz", "config_key_unknown", "edgepanda config schema"),
    ("node.beats = 3.0", 1, "node.beats", "config_key_unknown", "did you mean 'beat'?"),
    ("[device.pan]\ndriver = 'servo'", 1, "device", "config_key_unknown", "did you mean 'devices'?"),
    (f"{COMMAND}timout = 3.0", 5, 'capabilities."disk.free".timout', "config_key_unknown", "did you mean 'timeout'?"),
    # wrong types
    ("node = 3", 1, "node", "config_type", "[node]"),
    ("[node]\nname = 5", 2, "node.name", "config_type", 'in quotes: name = "5"'),
    ("[node]\nslots = '5'", 2, "node.slots", "config_type", "without quotes: slots = 5"),
    ("[node]\nslots = 2.5", 2, "node.slots", "config_type", "for example slots = 16"),
    ("[node]\nslots = true", 2, "node.slots", "config_type", "for example slots = 16"),
    ("[node]\nbeat = 'fast'", 2, "node.beat", "config_type", "for example beat = 10.0"),
    ("[node]\nlabels = 'attic'", 2, "node.labels", "config_type", 'labels = { room = "attic" }'),
    ("[node]\nlabels = {floor = 2}", 2, "node.labels.floor", "config_type", 'in quotes: floor = "2"'),
    ("[node.labels]\nroom = 'x'\nfloor = 2", 3, "node.labels.floor", "config_type", 'in quotes: floor = "2"'),
    ("[broker]\nurl = []", 2, "broker.url", "config_type", 'url = "mqtt://'),
    ("devices = []", 1, "devices", "config_type", "write [devices.NAME]"),
    ("[devices]\npan = 'servo'", 2, "devices.pan", "config_type", "write [devices.pan]"),
    ("[[devices.pan]]\ndriver = 'servo'", 1, "devices.pan", "config_type", "write [devices.pan]"),
    ("[devices.pan]\ndriver = ['servo']", 2, "devices.pan.driver", "config_type", 'driver = "servo"'),
    (f"{DEVICE}labels = {{a = 1}}", 3, "devices.pan.labels.a", "config_type", 'in quotes: a = "1"'),
    ("[devices.pan]\ndriver = 'x'\ncommand = './x'", 3, "devices.pan.command", "config_type", 'command = ["./x"]'),
    # values that are not allowed
    ("[node]\nslots = 0", 2, "node.slots", "config_value", "for example slots = 16"),
    ("[node]\nbeat = 1000", 2, "node.beat", "config_value", "for example beat = 10.0"),
    ("[node]\nbeat = nan", 2, "node.beat", "config_value", "for example beat = 10.0"),
    ("[node]\ndrain = -1", 2, "node.drain", "config_value", "for example drain = 10.0"),
    ("[coordinator]\nlease_ttl = 0.5", 2, "coordinator.lease_ttl", "config_value", "lease_ttl = 30.0"),
    ("[node]\nname = 'Front Door'", 2, "node.name", "config_value", "'front-door'"),
    ('[node]\nname = "desk\\n"', 2, "node.name", "config_value", "'desk'"),
    ("[site]\nname = ''", 2, "site.name", "config_value", 'name = "home"'),
    ("[site]\nbase = 'a/b'", 2, "site.base", "config_value", "'a-b'"),
    ("[site]\nkey = 'ed25519:abc'", 2, "site.key", "config_value", "ed25519:AAA"),
    ("[broker]\nurl = 'http://broker.lan'", 2, "broker.url", "config_value", "mqtt or mqtts is allowed"),
    ("[broker]\nurl = 'mqtt://broker.lan:0'", 2, "broker.url", "config_value", "1 to 65535"),
    ("[broker]\nlisten = 'localhost:mqtt'", 2, "broker.listen", "config_value", "127.0.0.1:1883"),
    ("[broker]\npassword_env = 'my password'", 2, "broker.password_env", "config_value", "EDGEPANDA_BROKER_PASSWORD"),
    ('[devices."Pan 1"]\ndriver = "servo"', 1, 'devices."Pan 1"', "config_value", "'pan-1'"),
    ("[devices.pan]\ndriver = 'sevro'", 2, "devices.pan.driver", "config_value", 'did you mean "servo"?'),
    ("[devices.pan]\ndriver = 'lamp'", 2, "devices.pan.driver", "config_value", "`command`"),
    ("[devices.pan]\ndriver = 'x'\ncommand = []", 3, "devices.pan.command", "config_value", '["./dimmer"]'),
    (
        '[capabilities.free]\nargv = ["df"]\ntier = 0\nreplay = "safe"',
        1,
        "capabilities.free",
        "config_value",
        "build.heavy",
    ),
    ("[capabilities.disk.free]\ntier = 0", 1, "capabilities.disk", "config_value", 'write [capabilities."disk.free"]'),
    (COMMAND.replace("0", "3"), 3, 'capabilities."disk.free".tier', "config_value", "for example tier = 0"),
    (COMMAND.replace('"safe"', '"save"'), 4, 'capabilities."disk.free".replay', "config_value", 'mean "safe"?'),
    (f"{COMMAND}output_limit = 10", 5, 'capabilities."disk.free".output_limit', "config_value", "output_limit = 65536"),
    # what is missing
    ("[devices.pan]\npin = 18", 1, "devices.pan.driver", "config_key_missing", 'driver = "servo"'),
    ("[devices.pan]\ndrvier = 'servo'", 1, "devices.pan.driver", "config_key_missing", "did you mean 'driver'"),
    (COMMAND.replace("tier = 0\n", ""), 1, 'capabilities."disk.free".tier', "config_key_missing", "tier = 0"),
    # no TOML
    ("[node]\nname = desk", 2, "node.name", "config_syntax", "quotes"),
    ("[node]\nname = 'desk'\nname = 'box'", 3, "node.name", "config_syntax", "remove one"),
    ("[node]\nslots = 2\n[site]\n[node]", 4, "node", "config_syntax", "join the two"),
    ("[devices.pan]\ndriver = 'servo'\nsimulate = True\n", 3, "devices.pan.simulate", "config_syntax", "write true"),
    ("[node\nslots = 2", 1, "node", "config_syntax", "correct the line"),
    ("[node]\nslots: 2", 2, "node.slots", "config_syntax", "correct the line"),
    ("[node]\nname = 'desk", 2, "node.name", "config_syntax", "correct the line"),
    ("[node]\nslots =", 2, "node.slots", "config_syntax", "correct the line"),
]


@pytest.mark.parametrize(
    ("text", "line", "key", "code", "cure"), BROKEN, ids=[f"{n}-{b[2]}" for n, b in enumerate(BROKEN)]
)
def test_an_error_names_file_line_key_and_cure(text: str, line: int, key: str, code: str, cure: str) -> None:
    config, (problem, *more) = check_text(text, PATH)
    assert config is None
    assert more == [] or "drvier" in text or "disk.free]" in text
    assert (problem.file, problem.line, problem.key, problem.code) == ("edgepanda.toml", line, key, code)
    assert cure in problem.cure
    assert problem.found
    assert problem.allowed
    assert str(problem).startswith(f"edgepanda.toml:{line}: {key}: found ")
    assert "\n" not in str(problem)


def test_there_are_forty_of_them() -> None:
    assert len({text for text, *_ in BROKEN}) >= 40


def test_all_are_told_at_once_in_the_order_of_the_lines() -> None:
    """Each broken line of one file, also around lines that are no TOML."""
    text = """\
state_dri = "x"
[site]
name = "My Home"
base = base
[node]
slots = 0
beat = "10"
labels = {
}
[devices.pan]
driver = servo
pin = 18
[devices.tilt]
driver = "sevro"
text = \"\"\"
[node]
slots = 'not a key'
\"\"\"
labels = [
  "a",  # ]
]
[capabilities."disk.free"]
argv = "df"
replay = "safe"
"""
    _, problems = check_text(text.replace("labels = {\n}\n", ""), PATH)
    assert [(problem.line, problem.key) for problem in problems] == [
        (1, "state_dri"),
        (3, "site.name"),
        (4, "site.base"),
        (6, "node.slots"),
        (7, "node.beat"),
        (9, "devices.pan.driver"),
        (12, "devices.tilt.driver"),
        (17, "devices.tilt.labels"),
        (20, 'capabilities."disk.free".tier'),
        (21, 'capabilities."disk.free".argv'),
    ]


def test_the_error_has_the_first_and_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "edgepanda.toml"
    path.write_text("[node]\nslots = 0\nbeat = 0\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    error = caught.value
    assert (error.code, error.where) == ("config_invalid", f"{path}:2: node.slots")
    assert "1 more" in error.cure
    assert [problem["key"] for problem in error.details["problems"]] == ["node.slots", "node.beat"]
    assert [line.split(": ")[1] for line in error.lines()] == ["node.slots", "node.beat"]
    assert EdgePandaError.from_dict(error.as_dict()).details == error.details


@pytest.mark.parametrize(
    "url",
    [
        "mqtt://me:hunter2@broker.lan:99999",
        "mqtt://me:hun/ter2@broker.lan",
        "amqp://me:hunter2@x",
        "mqtt://me:hunter2@[x",
    ],
)
def test_a_password_is_not_shown(url: str) -> None:
    _, problems = check_text(f'[broker]\nurl = "{url}"\nlisten = "{url}"', PATH)
    assert len(problems) == 2
    assert "ter2" not in "".join(map(str, problems))


def test_a_windows_file_is_read_like_any_other() -> None:
    config, problems = check_text('\ufeff[node]\r\nname = "desk"\r\nslots = 3\r\n', PATH)
    assert problems == []
    assert config is not None
    assert config.node is not None
    assert config.node.slots == 3


def test_a_problem_is_a_line() -> None:
    problem = Problem("a.toml", 3, "node.slots", "0", "1 or more", "write 1", "config_value")
    assert str(problem) == "a.toml:3: node.slots: found 0, allowed is 1 or more; write 1 [config_value]"


BITS = [*"[]{}\"'=.\n#,\\x1\0", '"""', "'''", "nan", "1979-05-27", "[node]\n"]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([text for text, *_ in BROKEN]), st.lists(st.tuples(st.floats(0, 1), st.sampled_from(BITS))))
def test_no_text_is_too_broken(text: str, noise: list[tuple[float, str]]) -> None:
    """Whatever stands in the file, the answer is a configuration or problems that have a place and a cure."""
    for place, bit in noise:
        at = int(place * len(text))
        text = text[:at] + bit + text[at:]
    config, problems = check_text(text, PATH)
    assert (config is None) == bool(problems)
    for problem in problems:
        assert 1 <= problem.line <= text.count("\n") + 1
        assert problem.key
        assert problem.cure


def test_a_text_that_is_too_deep() -> None:
    _, (problem,) = check_text("a = " + "[" * 5000, PATH)
    assert problem.code == "config_syntax"
