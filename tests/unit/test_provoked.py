"""Each code that needs no process of its own is provoked, and nothing in the table is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.provoke import broker, commands, doctor, files, wire, work  # noqa: F401 they register what they provoke
from tests.provoke.kit import PROVOKED, Here, check_provoked, unprovoked
from tests.provoke.site import ON_A_SITE


@pytest.mark.parametrize("code", PROVOKED)
def test_a_provoked_error_names_the_place_and_the_next_step(
    code: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("EDGEPANDA_KEY", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    check_provoked(code, Here(tmp_path, monkeypatch, capsys, caplog))


NOT_YET: set[str] = set()  # codes that are new; a list that gets shorter


def test_each_code_of_the_table_is_provoked() -> None:
    assert unprovoked(PROVOKED, ON_A_SITE) == NOT_YET, "provoke it in tests/provoke/, or for now list it in NOT_YET"
