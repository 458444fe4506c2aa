"""Every body that travels, one type each; `type` in the JSON tells them apart (docs/protocol.md, 'Topics')."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Card
from edgepanda.model.head import Head
from edgepanda.model.stops import MOST_RELEASED_AT_ONCE, Stop
from edgepanda.model.task import Finished, Task
from edgepanda.trust.peers import PeerList
from edgepanda.wire.clock import Stamp


class Body(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type"):
    """What all bodies share: an id, by which they are acknowledged."""

    id: str


# From the site


class Presence(Body, frozen=True, kw_only=True, tag="presence"):
    """Whether the coordinator is there; also its will."""

    online: bool
    epoch: int
    head: Head
    software: str = ""
    peers_revision: int = 0
    answers: str = ""  # the id of the challenge that this is the answer to


class Hello(Body, frozen=True, kw_only=True, tag="hello"):
    """'Who is there?' Every node answers with status, card and claim."""

    epoch: int
    head: Head


class Challenge(Body, frozen=True, kw_only=True, tag="challenge"):
    """'Is there another coordinator?' One that serves answers with its presence at once; nodes take no notice."""


class Standing(Body, frozen=True, kw_only=True, tag="standing"):
    """All stops that are in force at the site; who lacks one takes it over. Never a release."""

    stops: tuple[Stop, ...]


class Release(Body, frozen=True, kw_only=True, tag="release"):
    """These stops of a node end, by an operator's signature (`trust.release`)."""

    ids: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_RELEASED_AT_ONCE)]
    by: str  # the operator's key id
    proof: str


class Event(Body, frozen=True, kw_only=True, tag="event"):
    """One entry of the ledger, as it was committed; `seq` 0 for progress, which is not kept."""

    seq: int
    at: float  # wall clock, seconds
    kind: str
    task: str | None = None
    attempt: int | None = None
    data: dict[str, Any] = {}
    untrusted: bool = False  # nobody had set the clock that `at` comes from


class Lease(Body, frozen=True, kw_only=True, tag="lease"):
    """The grant of one attempt. Times are milliseconds on the node's own clock, in the boot that `stamp` names."""

    task: Task
    attempt: int
    epoch: int
    ledger: str
    stamp: Stamp
    order: int  # rises with each submit: of two commands for a device the higher is the newer
    submitted_ms: int
    until_ms: int  # the lease ends
    begin_by_ms: int | None = None  # it may not begin later
    end_by_ms: int | None = None  # the task's deadline
    newest: int = 0  # the order of the newest command that the node is known to have accepted for the same device


class Renewed(Body, frozen=True, kw_only=True, tag="renewed"):
    """These attempts' leases now end at this time of the node's clock."""

    stamp: Stamp
    until_ms: int
    attempts: tuple[tuple[str, int], ...]


class Permit(Body, frozen=True, kw_only=True, tag="permit"):
    """The `unsafe` attempt may begin."""

    task: str
    attempt: int
    head: Head


class Cancel(Body, frozen=True, kw_only=True, tag="cancel"):
    """End this attempt; `reason` is `cancelled` or `fence_retired`."""

    task: str
    attempt: int
    reason: str = "cancelled"


class Peers(Body, frozen=True, kw_only=True, tag="peers"):
    """The site's list of peers."""

    peers: PeerList


class Ask(Body, frozen=True, kw_only=True, tag="ask"):
    """'Send status, card, claim and a beat now': the coordinator lacks something, or asks the witnesses."""

    epoch: int
    head: Head


class Ack(Body, frozen=True, kw_only=True, tag="ack"):
    """These bodies were taken; those in `unsupported` were not understood. From the site with its head."""

    of: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()
    head: Head | None = None


# From anyone


class EmergencyStop(Body, frozen=True, kw_only=True, tag="stop"):
    """'Stop everything, now.' In force at each node until an operator releases it there."""

    reason: str = ""


# From a node


class CardBody(Body, frozen=True, kw_only=True, tag="card"):
    """The node's card."""

    card: Card


class Status(Body, frozen=True, kw_only=True, tag="status"):
    """Whether the node is there; also its will."""

    online: bool
    boot: str
    incarnation: int
    peers: int = 0  # revision of the list of peers that it has
    stops: tuple[Stop, ...] = ()  # in force at the node
    seq: int = 0  # rises with each status of one start: an older one that is said again tells nothing


class Held(msgspec.Struct, frozen=True, array_like=True):
    """An attempt that the node has and has not yet finished."""

    task: str
    attempt: int
    began: bool


class Claim(Body, frozen=True, kw_only=True, tag="claim"):
    """The node's standing request for work."""

    capabilities: tuple[str, ...]
    slots: int  # in total; the coordinator computes what is free
    held: tuple[Held, ...]
    sequence: int
    epoch: int  # of the coordinator that the node has last seen
    stamp: Stamp


class Beat(Body, frozen=True, kw_only=True, tag="beat"):
    """A sign of life."""

    stamp: Stamp
    sequence: int  # of the newest claim
    card_revision: int
    epoch: int
    held: tuple[Held, ...] = ()
    load: float = 0.0
    temperature: float | None = None
    witness: Head | None = None  # the newest head that the node has on disk


class Report(Body, frozen=True, kw_only=True):
    """What a node says about an attempt. `seq` rises within an attempt: a repeated report is recognised by it."""

    task: str
    attempt: int
    seq: int


class Accepted(Report, frozen=True, kw_only=True, tag="accepted"):
    """The lease is taken; the attempt has not begun."""


class Declined(Report, frozen=True, kw_only=True, tag="declined"):
    """The lease is not taken, or given back before it began."""

    code: str
    message: str = ""


class Starting(Report, frozen=True, kw_only=True, tag="starting"):
    """An `unsafe` attempt is ready and asks for its permit."""


class Started(Report, frozen=True, kw_only=True, tag="started"):
    """A `safe` attempt has begun."""


class Progress(Report, frozen=True, kw_only=True, tag="progress"):
    """How far it is; not kept."""

    fraction: float | None = None
    text: str = ""


class FinishedReport(Report, frozen=True, kw_only=True, tag="finished"):
    """The attempt's end. A direct command (attempt 0) brings its whole task with it."""

    result: Finished
    direct: Task | None = None


class Interrupted(Report, frozen=True, kw_only=True, tag="interrupted"):
    """The attempt was cut short, by a restart for example. `began` False: it never began. A direct command brings its
    whole task with it.
    """

    began: bool
    known: dict[str, Any] = {}
    direct: Task | None = None


class Output(Body, frozen=True, kw_only=True, tag="output"):
    """Lines of a running attempt; best effort."""

    task: str
    attempt: int
    stream: str
    lines: tuple[str, ...]


# Requests and results: JSON-RPC 2.0 inside a body


class Request(Body, frozen=True, kw_only=True, tag="request"):
    """A JSON-RPC 2.0 request. Changing methods other than `task.submit` carry a rising counter of the sender's key.

    One to a node always carries it, and the node's start for which it is meant.
    """

    method: str
    params: dict[str, Any] = {}
    counter: int | None = None
    incarnation: int | None = None
    jsonrpc: str = "2.0"


class RpcError(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """JSON-RPC's error object; `data` is `EdgePandaError.as_dict()`."""

    code: int
    message: str
    data: dict[str, Any] = {}


def rpc_error(error: EdgePandaError) -> RpcError:
    """JSON-RPC's form of an error: its numbers for its own cases, one number of ours for all others."""
    number = {"unsupported": -32601, "malformed": -32602, "internal": -32603}.get(error.code, -32000)
    return RpcError(code=number, message=str(error), data=error.as_dict())


class Reply(Body, frozen=True, kw_only=True, tag="reply"):
    """The result of the request of the same id."""

    result: Any = None
    error: RpcError | None = None
    jsonrpc: str = "2.0"


ALL: dict[str, type[Body]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        *(Presence, Hello, Challenge, Event, Lease, Renewed, Permit, Cancel, Peers, Ask, Ack),
        *(EmergencyStop, Standing, Release),
        *(CardBody, Status, Claim, Beat, Output),
        *(Accepted, Declined, Starting, Started, Progress, FinishedReport, Interrupted),
        *(Request, Reply),
    )
}
