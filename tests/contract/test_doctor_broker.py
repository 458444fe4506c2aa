"""The doctor's look at real brokers, as `edgepanda broker check` does it, but quick."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgepanda.doctor import broker
from edgepanda.doctor.finding import Finding
from edgepanda.model.broker import parse_broker
from tests.rig.brokers import Embedded, Mosquitto, Process, free_port


async def look(url: str) -> list[Finding]:
    facts = await broker.read(parse_broker(url), base="edgepanda", embedded=False, within=8.0, now=1.7e9)
    assert facts.seen.unanswered == ()
    assert facts.seen.keepalive is None  # which would take seconds
    return broker.judge(facts)


@pytest.fixture(params=[Mosquitto, Embedded])
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    with request.param() as running:
        yield running


async def test_a_broker_that_does_all_is_well(process: Process) -> None:
    assert {each.level for each in await look(process.url)} <= {"ok", "warning"}


@pytest.mark.parametrize(
    ("options", "code"),
    [("retain_available false", "broker_no_retain"), ("message_size_limit 20000", "broker_small_messages")],
)
async def test_what_a_broker_does_not_do_is_a_fault(options: str, code: str) -> None:
    with Mosquitto(options=options) as process:
        found = await look(process.url)
    assert code in {each.code for each in found if each.level == "fault"}


async def test_small_messages_that_are_held_back_are_noticed() -> None:
    """Mosquitto as it comes: without TCP_NODELAY its second small packet waits for our acknowledgement of the first."""
    with Mosquitto(options="set_tcp_nodelay false") as process:
        found = await look(process.url)
    assert [(each.level, each.code) for each in found] == [("warning", "broker_delays")]
    assert "set_tcp_nodelay true" in found[0].cure


async def test_who_is_not_let_in() -> None:
    with Mosquitto(users={"me": "right"}) as process:
        found = await look(process.url.replace("://", "://me:wrong@"))
        assert [(each.level, each.code) for each in found] == [("fault", "broker_refused")]
        assert "wrong" not in str(found)


async def test_who_takes_the_connection_and_says_nothing() -> None:
    with Mosquitto() as process:
        process.suspend()
        facts = await broker.read(parse_broker(process.url), base="edgepanda", embedded=False, within=0.5, now=1.7e9)
        process.resume()
    assert [(each.level, each.code) for each in broker.judge(facts)] == [("fault", "broker_unreachable")]


async def test_what_there_was_no_time_for_is_not_called_well() -> None:
    with Mosquitto(options="set_tcp_nodelay false") as process:  # then the round trips take longer than there is time
        facts = await broker.read(parse_broker(process.url), base="edgepanda", embedded=False, within=1.0, now=1.7e9)
    assert {"retained", "will", "largest"} <= set(facts.seen.unanswered)
    assert ("warning", "broker_unanswered") in [(each.level, each.code) for each in broker.judge(facts)]


async def test_nobody_there() -> None:
    found = await look(f"mqtt://127.0.0.1:{free_port()}")
    assert [(each.level, each.code) for each in found] == [("fault", "broker_unreachable")]
    assert found[0].where
    assert found[0].cure
