"""The bus: typed, signed bodies over the link.

Bodies for one topic that are sent in one turn of the loop share an envelope. `deliver` repeats a body until it is
acknowledged by its id. What comes in is checked in this order: size, envelope, signature, role and name, type; what
fails is dropped, counted by code, and logged once for each code and sender.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress
from edgepanda.model.ids import new_id
from edgepanda.trust.identity import Identity
from edgepanda.trust.peers import Directory, Peer
from edgepanda.wire import envelope, messages, topics
from edgepanda.wire.envelope import EnvelopeError
from edgepanda.wire.link import Link, Will
from edgepanda.wire.topics import Topic

log = logging.getLogger("edgepanda.wire")

LONGEST_RESEND = 30.0  # seconds; the first repetition comes after one
MOST_PENDING = 10_000  # bodies that wait for an acknowledgement
ROOM = envelope.LARGEST - 512  # for bodies in one envelope
MOST_LOGGED = 1_000  # different refusals that are logged
LONGEST_LOGGED = 400  # characters of one
LONGEST_TOPIC = 200  # characters below the base; ours have at most 80, MQTT allows 65,535


class Message(msgspec.Struct, frozen=True):
    """One body that came in, and how."""

    body: Any
    sender: Peer
    topic: Topic
    name: str  # the node or client that the topic names
    retained: bool
    client: str = ""  # the client that it names, beside a node too


class Refused(msgspec.Struct, frozen=True):
    """A body of a known sender that could not be taken: of an unknown type, or malformed."""

    id: str
    sender: Peer
    topic: Topic
    error: EdgePandaError


class _Head(msgspec.Struct):
    id: str
    type: str


class _Pending:
    __slots__ = ("body", "due", "topic", "wait")

    def __init__(self, topic: str, body: bytes, due: float) -> None:
        self.topic = topic
        self.body = body
        self.wait = 1.0
        self.due = due


_DIGITS = bytes(ord("0") if chr(byte).isdigit() and byte < 128 else ord(" ") for byte in range(256))
_LONG_NUMBER = b"0" * 19  # once all digits read as noughts
_head = msgspec.json.Decoder(_Head).decode
_encode = msgspec.json.Encoder().encode
_decoders = {name: msgspec.json.Decoder(kind).decode for name, kind in messages.ALL.items()}

Handler = Callable[[Message], None]


def _client_id(process: str, kid: str, several: bool) -> str:
    """At most 23 characters; MQTT lets a broker refuse more."""
    return f"ep{process}-{kid[:8]}{new_id()[-11:]}" if several else f"ep{process}-{kid}"


class Bus:
    """A peer's place on the broker. Made and used on one asyncio loop."""

    def __init__(
        self,
        address: BrokerAddress,
        identity: Identity,
        directory: Directory,
        *,
        site: str,
        process: str,
        several: bool = False,
        base: str = "edgepanda",
        will: Callable[[], tuple[Topic, dict[str, str], messages.Body] | None] = lambda: None,
        on_up: Callable[[], None] = lambda: None,
        on_down: Callable[[], None] = lambda: None,
        on_refused: Callable[[Refused], None] = lambda _refused: None,
    ) -> None:
        """`process` is one letter that tells apart processes that share a key, as in the client id.

        `several`: one key is connected more than once, as a person's commands are; else the newest ends the others.
        """
        self.identity = identity
        self.directory = directory
        self.site = site
        self.counts: Counter[str] = Counter()
        self._base = base + "/"
        self._make_will = will
        self._on_up, self._on_down, self._on_refused = on_up, on_down, on_refused
        self._handlers: dict[str, tuple[Handler, dict[str, str]]] = {}  # by pattern; and the names that it is for
        self._plain: dict[str, Callable[[bytes], None]] = {}  # by pattern: who takes what nobody has signed
        self._subscriptions: list[tuple[str, int]] = []
        self._outgoing: dict[str, list[bytes]] = {}
        self._flushing = False
        self._pending: dict[str, _Pending] = {}
        self._resending: asyncio.TimerHandle | None = None
        self._logged: set[tuple[str, str]] = set()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self.link = Link(
            address,
            _client_id(process, identity.kid, several),
            subscriptions=self._subscriptions,
            will=self._will,
            on_message=self._take,
            on_up=self._went_up,
            on_down=self._went_down,
        )

    # life

    def subscribe(
        self, topic: Topic, handler: Handler, *, plain: Callable[[bytes], None] | None = None, **names: str
    ) -> None:
        """Take what is said on the topic: of all nodes and clients, or of the one that is named. Before `start`.

        `plain`: on a topic where anyone is heard, it takes what is no envelope of a known peer.
        """
        if plain is not None and topic.plain:
            self._plain[topic.pattern] = plain
        self._subscriptions.append((self._base + topic.some(**names), topic.qos))
        self._handlers[topic.pattern] = (handler, names)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._task = asyncio.create_task(self.link.run())

    async def stop(self) -> None:
        """Send what is queued, say goodbye, end."""
        self._flush()
        if self.link.up:
            await self.link.flush()
        self.link.close()
        if self._resending is not None:
            self._resending.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def up(self) -> bool:
        """True while connected and subscribed."""
        return self.link.up

    # out

    def send(self, topic: Topic, body: messages.Body, **names: str) -> None:
        """Say it once. Without a connection it is dropped. Raises `EnvelopeError` (`oversized`)."""
        self._queue(topic.at(**names), _encoded(body))

    def deliver(self, topic: Topic, body: messages.Body, **names: str) -> None:
        """Say it, and again after 1, 2, 4 ... 30 s, until `settle` is called with its id."""
        if len(self._pending) >= MOST_PENDING:
            raise EdgePandaError("too much waits for an answer", code="queue_full", where=topic.pattern)
        where, encoded = topic.at(**names), _encoded(body)
        self._pending[body.id] = _Pending(where, encoded, self._loop.time() + 1.0)
        self._queue(where, encoded)
        self._schedule_resend()

    def settle(self, ids: Iterable[str]) -> None:
        """These were acknowledged: stop repeating them."""
        for body_id in ids:
            self._pending.pop(body_id, None)

    def waits_for(self, body_id: str) -> bool:
        """True while a delivered body is not settled."""
        return body_id in self._pending

    def retain(self, topic: Topic, body: messages.Body, **names: str) -> None:
        """Say it on a retained topic, in an envelope of its own."""
        where = topic.at(**names)
        self._publish(topic, where, [_encoded(body)], retain=True)

    def say_plain(self, topic: Topic, text: str, **names: str) -> None:
        """Say it without a signature, on a retained topic where anyone is heard."""
        self.link.publish(self._base + topic.at(**names), text.encode(), qos=topic.qos, retain=topic.retain)

    def clear(self, topic: Topic, **names: str) -> None:
        """Take away what is retained there."""
        self.link.publish(self._base + topic.at(**names), b"", qos=topic.qos, retain=True)

    def _publish(self, topic: Topic, where: str, bodies: list[bytes], *, retain: bool) -> None:
        self.link.publish(self._base + where, self._seal(where, bodies), qos=topic.qos, retain=retain)

    def _queue(self, where: str, encoded: bytes) -> None:
        if not self.link.up:
            return
        self._outgoing.setdefault(where, []).append(encoded)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        outgoing, self._outgoing = self._outgoing, {}
        queued = [(found.topic, where, outgoing[where]) for where in outgoing if (found := topics.find(where))]
        for topic, where, bodies in sorted(queued, key=lambda item: not item[0].urgent):
            for packet in _packed(bodies):
                self._publish(topic, where, packet, retain=False)
            self.link.write_now()  # it travels while the next one is signed

    def _seal(self, where: str, bodies: list[bytes]) -> bytes:
        return envelope.seal(self.identity, site=self.site, topic=where, envelope_id=new_id(), bodies=bodies)

    def _schedule_resend(self) -> None:
        if self._resending is None and self._pending:
            self._resending = self._loop.call_later(0.5, self._resend)

    def _resend(self) -> None:
        self._resending = None
        now = self._loop.time()
        for pending in self._pending.values():
            if pending.due <= now and self.link.up:
                pending.wait = min(pending.wait * 2, LONGEST_RESEND)
                pending.due = now + pending.wait
                self._queue(pending.topic, pending.body)
        self._schedule_resend()

    def _will(self) -> Will | None:
        made = self._make_will()
        if made is None:
            return None
        topic, names, body = made
        where = topic.at(**names)
        return Will(self._base + where, self._seal(where, [_encoded(body)]))

    def _went_up(self) -> None:
        now = self._loop.time()
        for pending in self._pending.values():  # whatever was said into the void is due at once
            pending.due = min(pending.due, now)
        self._on_up()
        if self._resending is not None:
            self._resending.cancel()
        self._resend()

    def _went_down(self) -> None:
        self._outgoing.clear()
        self._on_down()

    # in

    def _take(self, topic: str, payload: bytes, retained: bool) -> None:
        below = topic[len(self._base) :]
        ours = topic.startswith(self._base) and len(below) <= LONGEST_TOPIC  # what is found is remembered
        found = topics.find(below) if ours else None
        handler, names = self._handlers.get(found.topic.pattern, (None, {})) if found else (None, {})
        if found is None or handler is None or any(getattr(found, kind) != name for kind, name in names.items()):
            self.counts["unknown_topic"] += 1  # some brokers bring what others have subscribed to
            return
        if not payload:
            self.counts["empty"] += 1  # a cleared retained message: nothing here
            return
        if retained and not found.topic.retain:
            self._drop(EnvelopeError("retained, where nothing may be", code="retained", where=below), below)
            return
        try:
            opened = envelope.unseal(payload, site=self.site, topic=below, key_of=self.directory.key)
        except EnvelopeError as error:
            self._take_plain(payload, found, error, below)
            return
        sender = self.directory.get(opened.kid)
        if sender is None:
            return
        for raw in opened.bodies:
            self._take_body(raw, found, sender, retained, handler)

    def _take_plain(self, payload: bytes, found: topics.Found, error: EnvelopeError, below: str) -> None:
        take = self._plain.get(found.topic.pattern)
        if take is None:
            self._drop(error, below)
            return
        try:
            take(payload)
        except Exception:
            self.counts["handler_failed"] += 1
            log.exception("a plain message on %s could not be handled", below)

    def _take_body(self, raw: msgspec.Raw, found: topics.Found, sender: Peer, retained: bool, handler: Handler) -> None:
        try:
            head = _head(raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            self._drop(EnvelopeError(f"a body without id and type: {error}", where=found.topic.pattern), sender.kid)
            return
        try:
            body = self._decoded(raw, head, found, sender)
        except EdgePandaError as error:
            self._drop(error, sender.kid)
            if error.code in ("unsupported", "malformed"):
                refused = Refused(head.id, sender, found.topic, error)
                self._call(lambda: self._on_refused(refused), head.type, sender)
            return
        message = Message(body, sender, found.topic, found.name, retained, found.client)
        self._call(lambda: handler(message), head.type, sender)

    def _call(self, handle: Callable[[], None], body_type: str, sender: Peer) -> None:
        try:
            handle()
        except Exception:
            self.counts["handler_failed"] += 1
            log.exception("a %s from %s could not be handled", body_type, sender.name)

    def _decoded(self, raw: msgspec.Raw, head: _Head, found: topics.Found, sender: Peer) -> messages.Body:
        decode = _decoders.get(head.type)
        if decode is None:
            raise EnvelopeError(f"unknown type {head.type!r}", code="unsupported", where=found.topic.pattern)
        if not topics.may_say(found, head.type, sender.role, sender.name, sender.kid, sender.formerly):
            raise EnvelopeError(
                f"{sender.name} ({sender.role}) may not say {head.type!r}",
                code="not_allowed",
                where=found.topic.pattern,
            )
        if not _is_plain(bytes(raw)):
            raise EnvelopeError(f"{head.type}: too deeply nested, or a number too large", where=found.topic.pattern)
        try:
            body: messages.Body = decode(raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise EnvelopeError(f"{head.type}: {error}", where=found.topic.pattern) from error
        return body

    def _drop(self, error: EdgePandaError, sender: str) -> None:
        self.counts[error.code] += 1
        key = (error.code, sender)
        if key not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(key)
            log.warning("dropped a message of %s: %s [%s]", sender, _short(str(error)), error.code)


def _short(text: str) -> str:
    """What a stranger has made as long as he likes, for a log."""
    return text if len(text) <= LONGEST_LOGGED else f"{text[: LONGEST_LOGGED // 2]} ... {text[-LONGEST_LOGGED // 2 :]}"


def _is_plain(raw: bytes) -> bool:
    """As `envelope.plain`, and looks closely only where something could be wrong."""
    if raw.count(b"[") + raw.count(b"{") <= envelope.DEEPEST and _LONG_NUMBER not in raw.translate(_DIGITS):
        return True
    try:
        return envelope.plain(msgspec.json.decode(raw))
    except (msgspec.MsgspecError, RecursionError):
        return False


def _encoded(body: messages.Body) -> bytes:
    encoded = _encode(body)
    if len(encoded) > ROOM:
        raise EnvelopeError(
            f"a {type(body).__struct_config__.tag} of {len(encoded)} bytes; {ROOM} are allowed",
            code="oversized",
            where="body",
        )
    return encoded


def _packed(bodies: list[bytes]) -> Iterable[list[bytes]]:
    """The bodies in as few envelopes as their size allows, in order."""
    packet: list[bytes] = []
    size = 0
    for body in bodies:
        if packet and size + len(body) > ROOM:
            yield packet
            packet, size = [], 0
        packet.append(body)
        size += len(body) + 1
    if packet:
        yield packet
