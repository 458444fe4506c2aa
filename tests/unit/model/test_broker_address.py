"""Where the broker is, from a URL."""

from __future__ import annotations

import traceback
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import parse_broker


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("mqtt://broker", "broker", 1883, False),
        ("mqtts://broker", "broker", 8883, True),
        ("mqtt://10.0.0.2:1999", "10.0.0.2", 1999, False),
        ("mqtts://[fd00::1]:8884", "fd00::1", 8884, True),
        ("mqtt://[::1]", "::1", 1883, False),
        ("mqtt://pi.local/", "pi.local", 1883, False),
    ],
)
def test_addresses(url, host, port, tls):
    address = parse_broker(url)
    assert (address.host, address.port, address.tls) == (host, port, tls)
    assert parse_broker(str(address)) == address


@settings(deadline=None, max_examples=100)
@given(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
def test_user_and_password_may_have_any_character(user, password):
    address = parse_broker(f"mqtt://{quote(user, safe='')}:{quote(password, safe='')}@[fd00::1]:1883")
    assert (address.username, address.password, address.host) == (user, password, "fd00::1")


def test_the_password_is_never_shown():
    address = parse_broker("mqtt://panda:hunter2@broker")
    assert "hunter2" not in f"{address} {address!r} {[address]}"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "broker:1883",
        "http://panda:hunter2@broker",
        "mqtt://",
        "mqtt://panda:hunter2@",
        "mqtt://panda:hunter2@broker:0",
        "mqtt://panda:hunter2@broker:65536",
        "mqtt://panda:hunter2@broker:x",
        "mqtt://panda:hunter2@broker/topic",
        "mqtt://panda:hunter2@broker?a=b",
        "mqtt://panda:hunter2@[fd00::1",
        "mqtt://panda:hunter2@[nonsense]",
        "mqtt://panda:hunter2#x@broker",
        "mqtt://panda:hunter2/x@broker",
        "mqtt://panda:hunter2@brok\u2100er",  # a character that a host's normal form turns into a slash
    ],
)
def test_what_is_wrong_is_said_without_secrets(url):
    with pytest.raises(EdgePandaError) as caught:
        parse_broker(url, where="config.toml: broker.url")
    assert (caught.value.code, caught.value.where) == ("invalid_broker", "config.toml: broker.url")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=40))
def test_no_text_makes_anything_else_than_an_address_or_an_error_with_a_code(text):
    for url in (text, "mqtt://" + text):
        code = "invalid_broker"
        try:
            parse_broker(url)
        except EdgePandaError as error:
            code = error.code
        assert code == "invalid_broker"
