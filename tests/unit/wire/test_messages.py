"""The bodies: one type each, told apart by `type`, open to members that a later version adds."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from edgepanda.model.task import Answer, Finished, Task
from edgepanda.wire import messages
from edgepanda.wire.clock import Stamp

STAMP = Stamp(incarnation=1, boot="b", ms=5)
EXAMPLES: list[messages.Body] = [
    messages.Event(id="1", seq=1, at=1.5, kind="submitted", task="t", attempt=1, data={"a": [1, None]}),
    messages.Renewed(id="2", stamp=STAMP, until_ms=9, attempts=(("t", 1), ("u", 2))),
    messages.Cancel(id="3", task="t", attempt=1),
    messages.Ack(id="4", of=("1", "2")),
    messages.Status(id="5", online=False, boot="b", incarnation=2),
    messages.Declined(id="6", task="t", attempt=1, seq=2, code="busy"),
    messages.FinishedReport(
        id="7",
        task="t",
        attempt=0,
        seq=3,
        result=Finished(outcome="succeeded", evidence=({"a": 1},), answers=(Answer(criterion="c", met=True),)),
        direct=Task(id="t", capability="servo.move", args={"angle": 3}),
    ),
    messages.Request(id="8", method="task.submit", params={"x": {}}, counter=7),
    messages.Reply(id="9", error=messages.RpcError(code=-32601, message="unknown")),
]


@pytest.mark.parametrize("body", EXAMPLES, ids=lambda b: type(b).__name__)
def test_a_body_survives_the_wire(body):
    kind = messages.ALL[type(body).__struct_config__.tag]
    assert kind is type(body)
    assert msgspec.json.decode(msgspec.json.encode(body), type=kind) == body


@pytest.mark.parametrize("body", EXAMPLES, ids=lambda b: type(b).__name__)
def test_members_that_a_later_version_adds_are_ignored(body):
    more = {**msgspec.to_builtins(body), "added_later": {"deep": [1]}}
    assert msgspec.json.decode(msgspec.json.encode(more), type=type(body)) == body


@pytest.mark.parametrize(("tag", "kind"), messages.ALL.items())
def test_each_type_says_what_it_is_and_needs_an_id(tag, kind):
    assert inspect.getdoc(kind)
    assert kind.__struct_config__.tag == tag
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"type": tag}), type=kind)


def test_all_types_are_listed():
    def below(kind: type) -> set[type]:
        return {kind}.union(*(below(sub) for sub in kind.__subclasses__()))

    assert below(messages.Body) - {messages.Body, messages.Report} == set(messages.ALL.values())
