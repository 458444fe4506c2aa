"""Every command in the documents by goal works as it stands there, typed by somebody new at a machine of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepanda.cli.table import COMMANDS
from tests.rig.guide import called, mentioned, read, until
from tests.rig.machine import Machine, join
from tests.rig.reader import Reader

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/guide"
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "README.md")
OBEYS = "do pan.move"  # of the first servo
MOST_FIRST = 3  # commands after the clone until the servo obeys
JOINS = "do shed/pan.move"  # on the second machine
MOST_SECOND = 8  # commands on both machines until it obeys there


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Two, with a cable between them, each with a clone."""
    pi1 = Machine("pi1", tmp_path / "pi1")
    pi2 = Machine("pi2", tmp_path / "pi2", beside=pi1)
    for each in (pi1, pi2):
        each.lay_out_clone()
    with pi1, pi2:
        join(pi1, pi2)
        yield {"pi1": pi1, "pi2": pi2}


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page(page: str, machines: dict[str, Machine]) -> None:
    guide = read(FOLDER / page)
    reader = Reader(machines)
    for before in guide.after:
        for step in until(read(FOLDER / before), OBEYS):
            reader.take(step)
    for step in guide.steps:
        reader.take(step)
    reader.leave()


def test_the_first_servo_obeys_within_three_commands() -> None:
    steps = until(read(FOLDER / "first-servo.md"), OBEYS)
    assert len(steps) <= MOST_FIRST, [step.text for step in steps]


def test_a_second_machine_has_joined_within_eight_commands() -> None:
    steps = until(read(FOLDER / "second-pi.md"), JOINS)
    assert len(steps) <= MOST_SECOND, [step.text for step in steps]


def test_what_is_named_is_run() -> None:
    """A command that a page only names would never be found wrong."""
    guides = [read(FOLDER / page) for page in PAGES]
    run = {pair for guide in guides for step in guide.steps for pair in called(step.text)}
    for guide in guides:
        assert guide.idle == [], f"{guide.path.name}: nothing runs or compares this"
        missing = {pair for pair in mentioned(guide.path.read_text()) if not _is_run(pair, run)}
        assert not missing, f"{guide.path.name} names {missing}, and no page runs them"


def _is_run(pair: tuple[str, str], run: set[tuple[str, str]]) -> bool:
    """A word after the command counts where the command has such words; `do pan` is any `do`."""
    command, _ = pair
    assert command in COMMANDS, command
    return pair in run or (command in {name for name, _ in run} and command not in ("nodes", "audit", "config"))
