"""The table of topics: its shape, and who may say what where."""

from __future__ import annotations

import itertools
import re

import pytest

from edgepanda.trust.peers import Role
from edgepanda.wire import topics
from edgepanda.wire.messages import ALL
from edgepanda.wire.topics import TABLE, find, may_say

ROLES: tuple[Role, ...] = ("site", "node", "operator", "client", "voice", "home_approver")
LEVEL = re.compile(r"[a-z0-9_-]+")
NAMES = {"node": "pi-4", "client": "abcdefghijklmnop"}
REPORTS = {"accepted", "declined", "starting", "started", "progress", "finished", "interrupted"}
INBOX = {"lease", "renewed", "permit", "cancel", "peers", "ask", "standing", "release", "ack"}

# protocol.md section 2: who says what, topic by topic
SAID = {
    "site/coordinator": {"presence": {"site"}},
    "site/hello": {"hello": {"site"}, "challenge": {"site"}},
    "site/stop": {"stop": set(ROLES), "standing": {"site"}},
    "site/request": {"request": {"operator", "client", "voice", "node"}},
    "site/events": {"event": {"site"}},
    "clients/{client}/reply": {"reply": {"site"}, "ack": {"site"}},
    "nodes/{node}/card": {"card": {"node"}},
    "nodes/{node}/status": {"status": {"node"}},
    "nodes/{node}/beat": {"beat": {"node"}},
    "nodes/{node}/claim": {"claim": {"node"}},
    "nodes/{node}/report": {kind: {"node"} for kind in REPORTS | {"ack"}},
    "nodes/{node}/inbox": {kind: {"site"} for kind in INBOX},
    "nodes/{node}/output": {"output": {"node"}},
    "nodes/{node}/request/{client}": {"request": {"operator"}},
    "nodes/{node}/reply/{client}": {"reply": {"node"}},
}


def test_the_table_is_the_protocols():
    assert {t.pattern: {kind: set(roles) for kind, roles in t.says.items()} for t in TABLE} == SAID


def test_retained_topics_are_a_fixed_set_and_name_no_task():
    fixed = {"site/coordinator", "site/stop", "nodes/{node}/card", "nodes/{node}/status"}
    assert {t.pattern for t in TABLE if t.retain} == fixed
    assert not [t for t in TABLE if "task" in t.pattern]


@pytest.mark.parametrize("topic", TABLE, ids=lambda t: t.pattern)
def test_every_broker_can_carry_it(topic):
    levels = ("edgepanda/" + topic.at(**NAMES)).split("/")
    assert len(levels) <= 7
    assert all(LEVEL.fullmatch(level) for level in levels)
    assert topic.qos in (0, 1)
    assert topic.every.replace("+", "x").count("/") == topic.at(**NAMES).count("/")


@pytest.mark.parametrize("topic", TABLE, ids=lambda t: t.pattern)
def test_a_topic_is_found_again_with_its_name(topic):
    found = find(topic.at(**NAMES))
    assert found is not None
    assert found.topic is topic
    assert found.name == next((NAMES[n] for n in NAMES if "{" + n + "}" in topic.pattern), "")


@pytest.mark.parametrize(
    "below",
    [
        *("", "/", "v1", "v1/", "v2/site/hello", "v1/site", "v1/site/hello/x", "v1//hello", "site/hello"),
        *("v1/nodes/pi/nothing", "v1/nodes/pi", "V1/site/hello", "v1/site/hello/", "v1/clients/x/reply/y"),
    ],
)
def test_what_is_no_topic_of_ours(below):
    assert find(below) is None


def test_each_body_type_is_said_somewhere_and_none_is_unknown():
    said = set().union(*(topic.says for topic in TABLE))
    assert said == set(ALL)


@pytest.mark.parametrize("topic", TABLE, ids=lambda t: t.pattern)
def test_only_the_roles_in_the_table_may_say_a_body(topic):
    found = find(topic.at(**NAMES))
    assert found is not None
    for kind, role in itertools.product([*ALL, "unknown"], ROLES):
        allowed = role in SAID[topic.pattern].get(kind, set())
        assert may_say(found, kind, role, NAMES["node"], NAMES["client"]) is allowed


@pytest.mark.parametrize(
    "topic",
    [t for t in TABLE if "{node}" in t.pattern and t not in (topics.INBOX, topics.NODE_REQUEST)],
    ids=lambda t: t.pattern,
)
def test_a_node_speaks_only_below_its_own_name(topic):
    found = find(topic.at(node="pi", client="x"))
    assert found is not None
    for kind in topic.says:
        assert may_say(found, kind, "node", "pi")
        for other in ("pi-4", "", "p", "PI", "site"):
            assert not may_say(found, kind, "node", other)


def test_a_renamed_node_says_its_status_under_its_old_name_and_nothing_else():
    for topic in TABLE:
        found = find(topic.at(node="old", client="x"))
        assert found is not None
        for kind in topic.says if "{node}" in topic.pattern else ():
            assert may_say(found, kind, "node", "new", formerly=("old",)) is (kind == "status")
            assert not may_say(found, kind, "node", "new", formerly=("other",))


def test_who_asks_a_node_asks_below_its_own_key():
    found = find(topics.NODE_REQUEST.at(node="pi", client="mykey"))
    assert found is not None
    assert (found.name, found.node, found.client) == ("pi", "pi", "mykey")
    assert may_say(found, "request", "operator", "me", "mykey")
    assert not may_say(found, "request", "operator", "me", "another")


def test_a_filter_names_some_and_leaves_others_open():
    assert topics.NODE_REQUEST.some(node="pi") == "v1/nodes/pi/request/+"
    assert topics.NODE_REPLY.some(client="k") == "v1/nodes/+/reply/k"
    assert topics.NODE_REPLY.every == "v1/nodes/+/reply/+"


def test_a_level_without_a_name_belongs_to_nobody():
    found = find("v1/nodes//card")
    assert found is None or not may_say(found, "card", "node", "pi")
