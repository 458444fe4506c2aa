"""What Tab offers, from what files, and that it imports nothing large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgepanda.cli import complete as completing
from edgepanda.cli.complete import Level, Names, complete, known_names, level_of
from edgepanda.cli.names import config_path, names_path, node_names, read_json, remember_nodes, remember_tasks
from edgepanda.model.config import find_config

ARGS = {"args": {"properties": {"angle": {}, "speed": {}}}}
CARD: dict[str, Any] = {
    "labels": {"room": "lab"},
    "drivers": {"servo": {"actions": {"move": ARGS, "read": {}}}},
    "devices": {"pan": {"driver": "servo"}, "tilt": {"driver": "servo"}},
    "capabilities": {"build.heavy": {"action": {"args": {"properties": {"target": {}}}}}},
}
NODE: dict[str, Any] = {"name": "desk", "card": CARD}
NAMES = Names({"desk": node_names(CARD)}, ["t2", "t1"], ["pan", "led"], ["say.word"])
OPTIONS = {"--node": [], "--json": ["(flag)"], "--state": ["queued", "failed"], "--label": [], "--device": []}


@pytest.fixture(autouse=True)
def _of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("EDGEPANDA_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("sho", ["show"]),
        ("--v", ["--version"]),
        ("do pan.", ["pan.move", "pan.read"]),
        ("do l", ["led."]),
        ("do say", ["say.word"]),
        ("do de", ["desk/"]),
        ("do desk/t", ["desk/tilt.move", "desk/tilt.read"]),
        ("do pan.move ", ["angle=", "speed="]),
        ("do pan.move speed=2 ", ["angle="]),
        ("do desk/pan.move a", ["angle="]),
        ("do nothing.here ", []),
        ("submit b", ["build.heavy"]),
        ("submit build.heavy --json ", ["target="]),
        ("tasks --node ", ["desk"]),
        ("tasks --device ", ["led", "pan", "tilt"]),
        ("tasks --label r", ["room=lab"]),
        ("tasks --state f", ["failed"]),
        ("tasks --j", ["--json"]),
        ("show ", ["t1", "t2"]),
        ("show t1 ", []),
        ("review t1 a", ["accept", "again"]),
        ("card show ", ["desk"]),
        ("card show desk ", []),
        ("card rescan ", ["desk"]),
        ("logs ", ["desk"]),
        ("logs desk ", []),
        ("nodes remove ", ["desk"]),
        ("nodes rename ", ["desk"]),
        ("completion f", ["fish"]),
        ("device add ", ["servo"]),
        ("device add servo ", []),
        ("device remove ", ["led", "pan"]),
        ("device set p", ["pan"]),
        ("capability try ", ["say.word"]),
        ("capability try build.heavy ", ["target="]),
        ("capability add ", []),
        ("up ", []),
    ],
)
def test_what_comes_next(line: str, found: list[str]) -> None:
    assert complete(line.split(" "), NAMES, Level(OPTIONS, [])) == found


def test_names_are_kept_and_what_is_gone_goes(tmp_path: Path) -> None:
    remember_nodes("home", [NODE, {"name": "attic", "card": None}], all_of_them=True)
    remember_tasks("home", ["b", "a"])
    remember_tasks("home", ["c"])
    assert known_names()[0].tasks == ["c", "b", "a"]
    remember_nodes("home", [{"name": "attic", "card": CARD}], all_of_them=False)
    assert sorted(read_json(names_path("home"))["nodes"]["attic"]["devices"]) == ["pan", "tilt"]
    remember_nodes("home", [NODE], all_of_them=True)
    names, old = known_names()
    assert (list(names.nodes), names.tasks, old) == (["desk"], ["c", "b", "a"], False)
    assert [path.name for path in (tmp_path / "cache/edgepanda").iterdir()] == ["names-home.json"]


def test_a_broken_cache_is_none() -> None:
    remember_tasks("home", ["a"])
    Path(names_path("home")).write_text('{"format": 9, "tasks": ["x"]}')
    assert known_names()[0].tasks == []
    Path(names_path("home")).write_text("[")
    assert known_names()[0].tasks == []


def test_a_cache_that_cannot_be_written_hurts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    remember_nodes("home", [NODE], all_of_them=True)
    assert known_names()[0].nodes == {}


def test_the_local_configuration_counts(tmp_path: Path) -> None:
    assert known_names() == (Names({}, [], [], []), False)  # no configuration: nothing to ask
    (tmp_path / "edgepanda.toml").write_text('[site]\nname = "lab"\n[devices.pan]\ndriver = "servo"\n')
    names, old = known_names()
    assert (names.devices, old) == (["pan"], True)
    (tmp_path / "edgepanda.toml").write_text("[")
    assert known_names()[0].devices == []


@pytest.mark.parametrize("where", ["edgepanda.toml", ".config/edgepanda/edgepanda.toml"])
def test_the_configuration_is_found_as_everywhere(where: str, tmp_path: Path) -> None:
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).write_text("")
    assert Path(config_path() or "") == find_config(None)


def test_options_come_from_the_commands_and_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert level_of(["resolve", ""]).options["--as"] == ["succeeded", "failed", "retry"]
    assert level_of(["tasks", ""]).options["--json"] == ["(flag)"]
    assert "--online" in level_of(["nodes", ""]).options
    assert "--online" not in level_of(["nodes", "add", ""]).options
    monkeypatch.setattr(completing, "_read_options", None)
    assert "--as" in level_of(["resolve", ""]).options
    assert level_of(["nothing", ""]) == Level({}, [])


def test_subcommands_come_from_the_commands() -> None:
    assert complete(["config", "s"], NAMES, level_of(["config", "s"])) == ["schema", "show"]
    assert complete(["nodes", "--online", ""], NAMES, level_of(["nodes", ""]))[:2] == ["add", "list"]
    assert level_of(["config", "show", ""]).subcommands == []
    assert level_of(["do", ""]).subcommands == []
    assert complete(["broker", "user", "a"], NAMES, level_of(["broker", "user", "a"])) == ["add"]
    groups = ("audit", "broker", "capability", "card", "config", "device", "nodes")
    assert all(level_of([name, ""]).subcommands for name in groups)


def test_old_names_are_fetched_by_another_process_and_not_at_every_tab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda argv, **_: started.append(argv))
    (tmp_path / "edgepanda.toml").write_text("")
    for _ in range(3):
        assert completing.main(["up", "--config", "edgepanda.toml", ""]) == 0
    assert [argv[1:] for argv in started] == [["-m", "edgepanda", "status", "--json", "--config", "edgepanda.toml"]]


def test_it_imports_nothing_large() -> None:
    level_of(["do", ""])
    program = (
        "import sys; from edgepanda.cli import main; main(['completion', 'words', '--', 'do', 'pan']); "
        "print([m for m in ('paho', 'nacl', 'rich', 'msgspec', 'click', 'asyncio', 'subprocess') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[-1] == "[]"


def test_bash_completes(tmp_path: Path) -> None:
    remember_nodes("home", [NODE], all_of_them=True)
    script = (
        f'PATH={Path(sys.executable).parent}:$PATH; eval "$(edgepanda completion bash)"\n'
        "COMP_WORDS=(edgepanda do pan.); COMP_CWORD=2; _edgepanda; echo ${COMPREPLY[@]}\n"
        "COMP_WORDS=(edgepanda up ''); COMP_CWORD=2; _edgepanda; echo ${#COMPREPLY[@]}\n"
        "complete -p edgepanda\n"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.splitlines()[:2] == ["pan.move pan.read", "0"]
    assert done.stdout.splitlines()[2].endswith("-F _edgepanda edgepanda")
    assert "compopt" not in done.stderr
