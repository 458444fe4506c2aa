"""The keys of [broker] together: nothing is open to a network by accident, and our own processes find their way in."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import is_loopback
from edgepanda.model.broker_secret import OWN_USER, own_password
from edgepanda.model.config import Loaded, load_text
from edgepanda.model.config_check import check_text

OPEN = 'listen = "0.0.0.0:1883"'
USERS = 'users_file = "users.toml"'
TLS = 'cert_file = "b.crt"\nkey_file = "b.key"'
PLAIN = "allow_plaintext = true"


def loaded(tmp_path: Path, *lines: str) -> Loaded:
    return load_text("\n".join(["[broker]", *lines]), tmp_path / "edgepanda.toml")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([OPEN], ["without users_file", "without TLS"]),
        (['listen = "[::]:1883"'], ["without users_file", "without TLS"]),
        (['listen = "pi.lan:1883"'], ["without users_file", "without TLS"]),
        ([OPEN, TLS], ["without users_file"]),
        ([OPEN, PLAIN], ["without users_file"]),
        ([OPEN, USERS], ["without TLS"]),
        ([OPEN, USERS, TLS], []),
        ([OPEN, USERS, PLAIN], []),
        (['listen = "localhost:1883"'], []),
        (['listen = "[::1]:1883"', TLS], []),
        ([OPEN, 'url = "mqtt://broker.lan"'], []),
    ],
)
def test_beyond_loopback_only_with_passwords_and_tls(lines: list[str], told: list[str]) -> None:
    _, problems = check_text("\n".join(["[broker]", *lines]), Path("edgepanda.toml"))
    assert len(problems) == len(told)
    for problem, words in zip(problems, told, strict=True):
        assert words in problem.found
        assert (problem.line, problem.key, problem.code) == (2, "broker.listen", "config_value")
        assert "_file" in problem.cure


@pytest.mark.parametrize(
    ("lines", "key", "cure"),
    [
        (['cert_file = "b.crt"'], "broker.cert_file", "add key_file"),
        (['key_file = "b.key"'], "broker.key_file", "add cert_file"),
        (['user = "ann"', 'url = "mqtt://bob@broker.lan"'], "broker.user", "remove the one in url"),
        (['user = "ann"'], "broker.user", "add password_file"),
        (["largest_message = 1000"], "broker.largest_message", "for example largest_message = 1048576"),
    ],
)
def test_keys_that_go_together(lines: list[str], key: str, cure: str) -> None:
    _, problems = check_text("\n".join(["[broker]", *lines]), Path("edgepanda.toml"))
    assert [(problem.key, problem.line) for problem in problems] == [(key, 2)]
    assert cure in problems[0].cure


def test_our_own_processes_log_in_with_a_secret_of_this_machine(tmp_path: Path) -> None:
    site = loaded(tmp_path, OPEN, USERS, TLS)
    address = site.broker_address()
    assert (address.host, address.port, address.tls, address.username) == ("127.0.0.1", 1883, True, OWN_USER)
    assert address.pinned_file == str(tmp_path / "b.crt")
    assert len(address.password) >= 32
    assert site.broker_address() == address
    assert site.broker_secret.read_text() == address.password
    assert stat.S_IMODE(site.broker_secret.stat().st_mode) == 0o600
    assert [path.name for path in site.keys_dir.iterdir()] == ["broker.secret"]


def test_without_users_nobody_logs_in_and_nothing_is_written(tmp_path: Path) -> None:
    site = loaded(tmp_path, "")
    assert site.broker_address().username == ""
    assert not site.state_dir.exists()


def test_a_user_that_is_set_comes_before_the_secret(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("hunter2\n")
    for lines in (["users_file = 'u'"], ['url = "mqtts://broker.lan"'], ['url = "mqtt://ann@broker.lan"']):
        address = loaded(tmp_path, 'user = "ann"', 'password_file = "pw"', *lines).broker_address()
        assert (address.username, address.password) == ("ann", "hunter2")
    assert not loaded(tmp_path, "").state_dir.exists()


def test_a_secret_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    place = tmp_path / "broker.secret"
    place.mkdir()
    with pytest.raises(EdgePandaError) as caught:
        own_password(place)
    assert (caught.value.code, caught.value.where) == ("broker_secret", str(place))


def test_what_counts_as_loopback() -> None:
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.9.9.9", "::1"]))
    assert not any(map(is_loopback, ["", "0.0.0.0", "::", "10.0.0.1", "pi.lan", "127.0.0.1.example"]))  # noqa: S104
