"""No secret that is put into a text ever comes out of it; what is none stays."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.error_codes import CODES
from edgepanda.model.ids import new_id
from edgepanda.redact import GONE, redact, redact_value
from edgepanda.trust.identity import Identity, encode_key
from tests.rig.certificates import Authority

keys = st.binary(min_size=32, max_size=32).map(lambda seed: base64.b64encode(seed).decode())
words = st.text("abcdefghijklmnopqrstuvwxyzABCDXYZ0123456789+/!#$%&*.?^_~|<>-:@=", min_size=6, max_size=40).map(
    lambda text: f"Zq7{text}"  # so that it is found in a text only where it was put
)
LINE = "node desk took lease 12 of task pan.move at 12:30, card 3"
spoken = st.lists(st.sampled_from(LINE.split()), max_size=8).map(" ".join)
PLACES = (
    "mqtt://user:{}@broker.lan:1883",
    'url = "mqtts://user:{}@[fd00::1]"',
    '{{"password": "{}"}}',
    "password = '{}'",
    "BROKER_PASSWORD={}",
    "Wi-Fi psk={} taken",
    "the token is: token: {}",
    "secret => {}",
    "Authorization: Bearer {}",
    "{{'Authorization': 'Basic {}'}}",
    "Set-Cookie: id={}; Path=/",
    "run: tool --password {} --quiet",
    "run: tool --api-key={}",
    "['tool', '--access-token', '{}', 'x']",
    "mosquitto_pub -h x -u me -P {} -t a",
    "curl -s -u me:{} https://host/",
)


@given(spoken, st.sampled_from(PLACES), words, spoken)
def test_what_stands_where_secrets_stand_goes(before: str, place: str, secret: str, after: str) -> None:
    shown = redact(f"{before} {place.format(secret)} {after}")
    assert secret not in shown
    assert GONE in shown
    assert shown.startswith(before)
    assert redact(shown) == shown


@given(spoken, keys, st.sampled_from(["{}", "'{}'", "({})", "key:{}", "key={}", "b'{}\\n'", "a\\n{}", "{},"]), spoken)
def test_a_private_key_of_ours_needs_no_context(before: str, key: str, form: str, after: str) -> None:
    shown = redact(f"{before} {form.format(key)}\n{after}")
    assert key not in shown
    assert shown == f"{before} {form.format(GONE)}\n{after}"


@given(st.lists(words, min_size=1, max_size=4), st.text(max_size=200))
def test_what_is_known_goes_wherever_it_stands(secrets: list[str], text: str) -> None:
    shown = redact(text + "".join(f"x{secret}y" for secret in secrets) + text, secrets)
    assert not any(secret in shown for secret in secrets)
    assert redact(shown, secrets) == shown


@given(st.text(max_size=300))
def test_twice_is_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(st.lists(st.sampled_from([*PLACES, "-----BEGIN PRIVATE KEY-----", "\n", "***", '"', "'", "-P", "://a:b@"])))
def test_twice_is_once_where_secrets_meet(parts: list[str]) -> None:
    once = redact("".join(part.format("Zq7secret") if "{}" in part else part for part in parts))
    assert redact(once) == once


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=64))
def test_digests_ids_and_public_keys_stay(digest: bytes, signature: bytes) -> None:
    line = (
        f"node {encode_key(digest)} sent {digest.hex()} as {new_id()}, signature {base64.b64encode(signature).decode()}"
        f" image sha256:{base64.b64encode(digest).decode()}"
    )
    assert redact(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "no connection to the broker: Connection refused (mqtt://localhost:1883) [broker_unreachable]; trying on",
        'password_file = "broker.password"',
        "the variable EDGEPANDA_BROKER_PASSWORD is not set (edgepanda.toml: broker.password_env)",
        "check user name and password",
        "others may read this private key (/home/me/.edgepanda/keys/node.key); chmod 600 /home/me/node.key",
        "connected to mqtts://[fd00::1]:8883, asked by a@b",
        "12:30:01 INFO edgepanda.node: pan.move angle=30 evidence position=30.0",
        'password = ""',
        "max_tokens: 100",
        "name it with --password-file or --password-stdin and give the command again",
        "Basic configuration of the site",
        "ed25519:" + "A" * 43,
    ],
)
def test_ordinary_lines_stay(line: str) -> None:
    assert redact(line) == line


def test_every_document_of_ours_stays_readable() -> None:
    """What people read in them is no secret, but for examples of passwords in addresses."""
    for name in ("docs/architecture.md", "docs/protocol.md", "docs/writing-a-driver.md", "README.md", "docs/boards.md"):
        for line in (Path(__file__).parents[2] / name).read_text().splitlines():
            shown = redact(line)
            assert shown == line or "://" in line or "=" in line, f"{name}: {line}"


def test_what_errors_tell_to_do_stays() -> None:
    for name, entry in CODES.items():
        for text in (entry.meaning, entry.cure, *entry.causes):
            assert redact(text) == text, name


@pytest.mark.parametrize("lines", ["\n", "\\n", "\nDec 01 10:00:00 desk edgepanda[12]: "])
def test_pem_goes_whole_also_in_a_journal_and_when_it_is_cut(lines: str) -> None:
    certificate, key = Authority().issue(["localhost"])
    body = base64.b64encode(os.urandom(150)).decode()
    longer = "\n".join(
        ["-----BEGIN RSA PRIVATE KEY-----", body[:64], body[64:128], body[128:], "-----END RSA PRIVATE KEY-----"]
    )
    for pem in (key, longer):
        text = f"before{lines}{lines.join(pem.splitlines())}{lines}after"
        inner = pem.splitlines()[1:-1]
        shown = redact(text)
        assert not any(line in shown for line in inner)
        assert shown.startswith("before")
        assert shown.endswith("after")
        assert redact(shown) == shown
        for cut in (text[text.index(inner[0]) :], text[: text.index("-----END")]):
            assert not any(line in redact(cut) for line in inner)
    assert redact(certificate) == certificate


def test_values_are_told_by_their_names() -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    given_ = {
        "password": "a",
        "password_file": "f",
        "api_key": 12,
        "labels": {"room": "attic"},
        "argv": ["/usr/bin/mosquitto_pub", "-u", "me", "-P", "b", "--token", "c", "-t", "d"],
        "call": ["curl", "-u", "me:e", "https://x"],
        "secrets": {"one": "f", "more": ["g"]},
        "text": f"key {key}",
        "nothing": None,
        "psk": "",
        "token": True,
    }
    assert redact_value(given_) == {
        **given_,
        "password": GONE,
        "api_key": GONE,
        "argv": ["/usr/bin/mosquitto_pub", "-u", "me", "-P", GONE, "--token", GONE, "-t", "d"],
        "call": ["curl", "-u", f"me:{GONE}", "https://x"],
        "secrets": {"one": GONE, "more": [GONE]},
        "text": f"key {GONE}",
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "password", "key", "url"]), inner),
        max_leaves=20,
    )
)
def test_values_twice_are_once(value: object) -> None:
    once = redact_value(value)
    assert redact_value(once) == once
    json.dumps(once)


@pytest.mark.parametrize("part", ["a", "token", "://a:", "-----BEGIN PRIVATE KEY-----", 'password="', "A" * 43, "-P "])
def test_a_long_text_takes_time_in_proportion(part: str) -> None:
    """No pattern may go over the same text again and again: this would then not end."""
    for each in (part, f"curl -u a:{part}", f"mosquitto_pub {part}", f"{part}-----END PRIVATE KEY-----", f"\\n{part}"):
        redact(each * (100_000 // len(each)))


def test_the_key_that_a_site_makes(tmp_path: Path) -> None:
    Identity.load_or_create(tmp_path / "node.key")
    text = (tmp_path / "node.key").read_text()
    assert redact(f"read {text}") == f"read {GONE}\n"
