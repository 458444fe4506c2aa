"""The parts of the link that need no broker."""

from __future__ import annotations

import socket

import pytest
from paho.mqtt.client import MQTTMessage

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import parse_broker
from edgepanda.wire import clock
from edgepanda.wire.link import Link, LinkError, _no_delay, longer, tls_context


def link(on_message) -> Link:
    return Link(
        parse_broker("mqtt://nowhere"),
        "ept-test",
        subscriptions=[],
        will=lambda: None,
        on_message=on_message,
        on_up=lambda: None,
        on_down=lambda: None,
    )


def message(topic: bytes, payload: bytes) -> MQTTMessage:
    made = MQTTMessage(topic=topic)
    made.payload = payload
    return made


async def test_no_exception_reaches_paho(caplog):
    taken: list[tuple[str, bytes, bool]] = []

    def take(topic: str, payload: bytes, retained: bool) -> None:
        if payload == b"bad":
            raise RuntimeError("as planned")
        taken.append((topic, payload, retained))

    subject = link(take)
    subject._take(None, None, message(b"a", b"bad"))
    subject._take(None, None, message(b"\xff\xfe", b"a topic that is no text"))
    subject._take(None, None, message(b"a", b"\xff"))
    assert taken == [("a", b"\xff", False)]
    assert caplog.text.count("could not be handled") == 2


async def test_nothing_is_published_without_a_connection():
    subject = link(lambda *_: None)
    assert not subject.publish("a", b"", qos=0, retain=False)
    await subject.flush()
    subject.close()
    subject.close()


async def test_a_socket_that_cannot_be_tuned_is_used_as_it_is():
    with socket.socket(socket.AF_UNIX) as sock:
        _no_delay(None, None, sock)


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_an_authority_that_cannot_be_used_is_named(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    address = parse_broker("mqtts://broker")
    with pytest.raises(LinkError) as caught:
        tls_context(type(address)(host="broker", port=8883, tls=True, ca_file=str(path)))
    assert (caught.value.code, caught.value.where) == ("broker_tls", str(path))


def test_a_stamp_is_of_this_boot_and_later_than_the_one_before():
    first, second = clock.stamp(3), clock.stamp(3)
    assert first.incarnation == 3
    assert first.boot == second.boot == clock.boot_id()
    assert first.ms < second.ms
    assert second.ms == pytest.approx(clock.boottime() * 1000, abs=1000)


def test_a_broker_that_is_gone_is_tried_every_few_seconds_and_one_that_refuses_every_minute() -> None:
    waits = []
    for code in ("broker_unreachable", "broker_refused", ""):
        wait, error = 1.0, EdgePandaError("no", code=code, where="here") if code else None
        for _ in range(10):
            wait = longer(wait, error)
        waits.append(wait)
    assert waits == [5.0, 60.0, 5.0]
