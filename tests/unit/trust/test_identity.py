"""Keys: on disk, as text, and what they sign."""

from __future__ import annotations

import base64
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity, KeyFileError, decode_key, encode_key, key_id, verify

ME = Identity(bytes(range(32)))


def test_a_new_key_is_written_for_its_owner_alone_and_found_again(tmp_path):
    path = tmp_path / "state" / "key"
    made = Identity.load_or_create(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert os.listdir(path.parent) == ["key"]
    assert Identity.load_or_create(path).public == Identity.load(path).public == made.public


def test_the_key_file_is_0600_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        Identity.load_or_create(tmp_path / "key")
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_two_processes_that_start_at_once_get_one_key(tmp_path, monkeypatch):
    path = tmp_path / "key"
    other = Identity.load_or_create(path)
    monkeypatch.setattr(type(path), "exists", lambda _: False)  # as the slower of the two saw it
    assert Identity.load_or_create(path).public == other.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o610])
def test_a_key_that_others_may_read_is_refused(tmp_path, mode):
    path = tmp_path / "key"
    Identity.load_or_create(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError) as caught:
        Identity.load_or_create(path)
    assert (caught.value.code, caught.value.where) == ("key_exposed", str(path))
    assert f"chmod 600 {path}" in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"nonsense", b"AAAA", b"\xff\xfe\x00", base64.b64encode(bytes(33)), "ä".encode()]
)
def test_a_damaged_key_is_named_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(KeyFileError) as caught:
        Identity.load_or_create(path)
    assert (caught.value.code, caught.value.where) == ("key_damaged", str(path))
    assert path.read_bytes() == content


def test_a_missing_key_is_not_made_by_load(tmp_path):
    with pytest.raises(KeyFileError) as caught:
        Identity.load(tmp_path / "key")
    assert caught.value.code == "key_unreadable"
    assert not list(tmp_path.iterdir())


def test_where_no_key_can_be_written_it_says_so(tmp_path, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgepanda.trust.identity.os.write", full)
    with pytest.raises(KeyFileError, match="No space left") as caught:
        Identity.load_or_create(tmp_path / "key")
    assert caught.value.code == "key_unwritable"
    assert not (tmp_path / "key").exists()


def test_a_folder_that_may_not_be_looked_into_is_an_error_with_a_code(tmp_path, monkeypatch):
    path = tmp_path / "key"

    def refused(_: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "exists", refused)
    with pytest.raises(KeyFileError, match="Permission denied"):
        Identity.load_or_create(path)


def test_a_file_in_the_place_of_the_folder(tmp_path):
    (tmp_path / "state").write_text("")
    with pytest.raises(KeyFileError):
        Identity.load_or_create(tmp_path / "state" / "key")


def test_the_key_id_is_short_enough_for_a_client_id():
    assert len(ME.kid) == 16
    assert set(ME.kid) <= set("abcdefghijklmnopqrstuvwxyz234567")
    assert ME.kid == key_id(ME.public)
    assert Identity.create().kid != ME.kid


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_signature_holds_for_its_message_and_its_key_alone(message, other):
    signature = ME.sign(message)
    assert len(signature) == 64
    assert verify(ME.public, message, signature)
    assert verify(ME.public, other, signature) == (message == other)
    assert not verify(Identity.create().public, message, signature)


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=80), st.binary(max_size=40))
def test_verify_takes_anything(signature, public):
    assert not verify(public, b"message", signature)
    assert not verify(ME.public, b"message", signature)


@settings(deadline=None, max_examples=50)
@given(st.binary(min_size=32, max_size=32))
def test_a_key_survives_its_text(public):
    assert decode_key(encode_key(public)) == public


GOOD = encode_key(ME.public)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ed25519:",
        "rsa" + GOOD[7:],
        GOOD[:-1],
        GOOD + "A",
        GOOD + "=",
        " " + GOOD,
        "ed25519:" + "ä" * 43,
        "ed25519:" + "+" * 42 + "8",
    ],
)
def test_what_is_no_key(text):
    with pytest.raises(EdgePandaError) as caught:
        decode_key(text)
    assert caught.value.code == "invalid_key"


def test_one_key_has_one_text():
    """The last character carries four bits: base64 alone would read three others as the same key."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    place = alphabet.index(GOOD[-1])
    assert place % 4 == 0
    for other in alphabet[place + 1 : place + 4]:
        with pytest.raises(EdgePandaError):
            decode_key(GOOD[:-1] + other)
