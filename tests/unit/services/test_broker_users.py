"""The file of users that `edgepanda broker user` changes."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from edgepanda.cli import main
from edgepanda.errors import EdgePandaError
from edgepanda.services.broker_accounts import Accounts
from edgepanda.services.broker_users import add_user, hashed, remove_user, users_in

GOOD = "long enough"


def test_a_user_is_added_changed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "users.toml"
    add_user(path, "shed", GOOD, publish=("a/#",))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    add_user(path, "ha", GOOD)
    path.write_text("# a word of mine\n" + path.read_text())
    add_user(path, "shed", "another one", subscribe=("b/+",), replace=True)
    users = users_in(path)
    assert (users["shed"].publish, users["shed"].subscribe) == (("a/#",), ("b/+",))
    assert Accounts(users).check("shed", "another one")
    assert not Accounts(users).check("shed", GOOD)
    remove_user(path, "ha")
    assert list(users_in(path)) == ["shed"]
    assert "# a word of mine" in path.read_text()
    assert "another one" not in path.read_text()
    assert [each.name for each in path.parent.iterdir()] == ["users.toml"]
    remove_user(path, "shed")
    assert users_in(path) == {}


@pytest.mark.parametrize("name", ["", "@local", "a b", "a:b", "-a", "x" * 65, "a\n"])
def test_no_such_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(EdgePandaError) as caught:
        add_user(tmp_path / "users.toml", name, GOOD)
    assert caught.value.code == "invalid_name"


@pytest.mark.parametrize("password", ["", "short", "x" * 257, "with\0zero byte"])
def test_no_such_password(password: str) -> None:
    with pytest.raises(EdgePandaError) as caught:
        hashed(password)
    assert caught.value.code == "invalid_password"
    assert "short" not in str(caught.value).replace("too short", "")


def test_what_is_there_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    with pytest.raises(EdgePandaError) as caught:
        remove_user(path, "shed")
    assert caught.value.code == "broker_user_unknown"
    add_user(path, "shed", GOOD)
    with pytest.raises(EdgePandaError) as caught:
        add_user(path, "shed", GOOD)
    assert caught.value.code == "broker_user_exists"
    path.write_text("[users")
    with pytest.raises(EdgePandaError) as caught:
        add_user(path, "other", GOOD)
    assert caught.value.code == "broker_users"
    assert path.read_text() == "[users"


def configured(tmp_path: Path) -> list[str]:
    config = tmp_path / "edgepanda.toml"
    config.write_text('[broker]\nusers_file = "users.toml"\n')
    return ["--config", str(config)]


def test_the_command_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = configured(tmp_path)
    words = [sys.executable, "-m", "edgepanda", "broker", "user", "add", "ha", "--password-stdin", *at]
    subprocess.run(words, input=f"{GOOD}\n", text=True, check=True, capture_output=True)
    assert Accounts.load(tmp_path / "users.toml").check("ha", GOOD)
    assert main(["broker", "user", "list", "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["users"] == {"ha": {"publish": ["#"], "subscribe": ["#"]}}
    assert main(["broker", "user", "list", *at]) == 0
    assert "argon2" not in capsys.readouterr().out
    assert main(["broker", "user", "remove", "ha", *at]) == 0
    assert main(["broker", "user", "remove", "ha", *at]) == 1
    done = subprocess.run(
        [*words[:6], "ha", *at], stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert "--password-stdin" in done.stderr


def test_at_a_terminal_it_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "edgepanda", "broker", "user", "add", "shed", *configured(tmp_path)]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True, start_new_session=True
    )
    os.close(theirs)
    shown = b""

    def until(text: bytes) -> None:
        nonlocal shown
        while not shown.rstrip().endswith(text):
            shown += os.read(ours, 1024)

    until(b"Password for shed:")
    os.write(ours, f"{GOOD}\n".encode())
    until(b"confirmation:")
    os.write(ours, f"{GOOD}\n".encode())
    assert process.wait(20) == 0
    os.close(ours)
    assert GOOD.encode() not in shown
    assert Accounts.load(tmp_path / "users.toml").check("shed", GOOD)


def test_without_a_file_in_the_configuration_the_key_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "edgepanda.toml"
    config.write_text("[broker]\n")
    assert main(["broker", "user", "list", "--config", str(config)]) == 2
    assert "users_file" in capsys.readouterr().err
