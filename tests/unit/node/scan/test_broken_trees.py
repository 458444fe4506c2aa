"""Any file of a board may be missing, empty, unreadable or rubbish: nothing is raised, all else is still reported."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepanda.model.hardware import Hardware, items
from edgepanda.node.scan import readings, scan
from edgepanda.node.scan.edge import Owner, StuckBus
from tests.rig.boards import BOARDS, TreeEdge, Unfolded, documented, unfold

RUBBISH = (
    b"",
    b"\0",
    b"\xff\xfe\x80" * 50,
    b"-1\n",
    b"99999999999999999999999999\n",
    b"\n" * 9,
    b"a: b\0c [1] = " * 40,
)

SHARED = ("model", "group", "passwd")  # many parts read them; /proc/cpuinfo makes three members, other files one or two


def missing(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def rubbish(path: Path) -> None:
    path.write_bytes(random.Random(path.name).choice(RUBBISH))


def files(tree: Unfolded) -> Iterator[Path]:
    for folder, _, names in os.walk(tree.root):
        yield from (path for name in names if not (path := Path(folder, name)).is_symlink())


def changed(one: Hardware, other: Hardware) -> set[str]:
    """The kinds that differ."""
    return {kind for kind in one.__struct_fields__ if getattr(one, kind) != getattr(other, kind)}


@pytest.mark.parametrize("harm", [missing, a_folder, a_loop, rubbish])
@pytest.mark.parametrize("board", BOARDS)
def test_one_harmed_file_spoils_no_more_than_its_own_part(
    board: str, harm: Callable[[Path], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tree, whole = unfold(board, tmp_path), documented(board)
    for path in list(files(tree)):
        before = path.read_bytes()
        harm(path)
        found = scan(tree.root, tree.edge)
        readings(tree.root, tree.edge)
        assert not found.problems, path
        spoilt = changed(found, whole)
        assert len(spoilt) <= 3 or path.name in SHARED, (path, spoilt)
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(before)
    assert scan(tree.root, tree.edge) == whole
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_many_harmed_files_raise_nothing(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    tree = unfold(data.draw(st.sampled_from(BOARDS)), tmp_path_factory.mktemp("tree"))
    paths = sorted(files(tree))
    for path in data.draw(st.lists(st.sampled_from(paths), max_size=12, unique=True)):
        path.write_bytes(data.draw(st.binary(max_size=80)))
    found = scan(tree.root, tree.edge)
    readings(tree.root, tree.edge)
    assert not found.problems
    assert all(item.name for _, item in items(found))


def test_an_empty_machine_has_nothing(tmp_path: Path) -> None:
    assert scan(tmp_path, TreeEdge()) == Hardware()
    assert scan(tmp_path / "gone", TreeEdge()) == Hardware()


class Failing(TreeEdge):
    """An edge of which one question fails."""

    def i2c_answers(self, path: Path, skip: frozenset[int]) -> list[int]:
        raise RuntimeError("no such thing")


class Stuck(TreeEdge):
    """A bus that is held low."""

    def i2c_answers(self, path: Path, skip: frozenset[int]) -> list[int]:
        raise StuckBus


class Unanswering(TreeEdge):
    """A bus that cannot be opened."""

    def i2c_answers(self, path: Path, skip: frozenset[int]) -> list[int]:
        raise OSError(6, "No such device or address")


def with_edge(edge: TreeEdge, tree: Unfolded) -> Hardware:
    edge.owners, edge.me = tree.edge.owners, tree.edge.me
    return scan(tree.root, edge)


def test_a_part_that_fails_leaves_its_reason_and_all_others(tmp_path: Path) -> None:
    found = with_edge(Failing(), unfold("pi4b", tmp_path))
    assert "RuntimeError: no such thing" in found.problems["i2c"]
    assert changed(found, documented("pi4b")) == {"i2c", "problems"}


def test_a_bus_that_is_held_low_is_said_so(tmp_path: Path) -> None:
    bus = with_edge(Stuck(), unfold("pi4b", tmp_path)).i2c[0]
    assert (bus.state, bus.why) == ("unavailable", "stuck")
    assert bus.addresses == {"0x68": "in use by kernel driver rtc-ds1307"}


def test_a_bus_that_cannot_be_asked_is_said_so(tmp_path: Path) -> None:
    bus = with_edge(Unanswering(), unfold("pi4b", tmp_path)).i2c[0]
    assert (bus.why, bus.reason) == ("unreadable", "/dev/i2c-1 cannot be asked: No such device or address")


def test_a_bus_that_we_may_not_use_is_not_asked(tmp_path: Path) -> None:
    tree = unfold("pi4b", tmp_path)
    tree.edge.owners["dev/i2c-1"] = Owner(0, 0, 0o600)
    bus = scan(tree.root, tree.edge).i2c[0]
    assert (bus.why, bus.probed) == ("group", False)
