"""`edgepanda config`: all errors on one run, values with their origin, editing that cannot break anything, the keys."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import fastjsonschema
import pytest

from edgepanda.cli import main
from edgepanda.cli.init_file import render

TEXT = """\
# mine
[broker]
url = "mqtt://me:hunter2@broker.lan"
[node]
name = "desk"
slots = 2
[devices.pan]
driver = "servo"
api_key = "abc"
[capabilities."disk.free"]
argv = ["df"]
tier = 0
replay = "safe"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "edgepanda.toml"
    path.write_text(TEXT)
    return path


def editor(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """$EDITOR is a program that does this to the file `$1`."""
    program = folder / "my editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"'{program}'")


def test_check_tells_every_problem_on_a_line_of_its_own(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text("[node]\nslots = 0\nnmae = 'x'\n[devices.pan]\ndriver = sevro\n")
    assert main(["config", "check", "--config", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    first, second, third = told.err.splitlines()
    assert first.startswith(f"error: {path}:2: node.slots: found 0, allowed is a whole number from 1 to 1000")
    assert second.startswith(f"error: {path}:3: node.nmae: ")
    assert second.endswith("; did you mean 'name'? [config_key_unknown]")
    assert third.startswith(f"error: {path}:5: devices.pan.driver: ")
    assert main(["config", "check", "--json", "--config", str(path)]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "config_invalid"
    assert [problem["line"] for problem in error["details"]["problems"]] == [2, 3, 5]


def test_check_of_what_is_right(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--config", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: no errors\nruns node; devices: pan\n"
    assert main(["config", "check", "--json", "--config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["capabilities"] == ["disk.free"]


def test_show_tells_where_a_value_is_from_and_no_secret(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json", "--config", str(path)]) == 0
    values = {each["key"]: each for each in json.loads(capsys.readouterr().out)["values"]}
    assert (values["node.slots"]["value"], values["node.slots"]["line"]) == (2, 6)
    assert (values["node.beat"]["value"], values["node.beat"]["line"], values["node.beat"]["unit"]) == (10.0, 0, "s")
    assert (values["state_dir"]["value"], values["state_dir"]["line"]) == (str(path.parent / ".edgepanda"), 0)
    assert values["coordinator"]["value"] is None
    assert values["broker.url"]["value"] == "mqtt://me:***@broker.lan"
    assert values["devices.pan.api_key"]["value"] == "***"
    assert values['capabilities."disk.free".timeout"'.removesuffix('"')]["value"] == 600.0
    assert main(["config", "show", "--config", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    rows = {line.split()[0]: line.split()[-2:] for line in shown.splitlines()}
    assert rows["node.slots"] == ["line", "6"]
    assert rows["node.drain"][-1] == "default"


def test_what_is_right_is_taken_over(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    editor(tmp_path, 'sed -i "s/slots = 2/slots = 3/" "$1"', monkeypatch)
    assert main(["config", "edit", "--json", "--config", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["saved"], told["changed"], told["restart"]) == (True, ["node.slots"], False)
    assert path.read_text() == TEXT.replace("slots = 2", "slots = 3")


def test_an_editor_that_changes_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    editor(tmp_path, "true", monkeypatch)
    before = path.stat().st_mtime_ns
    assert main(["config", "edit", "--config", str(path)]) == 0
    assert capsys.readouterr().out == "nothing changed\n"
    assert path.stat().st_mtime_ns == before


def test_what_is_wrong_is_not_taken_over_and_not_lost(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    editor(tmp_path, 'sed -i "s/slots = 2/slots = 0/" "$1"', monkeypatch)
    assert main(["config", "edit", "--config", str(path)]) == 2
    told = capsys.readouterr().err
    assert f"error: {path}:6: node.slots: found 0" in told
    assert path.read_text() == TEXT
    kept = Path(told.splitlines()[0].rpartition(" is in ")[2])
    assert "slots = 0" in kept.read_text()
    assert kept.parent.stat().st_mode & 0o77 == 0


def test_a_person_may_edit_again(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal: the first try is wrong, the second right."""
    import os
    import pty

    editor(tmp_path, 'grep -q "slots = 0" "$1" && n=4 || n=0; sed -i "s/^slots = .*/slots = $n/" "$1"', monkeypatch)
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "edgepanda", "config", "edit", "--config", str(path)]
    process = subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    os.write(ours, b"y\n")
    out, err = process.communicate(timeout=30)
    os.close(ours)
    assert process.returncode == 0, err
    assert f"{path}:6: node.slots: found 0" in err
    assert "changed: node.slots" in out
    assert "slots = 4" in path.read_text()


@pytest.mark.parametrize(("named", "told"), [("/no/such/editor", "cannot start"), ("false", "exit code 1")])
def test_an_editor_that_fails(
    named: str, told: str, path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISUAL", named)
    assert main(["config", "edit", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.rstrip().endswith("[config_editor]")
    assert path.read_text() == TEXT


def test_a_wrong_configuration_can_be_edited_into_a_right_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(TEXT.replace("slots = 2", "slots = two"))
    editor(tmp_path, 'sed -i "s/slots = two/slots = 3/" "$1"', monkeypatch)
    assert main(["config", "edit", "--config", str(path)]) == 0
    assert path.read_text() == TEXT.replace("slots = 2", "slots = 3")


def test_the_schema_is_a_schema(capsys: pytest.CaptureFixture[str]) -> None:
    import tomllib

    assert main(["config", "schema", "--json"]) == 0
    schema = json.loads(capsys.readouterr().out)
    validate = fastjsonschema.compile({**schema, "$schema": "http://json-schema.org/draft-07/schema#"})
    validate(tomllib.loads(TEXT))
    validate(tomllib.loads(render(site="home", site_key="", broker="", node="desk")))
    for broken in ({"node": {"slots": 0}}, {"devices": {"pan": {}}}, {"nodes": {}}):
        with pytest.raises(fastjsonschema.JsonSchemaException):
            validate(broken)
    slots = schema["$defs"]["Node"]["properties"]["slots"]
    assert (slots["default"], slots["unit"], slots["restart"]) == (16, "attempts", False)


def test_the_table_of_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "30.0" in rows["coordinator.lease_ttl"]
    assert " s " in rows["coordinator.lease_ttl"]
    assert "restart" in rows["site.name"]
    assert "restart" not in rows["coordinator.lease_ttl"]
    assert "required" in rows["devices.NAME.driver"]


def test_loading_a_configuration_does_without_the_editor_of_files() -> None:
    program = (
        "import sys; from pathlib import Path; from edgepanda.model.config import load_config; "
        "load_config(Path('config/edgepanda.toml')); print([m for m in ('tomlkit', 'click') if m in sys.modules])"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "[]"
