"""The manual pages: of every command, and roff that its formatter takes without a word."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgepanda.cli import main
from edgepanda.cli.man import pages
from edgepanda.cli.table import COMMANDS, EXITS

REQUESTS = {"TH", "SH", "SS", "TP", "PP", "B", "BR", "nf", "fi"}
PAGES = pages()


def test_every_command_has_a_page() -> None:
    assert set(PAGES) == {"edgepanda", *(f"edgepanda-{name}" for name in COMMANDS)}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_has_its_parts_and_no_stray_request(name: str) -> None:
    lines = PAGES[name].splitlines()
    assert lines[0].startswith('.TH "EDGEPANDA')
    sections = [line[4:] for line in lines if line.startswith(".SH ")]
    assert sections[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]
    assert "EXIT STATUS" in sections
    assert {line[1:].split(" ")[0] for line in lines if line.startswith(".")} <= REQUESTS
    assert not [line for line in lines if re.search(r"(?<!\\)-", line)]
    assert lines.count(".nf") == lines.count(".fi")
    assert "\b" not in PAGES[name]
    assert "" not in lines
    assert PAGES[name].count("\n.TP\n") >= len(EXITS)


def test_the_formatter_has_nothing_to_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", str(tmp_path / "man1"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert sorted(Path(path).stem for path in written) == sorted(PAGES)
    checkers = [["mandoc", "-Tlint", "-Werror"], ["groff", "-man", "-ww", "-z", "-Tutf8", "-Kutf8"]]
    for checker in checkers:
        if shutil.which(checker[0]):
            done = subprocess.run([*checker, *written], capture_output=True, text=True, check=False, timeout=60)
            assert (done.stdout + done.stderr, done.returncode) == ("", 0)


def test_what_each_option_does_is_in_it() -> None:
    assert "\\fB\\-\\-needs\\-person\\fR" in PAGES["edgepanda-tasks"]
    assert ".SH NODES REMOVE" in PAGES["edgepanda-nodes"]
    assert "edgepanda show 01h8qk3v2x7c4m9d5e6f \\-\\-timeline" in PAGES["edgepanda-show"]


def test_a_folder_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["man", str(tmp_path / "file/man1")]) == 1
    assert "[man_unwritable]" in capsys.readouterr().err
