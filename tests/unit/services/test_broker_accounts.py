"""Users of the embedded broker: who is let in, and what a changed file does."""

from __future__ import annotations

import os
from pathlib import Path

import nacl.pwhash
import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker_secret import OWN_USER
from edgepanda.services.broker_accounts import Account, Accounts


def hashed(password: str) -> str:
    """The weakest hash: quick."""
    made = nacl.pwhash.str(password.encode(), nacl.pwhash.OPSLIMIT_MIN, nacl.pwhash.MEMLIMIT_MIN)
    return bytes(made).decode()


ANN = Account(password=hashed("correct"), publish=("a/#",), subscribe=("a/+",))


def write(path: Path, **users: str) -> None:
    path.write_text("".join(f'[users.{name}]\npassword = "{text}"\n' for name, text in users.items()))
    seen = path.stat().st_mtime_ns + 10**9 * path.stat().st_size
    os.utime(path, ns=(seen, seen))  # not within one tick of the clock


def test_who_is_let_in() -> None:
    accounts = Accounts({"ann": ANN}, own_secret="s3cret")  # noqa: S106
    assert not accounts.remembers("ann", "correct")
    assert accounts.check("ann", "correct")
    assert accounts.remembers("ann", "correct")
    wrong = [("ann", "Correct"), ("ann", None), ("ann", ""), ("bob", "correct"), (None, "correct"), ("", "")]
    for name, password in [*wrong, (OWN_USER, "correct"), (OWN_USER, ""), (OWN_USER, None)]:
        assert not accounts.remembers(name, password)
        assert not accounts.check(name, password)
    assert accounts.remembers(OWN_USER, "s3cret")


def test_without_a_secret_nobody_is_one_of_our_own() -> None:
    assert not Accounts({"ann": ANN}).check(OWN_USER, "")


def test_an_unknown_user_costs_one_hash_as_a_known_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes: list[bytes] = []
    verify = nacl.pwhash.verify

    def counted(hashed: bytes, password: bytes) -> bool:
        hashes.append(hashed)
        return bool(verify(hashed, password))

    monkeypatch.setattr(nacl.pwhash, "verify", counted)
    accounts = Accounts({"ann": ANN})
    for name, password in [("ann", "wrong"), ("bob", "wrong"), ("bob", "correct"), (None, None), ("ann", None)]:
        hashes.clear()
        assert not accounts.check(name, password)
        assert hashes == [ANN.password.encode()]


def test_rights() -> None:
    accounts = Accounts({"ann": ANN})
    assert accounts.may_publish("ann", "a/b/c")
    assert not accounts.may_publish("ann", "b")
    assert accounts.may_subscribe("ann", "a/+")
    assert not accounts.may_subscribe("ann", "a/#")
    assert not accounts.may_subscribe("bob", "a/+")
    assert not accounts.may_publish(None, "a/b")
    assert accounts.may_subscribe(OWN_USER, "#")


def test_a_changed_file_is_taken_up_and_names_who_changed(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    write(path, ann=hashed("one"), bob=hashed("two"))
    accounts = Accounts.load(path)
    assert accounts.check("ann", "one")
    assert accounts.refresh() == set()
    before = path.read_text()
    write(path, ann=hashed("three"), eve=hashed("four"))
    assert accounts.refresh() == {"ann", "bob"}
    assert not accounts.check("ann", "one")
    assert accounts.check("ann", "three")
    assert accounts.check("eve", "four")
    assert before != path.read_text()


def test_a_broken_file_changes_nothing_and_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "users.toml"
    write(path, ann=hashed("one"))
    accounts = Accounts.load(path)
    path.write_text("[users.ann\n")
    assert accounts.refresh() == set()
    assert accounts.refresh() == set()
    assert accounts.check("ann", "one")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize(
    "text", [None, "users = 3", "[users.ann]\npasword = 'x'", "[users.ann]\npassword = 'plain'", "["]
)
def test_a_file_that_cannot_be_used_is_told_with_its_place(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(EdgePandaError) as caught:
        Accounts.load(path)
    assert (caught.value.code, caught.value.where) == ("broker_users", str(path))
    assert "broker user add" in caught.value.cure
