"""The short form of `tests/faults/run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.command import main


def test_under_random_faults_every_promise_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["--seconds", "12", "--seed", "1", "--keep", str(tmp_path / "run")])
    assert code == 0, capsys.readouterr().out
