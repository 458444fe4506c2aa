"""The first words of the command line: overview, version, errors; what they import, and the table behind them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from edgepanda import __version__
from edgepanda.cli import main
from edgepanda.cli.exits import exit_code, task_code
from edgepanda.cli.table import COMMANDS, EXITS, SECTIONS, overview
from edgepanda.errors import EdgePandaError
from edgepanda.wire.requests import TaskView

HEAVY = ("paho", "nacl", "rich", "msgspec", "click", "asyncio")


@pytest.mark.parametrize(
    ("words", "said"), [(["--version"], f"edgepanda {__version__}"), (["--help"], "Usage:"), ([], "Usage:")]
)
def test_the_first_answers_import_nothing_large(words: list[str], said: str) -> None:
    program = (
        f"import sys; from edgepanda.cli import main; code = main({words!r}); "
        f"print(code, [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.startswith(said)
    assert done.stdout.splitlines()[-1] == "0 []"


def leaves(command: click.Command) -> Iterator[click.Command]:
    """The command, or all commands of a group and of groups in it."""
    if not isinstance(command, click.Group):
        yield command
        return
    for each in command.commands.values():
        yield from leaves(each)


def test_every_command_of_the_table_is_there_and_teaches() -> None:
    for name, (module, line) in COMMANDS.items():
        command = getattr(importlib.import_module(f"edgepanda.cli.{module}"), f"{name}_command")
        assert isinstance(command, click.Command)
        assert len(f"  {name:<12} {line}") <= 100
        for each in leaves(command):
            assert "Examples:" in (each.epilog or ""), name
            assert "Exit codes:" in (each.epilog or ""), name
            assert each.help, name
            assert {"config", "as_json", "verbose"} <= {p.name for p in each.params}, name


def test_the_overview_has_every_command_and_every_exit_code() -> None:
    text = overview()
    assert all(f"\n  {name} " in text for section in SECTIONS.values() for name in section)
    assert all(f"\n  {code:>3}  {meaning}" in text for code, meaning in EXITS.items())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shwo"], "did you mean `edgepanda show`?"),
        (["show"], "missing argument 'ID'"),
        (["tasks", "--limit", "0"], "0 is not in the range"),
        (["submit", "a.b", "--deadline", "soon"], "write 30, 90s, 5m, 2h or 3d"),
        (["resolve", "x", "--as", "perhaps", "--because", "y"], "is not one of"),
        (["init", "--node-only"], "--node-only needs --site-key"),
    ],
)
def test_wrong_usage_is_one_line_with_a_cure(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    (line,) = told.err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert line.endswith("[usage]")


def test_an_error_in_json_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json", "--config", "/nowhere/edgepanda.toml"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told["error"]["code"] == "config_missing"
    assert told["error"]["where"] == "/nowhere/edgepanda.toml"
    assert told["error"]["cure"]


def test_a_fault_of_our_own_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgepanda.cli.common.Settings.load", lambda _self: 1 / 0)
    assert main(["up"]) == 1
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "ZeroDivisionError" in told
    assert main(["up", "-v"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "exit_with"),
    [
        ("broker_unreachable", 3),
        ("no_answer", 3),
        ("consent_required", 4),
        ("config_invalid", 2),
        ("unknown_task", 2),
        ("limit", 2),
        ("invalid_state", 1),
        ("storage_locked", 1),
        ("port_in_use", 1),
        ("internal", 1),
    ],
)
def test_exit_codes_of_errors(code: str, exit_with: int) -> None:
    assert exit_code(EdgePandaError("x", code=code, where="here")) == exit_with


@pytest.mark.parametrize(
    ("state", "ended", "person", "exit_with"),
    [
        ("succeeded", True, False, 0),
        ("failed", True, False, 1),
        ("timed_out", True, False, 1),
        ("cancelled", True, False, 1),
        ("expired", True, False, 1),
        ("uncertain", False, True, 4),
        ("waiting_review", False, True, 4),
        ("queued", False, False, 3),
    ],
)
def test_exit_codes_of_tasks(state: str, ended: bool, person: bool, exit_with: int) -> None:
    view = TaskView(id="x", state=state, capability="a.b", created=0, updated=0, ended=ended, needs_person=person)
    assert task_code(view) == exit_with
