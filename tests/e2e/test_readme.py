"""Every command in README.md works as it stands there, typed by somebody new; `tests.rig.guide` says how it is read."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edgepanda.cli.table import EXITS
from tests.rig.guide import read
from tests.rig.machine import Machine
from tests.rig.reader import Reader

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "docs/architecture.md", "docs/protocol.md", "CHANGELOG.md"]
PAGES += [f"docs/guide/{path.name}" for path in (ROOT / "docs/guide").glob("*.md")]
BLOCKS = re.findall(r"^```([a-z ]*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_screen_has_the_newcomers_two_commands() -> None:
    (install,) = [text for kind, text in BLOCKS if kind == "sh install"]
    assert install.split("\n") == ["./install.sh demo", "./install.sh test", ""]
    assert (ROOT / "README.md").read_text().index(install) < 1500
    usage = subprocess.run([ROOT / "install.sh", "--help"], capture_output=True, text=True, check=True, timeout=30)
    assert "demo|up|init|test" in usage.stdout


def test_its_exit_codes_are_those_of_the_program() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE) == [(str(c), t) for c, t in EXITS.items()]


def test_every_command_in_it(tmp_path: Path) -> None:
    """On a machine where the command is on the path, as README says how to have it."""
    machine = Machine("pi1", tmp_path / "pi1")
    machine.path = f"{machine.clone}/.venv/bin:{machine.path}"
    machine.lay_out_clone()
    with machine:
        reader = Reader({"pi1": machine})
        for step in read(ROOT / "README.md").steps:
            reader.take(step)
        reader.leave()


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    known = {path.name for folder in ("edgepanda", "drivers", "services") for path in (ROOT / folder).rglob("*.py")}
    for name in re.findall(r"`(?:[a-z]+/)*([a-z_]+\.py)`", text):
        assert name in known, name
