"""Parameters of requests to the coordinator and to nodes, and what they answer with: shared with the client."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from edgepanda.model.stops import MOST_RELEASED_AT_ONCE, Stop
from edgepanda.model.task import Finished, Limits
from edgepanda.trust.peers import Peer, Role

LARGEST_SUBMIT = 24 * 1024  # bytes of a submit's JSON: larger inputs travel as artifacts
LONGEST_WAIT = 25.0  # seconds that `task.wait` holds its answer back
MOST_ROWS = 100  # in one page
LARGEST_NODE_REQUEST = 4 * 1024  # bytes of the JSON of what a node is asked
LONGEST_LOG_WAIT = 20.0  # seconds that `logs` holds its answer back


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base: an argument that nobody knows is an error that names it."""


class Submit(Params, frozen=True, kw_only=True):
    """`task.submit`: a capability, or a device and one of its actions. `id` is the idempotency key."""

    id: str
    capability: str | None = None
    device: str | None = None
    action: str | None = None
    args: dict[str, Any] = {}
    node: str | None = None
    labels: dict[str, str] = {}
    goal: str = ""
    constraints: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    limits: Limits = Limits()
    priority: int = 0
    door: str = "command"


class ById(Params, frozen=True, kw_only=True):
    """`task.get`, `task.output`."""

    id: str


class Wait(Params, frozen=True, kw_only=True):
    """`task.wait`: answers when the task has ended or needs a person, or after `timeout` seconds with how it stands."""

    id: str
    timeout: float = LONGEST_WAIT


class ListTasks(Params, frozen=True, kw_only=True):
    """`task.list`: newest first; `before` is the last page's `next`. A page may be short, and go on all the same.

    `since` and `until` are wall seconds of the submit; `goal` is a part of the text, `labels` what was asked for.
    """

    states: tuple[str, ...] = ()
    capability: str | None = None
    node: str | None = None
    device: str | None = None
    labels: dict[str, str] = {}
    by: str | None = None
    goal: str = ""
    since: float | None = None
    until: float | None = None
    before: int | None = None
    limit: int = 50


class Events(Params, frozen=True, kw_only=True):
    """`task.events`: of one task, or of the whole ledger, after a sequence number."""

    id: str | None = None
    after: int = 0
    limit: int = 50


class Cancel(Params, frozen=True, kw_only=True):
    """`task.cancel`."""

    id: str
    because: str = ""


class Resolve(Params, frozen=True, kw_only=True):
    """`task.resolve`: a person's word on an uncertain task."""

    id: str
    outcome: Literal["succeeded", "failed", "retry"]
    because: str


class Review(Params, frozen=True, kw_only=True):
    """`task.review`: a person's word on a task that waits for review."""

    id: str
    verdict: Literal["accept", "again", "reject"]
    because: str = ""


class ByName(Params, frozen=True, kw_only=True):
    """`node.get`, `peers.remove`."""

    name: str


class Rename(Params, frozen=True, kw_only=True):
    """`node.rename`: a node gets another name; its key stays."""

    name: str
    to: str


class NoParams(Params, frozen=True, kw_only=True):
    """`node.list`, `digest`, `ledger.verify`, `peers.list`."""


class AddPeer(Params, frozen=True, kw_only=True):
    """`peers.add`: an operator's entry carries the proof of the operator who asks."""

    peer: Peer


class Logs(Params, frozen=True, kw_only=True):
    """`logs` of a node: the newest `lines`, oldest first; or those after the number `after` of the start `start`.

    `since`: not older than so many seconds. `task`: of this task. `wait`: where there is none yet, hold the answer back
    so many seconds. A page may be short: `next` goes on as `after`, and `more` says that there is more already.
    """

    after: int | None = None
    start: int = 0
    lines: Annotated[int, msgspec.Meta(ge=0)] = 200
    since: Annotated[float, msgspec.Meta(ge=0)] | None = None
    level: Literal["debug", "info", "warning", "error"] = "debug"
    task: str | None = None
    wait: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class StopParams(Params, frozen=True, kw_only=True):
    """`stop` of a node. `id`: under which it was said, where it goes several ways at once."""

    reason: str = ""
    by: str = ""
    id: str = ""


class ReleaseParams(Params, frozen=True, kw_only=True):
    """`release` of a node, and of the site: these stops end, by an operator's signature (`trust.release`)."""

    ids: Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_RELEASED_AT_ONCE)]
    by: str
    proof: str


class Release(Params, frozen=True, kw_only=True):
    """`stop.release`: by the key id of the node, or of the site, whose stops end there."""

    parts: dict[str, ReleaseParams]
    because: str = ""


class LogLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a log; `at` is wall seconds by the node's clock, `seq` rises by one with each line of a start."""

    seq: int
    at: float
    level: str
    logger: str
    text: str
    task: str = ""
    attempt: int | None = None
    device: str = ""


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `logs`. `missed`: lines after `after` that are kept no longer."""

    node: str
    start: int  # of the node's process: numbers begin anew with each
    lines: tuple[LogLine, ...]
    next: int
    more: bool = False
    missed: int = 0


class TaskView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task as the coordinator shows it. Times are wall seconds, for people."""

    id: str
    state: str
    capability: str
    created: float
    updated: float
    device: str | None = None
    node: str | None = None  # who holds or held the newest attempt
    args: dict[str, Any] = {}
    goal: str = ""
    constraints: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    limits: Limits = Limits()
    priority: int = 0
    tier: int = 1
    replay: str = "unsafe"
    attempt: int = 0
    cancel: bool = False
    by: str = ""
    door: str = ""
    reason: str = ""  # why it stands where it stands
    code: str = ""  # stable code of what kept it from succeeding
    result: Finished | None = None
    progress: str = ""
    ended: bool = False
    needs_person: bool = False
    untrusted: tuple[str, ...] = ()  # which of `created` and `updated` come from a clock that nobody had set


class NodeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as the coordinator sees it."""

    name: str
    online: bool
    claiming: bool
    slots: int = 0
    free: int = 0
    load: float = 0.0
    temperature: float | None = None
    seen: float | None = None  # seconds since its last beat
    stops: tuple[Stop, ...] = ()  # emergency stops in force there
    card: dict[str, Any] | None = None
    key: str = ""  # with the card: its public key
    incarnation: int = 0  # with the card: its newest start that was heard of


METHODS: dict[str, tuple[type[Params], frozenset[Role], bool]] = {
    # name: parameters, roles that may ask, whether it changes something and so carries a counter
    "task.submit": (Submit, frozenset({"operator", "client", "voice", "node"}), False),
    "task.get": (ById, frozenset({"operator", "client", "voice", "node"}), False),
    "task.list": (ListTasks, frozenset({"operator", "client", "voice"}), False),
    "task.wait": (Wait, frozenset({"operator", "client", "voice", "node"}), False),
    "task.events": (Events, frozenset({"operator", "client"}), False),
    "task.output": (ById, frozenset({"operator", "client"}), False),
    "task.cancel": (Cancel, frozenset({"operator", "client", "voice"}), True),
    "task.resolve": (Resolve, frozenset({"operator"}), True),
    "task.review": (Review, frozenset({"operator"}), True),
    "node.list": (NoParams, frozenset({"operator", "client", "voice"}), False),
    "node.get": (ByName, frozenset({"operator", "client", "voice"}), False),
    "node.rename": (Rename, frozenset({"operator"}), True),
    "digest": (NoParams, frozenset({"operator", "client", "voice"}), False),
    "ledger.verify": (NoParams, frozenset({"operator", "client"}), False),
    "stop.list": (NoParams, frozenset({"operator", "client", "voice"}), False),
    "stop.release": (Release, frozenset({"operator"}), True),
    "peers.list": (NoParams, frozenset({"operator", "client"}), False),
    "peers.add": (AddPeer, frozenset({"operator"}), True),
    "peers.remove": (ByName, frozenset({"operator"}), True),
}

NODE_METHODS = frozenset({"status", "logs", "reload", "rescan", "stop", "release"})
"""Of a node's local methods those that it answers to operators over the bus."""
