"""All topics: who may say what where, with which quality and retain flag. Nothing else in the code spells a topic."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from edgepanda.trust.peers import Role

PREFIX = "v1/"  # below the base

Says = Mapping[str, frozenset[Role]]

SITE: frozenset[Role] = frozenset({"site"})
NODE: frozenset[Role] = frozenset({"node"})
ASKERS: frozenset[Role] = frozenset({"operator", "client", "voice", "node"})
OPERATORS: frozenset[Role] = frozenset({"operator"})
ANYONE: frozenset[Role] = frozenset({"site", "node", "operator", "client", "voice", "home_approver"})


class Topic(msgspec.Struct, frozen=True):
    """One line of the table. `pattern` has `{node}` or `{client}`, or both, for the level that names one."""

    pattern: str
    qos: int
    retain: bool
    says: Says  # body type: roles that may sign it
    urgent: bool = False  # of what is said in one turn of the loop, this goes first
    plain: bool = False  # whoever may publish there is heard, also without a signature

    def at(self, **names: str) -> str:
        """The topic below the base, for these names."""
        return PREFIX + self.pattern.format(**names)

    @property
    def every(self) -> str:
        """The filter below the base that takes this topic of all nodes or clients."""
        return self.some()

    def some(self, **names: str) -> str:
        """The filter below the base that takes this topic of the named node or client, and of all that is not named."""
        return PREFIX + self.pattern.format(**{"node": "+", "client": "+", **names})


def _topic(
    pattern: str,
    *,
    qos: int = 1,
    retain: bool = False,
    says: Mapping[str, frozenset[Role]],
    urgent: bool = False,
    plain: bool = False,
) -> Topic:
    return Topic(pattern, qos, retain, dict(says), urgent, plain)


# QoS 0 where the application repeats a body until it is answered: the broker's own acknowledgement would add a packet
# each way and promise nothing that the repetition does not (docs/decisions/0005-wire.md).
_REPORTS = ("accepted", "declined", "starting", "started", "progress", "finished", "interrupted", "ack")
_INBOX = ("lease", "renewed", "permit", "cancel", "peers", "ask", "standing", "release", "ack")

COORDINATOR = _topic("site/coordinator", retain=True, says={"presence": SITE})
HELLO = _topic("site/hello", says={"hello": SITE, "challenge": SITE})
STOP = _topic("site/stop", retain=True, says={"stop": ANYONE, "standing": SITE}, urgent=True, plain=True)
REQUEST = _topic("site/request", qos=0, says={"request": ASKERS})
EVENTS = _topic("site/events", says={"event": SITE})
REPLY = _topic("clients/{client}/reply", qos=0, says={"reply": SITE, "ack": SITE})
CARD = _topic("nodes/{node}/card", retain=True, says={"card": NODE})
STATUS = _topic("nodes/{node}/status", retain=True, says={"status": NODE})
BEAT = _topic("nodes/{node}/beat", says={"beat": NODE})
CLAIM = _topic("nodes/{node}/claim", says={"claim": NODE})
REPORT = _topic("nodes/{node}/report", qos=0, says=dict.fromkeys(_REPORTS, NODE))
INBOX = _topic("nodes/{node}/inbox", qos=0, says=dict.fromkeys(_INBOX, SITE), urgent=True)
OUTPUT = _topic("nodes/{node}/output", qos=0, says={"output": NODE})
NODE_REQUEST = _topic("nodes/{node}/request/{client}", qos=0, says={"request": OPERATORS})
NODE_REPLY = _topic("nodes/{node}/reply/{client}", qos=0, says={"reply": NODE})

TABLE: tuple[Topic, ...] = (
    *(COORDINATOR, HELLO, STOP, REQUEST, EVENTS, REPLY),
    *(CARD, STATUS, BEAT, CLAIM, REPORT, INBOX, OUTPUT, NODE_REQUEST, NODE_REPLY),
)


class Found(msgspec.Struct, frozen=True):
    """A topic that came in: its line of the table, and what it names: a node, a client, both, or nobody."""

    topic: Topic
    node: str = ""
    client: str = ""

    @property
    def name(self) -> str:
        """Whose topic it is: the node's, or else the client's; empty if it is the site's."""
        return self.node or self.client


@functools.lru_cache(maxsize=4096)
def find(below_base: str) -> Found | None:
    """The line of the table that a topic below the base belongs to, or None."""
    if not below_base.startswith(PREFIX):
        return None
    levels = below_base[len(PREFIX) :].split("/")
    for topic in TABLE:
        pattern = topic.pattern.split("/")
        if len(pattern) != len(levels):
            continue
        pairs = list(zip(pattern, levels, strict=True))
        if all(p.startswith("{") or p == level for p, level in pairs):
            return Found(topic, **{p.strip("{}"): level for p, level in pairs if p.startswith("{")})
    return None


def may_say(found: Found, body_type: str, role: Role, name: str, kid: str = "", formerly: tuple[str, ...] = ()) -> bool:
    """True if a peer of this role, name and key may say this there: a node only below its own name, and who asks a
    node only below the id of its own key. Below a name that a node had `formerly` it may say its status, so that it
    can be told its new one.
    """
    roles = found.topic.says.get(body_type)
    if roles is None or role not in roles:
        return False
    if role == "node":
        own = found.node == name or (body_type == "status" and found.node in formerly)
        return own or "{node}" not in found.topic.pattern
    return role == "site" or not found.client or found.client == kid
