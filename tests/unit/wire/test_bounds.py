"""What a stranger makes as long as MQTT allows is neither remembered nor logged whole."""

from __future__ import annotations

import json

import pytest

from edgepanda.model.broker import parse_broker
from edgepanda.trust.identity import Identity
from edgepanda.trust.peers import Directory
from edgepanda.wire import topics
from edgepanda.wire.bus import LONGEST_LOGGED, Bus


async def test_names_of_any_length(caplog: pytest.LogCaptureFixture) -> None:
    me = Identity.create()
    bus = Bus(parse_broker("mqtt://127.0.0.1:1"), me, Directory(me.public), site="home", process="t")
    bus.subscribe(topics.STATUS, lambda _message: None)
    remembered = topics.find.cache_info().currsize
    for number in range(20):
        bus._take(f"edgepanda/v1/nodes/{'n' * 60_000}{number}/status", b"{}", False)
    assert bus.counts == {"unknown_topic": 20}
    assert topics.find.cache_info().currsize == remembered
    long = {"v": 1, "site": "home", "kid": "k" * 60_000, "id": "i", "sig": "", "body": []}
    bus._take("edgepanda/v1/nodes/desk/status", json.dumps(long).encode(), False)
    assert bus.counts["unknown_key"] == 1
    assert max(len(record.getMessage()) for record in caplog.records) < LONGEST_LOGGED + 100
