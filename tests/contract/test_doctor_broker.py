"""The doctor's look at real brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgepanda.doctor import broker
from edgepanda.doctor.broker import BrokerFacts
from edgepanda.doctor.finding import Finding
from edgepanda.model.broker import parse_broker
from tests.rig.brokers import Embedded, Mosquitto, Process, free_port


async def look(url: str) -> tuple[BrokerFacts, list[Finding]]:
    facts = await broker.read(parse_broker(url), base="edgepanda", embedded=False, within=5.0)
    return facts, broker.judge(facts)


@pytest.fixture(params=[Mosquitto, Embedded])
def process(request: pytest.FixtureRequest) -> Iterator[Process]:
    with request.param() as running:
        yield running


async def test_a_broker_that_does_all_is_well(process: Process) -> None:
    facts, found = await look(process.url)
    assert (facts.large, facts.retained, facts.will, facts.error) == (True, True, True, None)
    assert facts.round_trip
    assert [each for each in found if each.code == "broker_lacks"] == []


async def test_nothing_is_left_behind() -> None:
    with Mosquitto(options="max_queued_messages 100") as process:
        await look(process.url)
        client = broker._Client(parse_broker(process.url), "edgepanda/v1/doctor/#")
        async with broker._connected(client):
            assert await client.wait_for(b"", 0.3) is False
            assert client.heard.empty()


@pytest.mark.parametrize(
    ("options", "lacking"),
    [("retain_available false", "retained"), ("message_size_limit 20000", "65536"), ("max_packet_size 20000", "65536")],
)
async def test_what_a_broker_does_not_do_is_found(options: str, lacking: str) -> None:
    with Mosquitto(options=options) as process:
        _, found = await look(process.url)
    assert {each.code for each in found} == {"broker_lacks"}
    assert any(lacking in each.found for each in found)


async def test_small_messages_that_are_held_back_are_noticed() -> None:
    """Mosquitto as it comes: without TCP_NODELAY its second small packet waits for our acknowledgement of the first."""
    with Mosquitto(options="set_tcp_nodelay false") as process:
        facts, found = await look(process.url)
    assert [each.code for each in found] == ["broker_delays"], facts
    assert "set_tcp_nodelay true" in found[0].cure


async def test_an_access_list_that_does_not_know_the_doctor() -> None:
    with Mosquitto(acl="topic readwrite other/#\n") as process:
        _, found = await look(process.url)
    assert [(each.level, each.code) for each in found] == [("warning", "broker_untried")]


async def test_who_is_not_let_in() -> None:
    with Mosquitto(users={"me": "right"}) as process:
        _, found = await look(process.url.replace("://", "://me:wrong@"))
        assert [(each.level, each.code) for each in found] == [("fault", "broker_refused")]
        assert "wrong" not in str(found)
        facts, _ = await look(process.url.replace("://", "://me:right@"))
        assert facts.will


async def test_nobody_there() -> None:
    _, found = await look(f"mqtt://127.0.0.1:{free_port()}")
    assert [(each.level, each.code) for each in found] == [("fault", "broker_unreachable")]
    assert found[0].where
    assert found[0].cure
