"""The keys of [broker] reach the embedded broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepanda.cli.broker import embedded_options
from edgepanda.errors import EdgePandaError
from edgepanda.model.broker_secret import OWN_USER
from edgepanda.model.config import load_text
from edgepanda.services.broker_users import add_user
from tests.rig.certificates import Authority


def test_all_of_them(tmp_path: Path) -> None:
    certificate, key = Authority().issue(["x"])
    (tmp_path / "c.pem").write_text(certificate)
    (tmp_path / "k.pem").write_text(key)
    add_user(tmp_path / "u.toml", "shed", "long enough")
    text = '[broker]\nusers_file = "u.toml"\ncert_file = "c.pem"\nkey_file = "k.pem"\nlargest_message = 200000'
    loaded = load_text(text, tmp_path / "edgepanda.toml")
    options = embedded_options(loaded)
    assert options["largest_packet"] == 200_000
    assert options["certificate"] is not None
    assert options["allow_plaintext"] is False
    assert options["accounts"].remembers(OWN_USER, loaded.broker_secret.read_text())
    assert options["accounts"].check("shed", "long enough")


def test_none_of_them(tmp_path: Path) -> None:
    options = embedded_options(load_text("", tmp_path / "edgepanda.toml"))
    assert (options["accounts"], options["certificate"], options["largest_packet"]) == (None, None, 1 << 20)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EdgePandaError) as caught:
        embedded_options(load_text('[broker]\nusers_file = "u.toml"', tmp_path / "edgepanda.toml"))
    assert (caught.value.code, caught.value.where) == ("broker_users", str(tmp_path / "u.toml"))
