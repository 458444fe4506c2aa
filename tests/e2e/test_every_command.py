"""Every command of the table meets what goes wrong everywhere: each says with a stable code, a place and a next step
what is wrong, and ends with the right exit code. A new command is in here by being in the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from edgepanda import client
from edgepanda.cli import main
from edgepanda.cli.app import LazyGroup
from edgepanda.cli.table import COMMANDS
from edgepanda.trust.identity import Identity, encode_key
from tests.provoke.kit import check_command, check_document
from tests.rig.brokers import Mosquitto, free_port
from tests.rig.cli import Person, set_up

Path_ = tuple[str, ...]
KEY = encode_key(b"\1" * 32)
ARGUMENTS = {  # of each name, something that looks right
    "target": "pan.move",
    "capability": "servo.move",
    "task_id": "no-such-task",
    "verdict": "reject",
    "driver": "servo",
    "key": KEY,
    "shell": "bash",
}
WITHOUT_CONFIG = {  # they read none
    *(("demo",), ("init",), ("completion",), ("man",), ("explain",), ("version",), ("config", "schema")),
}


def leaves() -> Iterator[tuple[Path_, click.Command]]:
    """All commands that do something."""
    group = LazyGroup("edgepanda")
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield from _below((name,), command)


def _below(path: Path_, command: click.Command) -> Iterator[tuple[Path_, click.Command]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _below((*path, name), inner)
    else:
        yield path, command


ALL = dict(leaves())


def has(command: click.Command, name: str) -> bool:
    return any(param.name == name for param in command.params)


def takes(command: click.Command, name: str) -> bool:
    return any(isinstance(param, click.Argument) and param.name == name for param in command.params)


def words(path: Path_, *more: str) -> list[str]:
    """The command with all that it needs."""
    given = list(path)
    for param in ALL[path].params:
        if isinstance(param, click.Argument) and param.required:
            given.append(ARGUMENTS.get(str(param.name), "shed"))
        elif isinstance(param, click.Option) and param.required:
            choice = param.type.choices[0] if isinstance(param.type, click.Choice) else "x"
            given += [param.opts[0], str(choice)]
    return [*given, *more]


def named(paths: Iterator[Path_] | set[Path_]) -> list[object]:
    return [pytest.param(path, id=" ".join(path)) for path in sorted(paths)]


READ_CONFIG = set(ALL) - WITHOUT_CONFIG - {("doctor",)}  # for which a bad one is a finding, with tests of its own
TAKE_ALL = {p for p, command in ALL.items() if command.context_settings.get("ignore_unknown_options")}
OF_THE_SITE = {
    ("card", "show"): ["shed"],
    ("card", "rescan"): ["shed"],
    ("logs",): ["shed"],
    ("watch",): ["no-such-task"],
}  # else it is no request
OWN_ANSWER = {("demo",), ("broker", "check"), ("doctor",), ("rename",)}  # they say themselves what does not answer
ASK_THE_SITE = {path for path, command in ALL.items() if has(command, "timeout")} - OWN_ANSWER


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder and home, and an operator's key in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "VISUAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.setenv("EDGEPANDA_KEY", str(tmp_path / "me.key"))
    Identity.load_or_create(tmp_path / "me.key")


def refused(code: str, given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with this code, for a person and for a program."""
    capsys.readouterr()
    check_command(code, main(given), *capsys.readouterr())
    check_document(code, main([*given, "--json"]), *capsys.readouterr())


@pytest.mark.parametrize("path", named(set(ALL)))
def test_help_has_the_common_options_and_examples(path: Path_, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    told = capsys.readouterr().out
    assert [
        each for each in ("Usage: edgepanda", "--config", "--json", "Examples:", "Exit codes:") if each not in told
    ] == []
    examples = told.partition("Examples:")[2]
    assert f"edgepanda {path[0]}" in examples


@pytest.mark.parametrize("path", named(set(ALL) - TAKE_ALL))
def test_an_unknown_option(path: Path_, capsys: pytest.CaptureFixture[str]) -> None:
    refused("usage", words(path, "--nonsense"), capsys)


@pytest.mark.parametrize("path", named({p for p, c in ALL.items() if len(words(p)) > len(p)}))
def test_what_is_needed_and_missing(path: Path_, capsys: pytest.CaptureFixture[str]) -> None:
    refused("usage", list(path), capsys)


@pytest.mark.parametrize("path", named(READ_CONFIG))
def test_no_configuration(path: Path_, capsys: pytest.CaptureFixture[str]) -> None:
    refused("config_missing", words(path, "--config", "none.toml"), capsys)
    refused("config_missing", words(path), capsys)


@pytest.mark.parametrize("path", named(READ_CONFIG))
def test_a_configuration_that_cannot_be_read(path: Path_, capsys: pytest.CaptureFixture[str]) -> None:
    refused("config_unreadable", words(path, "--config", "/"), capsys)


@pytest.mark.parametrize("path", named(READ_CONFIG - {("config", "edit")}))
def test_a_configuration_that_is_wrong(path: Path_, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "edgepanda.toml").write_text('[node]\nslots = "two"\n')
    refused("config_type", words(path), capsys)


def configure(folder: Path, url: str) -> None:
    (folder / "edgepanda.toml").write_text(f'[site]\nkey = "{KEY}"\n[broker]\nurl = "{url}"\n[node]\n')


@pytest.mark.parametrize("path", named(ASK_THE_SITE))
def test_no_broker(
    path: Path_, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, f"mqtt://127.0.0.1:{free_port()}")
    monkeypatch.setattr(client, "ANSWER_WITHIN", 0.1)
    refused("broker_unreachable", words(path, *OF_THE_SITE.get(path, ()), "--timeout", "100ms"), capsys)


@pytest.fixture(scope="module")
def lonely() -> Iterator[Mosquitto]:
    """A broker at which nobody is."""
    with Mosquitto() as broker:
        yield broker


@pytest.mark.parametrize("path", named(ASK_THE_SITE - {("audit", "verify")}))  # that waits for minutes
def test_no_coordinator(
    path: Path_,
    lonely: Mosquitto,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure(tmp_path, lonely.url)
    monkeypatch.setattr(client, "ANSWER_WITHIN", 0.2)
    refused("no_answer", words(path, *OF_THE_SITE.get(path, ()), "--timeout", "200ms"), capsys)


# on a site that is up, with a name that is nobody's


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """Somebody whose site is up."""
    with set_up(tmp_path_factory.mktemp("site")) as someone, someone.up():
        yield someone


def refused_at(site: Person, code: str, given: list[str]) -> None:
    """As `refused`, by real processes."""
    for check, done in ((check_command, site.run(*given)), (check_document, site.run(*given, "--json"))):
        check(code, done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("path", named({path for path, command in ALL.items() if takes(command, "task_id")}))
def test_no_such_task(path: Path_, site: Person) -> None:
    refused_at(site, "unknown_task", words(path, *OF_THE_SITE.get(path, ())))


@pytest.mark.parametrize("path", named({path for path in ASK_THE_SITE if path[0] in ("card", "logs")}))
def test_no_such_node(path: Path_, site: Person) -> None:
    refused_at(site, "unknown_node", words(path, *OF_THE_SITE.get(path, ())))
