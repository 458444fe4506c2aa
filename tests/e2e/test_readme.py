"""Every command in README.md works as it stands there, typed by somebody new.

Blocks marked `sh` are run one after the other in one folder; `sh up` goes on in the background; `sh install` is for the
installer's own tests; `python` is run too; `text` is only shown.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgepanda.cli.table import EXITS
from tests.rig.cli import PATIENCE, Person, Running

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```([a-z ]*)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_first_screen_has_the_newcomers_two_commands() -> None:
    (install,) = [text for kind, text in BLOCKS if kind == "sh install"]
    assert install.split("\n") == ["./install.sh demo", "./install.sh test", ""]
    assert (ROOT / "README.md").read_text().index(install) < 1500
    usage = subprocess.run([ROOT / "install.sh", "--help"], capture_output=True, text=True, check=True, timeout=30)
    assert "demo|test" in usage.stdout


def test_its_exit_codes_are_those_of_the_program() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE) == [(str(c), t) for c, t in EXITS.items()]


def test_every_command_in_it(tmp_path: Path) -> None:
    person = Person(tmp_path)
    up: Running | None = None
    assert {kind for kind, _ in BLOCKS} <= {"sh", "sh up", "sh install", "python", "text"}
    try:
        for kind, text in BLOCKS:
            if kind == "sh":
                _run(person, ["bash", "-euo", "pipefail", "-c", text])
                if text.startswith("edgepanda init"):
                    person.listen_anywhere()  # somebody else may have the default port
            elif kind == "python":
                _run(person, [sys.executable, "-c", text])
            elif kind == "sh up":
                up = person.start(*text.split()[1:])
                up.wait_for("^ready: ")
    finally:
        code = up.end() if up is not None else None
    assert code == 0


def _run(person: Person, words: list[str]) -> None:
    done = subprocess.run(
        words,
        cwd=person.folder,
        env=person.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE * 2,
    )
    assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md", "docs/protocol.md", "CHANGELOG.md"])
def test_its_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), target


def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    known = {path.name for folder in ("edgepanda", "drivers", "services") for path in (ROOT / folder).rglob("*.py")}
    for name in re.findall(r"`(?:[a-z]+/)*([a-z_]+\.py)`", text):
        assert name in known, name
