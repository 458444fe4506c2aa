"""Head and tail of a stream on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from edgepanda.drivers.command_output import Follower, Segments, segments

LIMIT = 10


@given(st.lists(st.binary(max_size=35), max_size=12))
def test_head_and_tail_are_kept_and_the_disk_is_bounded(writes: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, whole = Path(name), b"".join(writes)
        writer = Segments(folder, "stdout", LIMIT)
        for data in writes:
            writer.write(data)
            assert sum(path.stat().st_size for path in segments(folder, "stdout")) <= 3 * LIMIT
        writer.close(folder / "log")
        joined = (folder / "log").read_bytes()
        left_out = len(whole) - 2 * LIMIT
        if left_out <= 0:
            assert joined == whole
        else:
            assert joined == whole[:LIMIT] + f"\n[{left_out} bytes left out]\n".encode() + whole[-LIMIT:]


@given(st.lists(st.tuples(st.binary(max_size=15), st.integers(1, 30)), max_size=12))
def test_who_follows_sees_each_byte_in_order_unless_it_was_dropped(steps: list[tuple[bytes, int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer, follower = Segments(folder, "stdout", 1000), Follower(folder, "stdout")
        seen = whole = b""
        for data, most in steps:
            writer.write(data)
            whole += data
            part = follower.read(most)
            assert len(part) <= most
            seen += part
        assert whole.startswith(seen)
        assert seen + follower.read(10**6) == whole


def test_a_follower_that_is_late_goes_on_with_what_is_there(tmp_path: Path) -> None:
    writer, follower = Segments(tmp_path, "stdout", LIMIT), Follower(tmp_path, "stdout")
    writer.write(bytes(range(5)))
    assert follower.read(100) == bytes(range(5))
    writer.write(bytes(range(5, 95)))
    late = follower.read(100)
    assert late.startswith(bytes(range(5, 10)))
    assert late.endswith(bytes(range(80, 95)))
    follower.skip_to_end()
    assert follower.read(100) == b""
