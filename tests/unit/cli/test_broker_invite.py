"""Opening the embedded broker to a network: only what is needed, and never without TLS by accident."""

from __future__ import annotations

import click
import pytest

from edgepanda.cli.broker_invite import opened
from edgepanda.model.config_types import Broker


def test_a_loopback_broker_is_opened_with_users_on_the_same_port() -> None:
    wanted = {"users_file": "broker-users.toml", "listen": "0.0.0.0:1884", "allow_plaintext": True}
    assert opened(Broker(listen="127.0.0.1:1884"), allow_plaintext=True) == wanted


def test_without_tls_somebody_must_have_said_so() -> None:
    with pytest.raises(click.UsageError, match="--allow-plaintext"):
        opened(Broker(), allow_plaintext=False)


def test_a_certificate_needs_no_such_word() -> None:
    broker = Broker(cert_file="broker.crt", key_file="broker.key")
    assert "allow_plaintext" not in opened(broker, allow_plaintext=False)


def test_what_is_open_already_stays_as_it_is() -> None:
    broker = Broker(listen="192.168.1.2:1883", users_file="u.toml", allow_plaintext=True)
    assert opened(broker, allow_plaintext=False) == {}
