"""What a stranger on the broker may send: payloads made from a seed, most of them from what was really said there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from edgepanda.model.ids import new_id
from edgepanda.trust.identity import Identity
from edgepanda.wire import envelope, messages, topics
from tests.rig.wiretap import Heard

LARGEST = envelope.LARGEST


class Shot(NamedTuple):
    """One message: its kind, the topic below the base, the payload, and how."""

    kind: str
    topic: str
    payload: bytes
    retain: bool = False
    qos: int = 0


class Target(NamedTuple):
    """Whom it is meant for: names for the levels of topics, and the site."""

    site: str
    base: str
    nodes: tuple[str, ...]
    clients: tuple[str, ...]


class Stranger:
    """Makes shots. `heard` is what was recorded; `members` are keys of the site, which must not say everything."""

    def __init__(self, seed: int, target: Target, heard: Sequence[Heard], members: Sequence[Identity]) -> None:
        self._rng = random.Random(seed)
        self._target, self._members = target, members
        self._heard = [each for each in heard if each.topic.startswith(target.base + "/")]
        self._nobody = Identity.create()
        self._makers: tuple[tuple[int, Callable[[], Shot]], ...] = (
            (10, self._bytes),
            (10, self._damaged),
            (10, self._reordered),
            (10, self._replayed),
            (10, self._moved),
            (10, self._wrong_types),
            (6, self._nested),
            (6, self._numbers),
            (6, self._wrong_text),
            (4, self._empty),
            (10, self._unknown_signer),
            (10, self._wrong_topic),
            (6, self._long_names),
            (4, self._retained),
            (2, self._too_large),
        )

    def shot(self) -> Shot:
        """The next one."""
        weights = [weight for weight, _ in self._makers]
        maker = self._rng.choices([maker for _, maker in self._makers], weights)[0]
        return maker()

    def _make(self, payload: bytes, topic: str = "", *, retain: bool | None = None) -> Shot:
        chosen = self._topic() if topic == "" else topic
        kept = self._rng.random() < 0.1 if retain is None else retain
        kind = ""
        return Shot(kind, chosen, payload, kept, self._rng.randrange(2))

    def _topic(self) -> str:
        rng, line = self._rng, self._rng.choice(topics.TABLE)
        node = rng.choice([*self._target.nodes, *self._target.nodes, "nobody", "desk2", "ÄÖ"])
        client = rng.choice([*self._target.clients, "nobody"])
        return line.at(node=node, client=client)

    def _envelope(self) -> tuple[str, bytes]:
        """A recorded one, and its topic below the base."""
        each = self._rng.choice(self._heard)
        return each.topic.removeprefix(self._target.base + "/"), each.payload

    # the kinds

    def _bytes(self) -> Shot:
        return self._make(self._rng.randbytes(self._rng.choice([1, 2, 30, 500, 5000])))._replace(kind="bytes")

    def _damaged(self) -> Shot:
        topic, payload = self._envelope()
        rng, at = self._rng, self._rng.randrange(1, max(2, len(payload)))
        flipped = bytearray(payload)
        if flipped:
            flipped[at % len(flipped)] ^= 1 << rng.randrange(8)
        bad = rng.choice(
            [payload[:at], payload[at:], payload * 2, payload + b"}", bytes(flipped), b"[" + payload + b"]"]
        )
        return self._make(bad, topic)._replace(kind="damaged")

    def _reordered(self) -> Shot:
        topic, payload = self._envelope()
        try:
            members = list(json.loads(payload).items())
        except (ValueError, AttributeError):
            members = [("body", [])]
        self._rng.shuffle(members)
        if members and self._rng.random() < 0.3:
            members.append(self._rng.choice(members))
        text = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members) + "}"
        return self._make(text.encode(), topic)._replace(kind="reordered")

    def _replayed(self) -> Shot:
        topic, payload = self._envelope()
        return self._make(payload, topic)._replace(kind="replayed")

    def _moved(self) -> Shot:
        return self._make(self._envelope()[1])._replace(kind="moved")

    def _wrong_types(self) -> Shot:
        rng = self._rng
        odd: list[Any] = [None, True, -1, 1.5, "", "x", [], {}, [[]], {"v": 1}, ["a", 1], {"id": {}}]
        whole = {name: rng.choice(odd) for name in ("v", "site", "kid", "id", "sig", "body")}
        if rng.random() < 0.7:
            whole |= {"v": 1, "site": self._target.site, "kid": rng.choice(self._members).kid}
        payload = json.dumps(rng.choice([whole, *odd])).encode()
        return self._make(payload)._replace(kind="wrong types")

    def _nested(self) -> Shot:
        rng = self._rng
        open_, close = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
        depth = rng.choice([33, 1000, 10_000])
        deep = open_ * depth + b"1" + (close * depth if rng.random() < 0.8 else b"")
        deep = deep[: LARGEST - 2000]
        if rng.random() < 0.5:
            return self._make(deep)._replace(kind="nested")
        topic = self._topic()
        return self._make(self._signed(self._nobody_or_member(), topic, deep), topic)._replace(kind="nested")

    def _numbers(self) -> Shot:
        rng = self._rng
        number = rng.choice(
            ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "-" + "9" * 30, "1" + "0" * 5000, "-0"]
        )
        head = rng.choice(["epoch", "incarnation", "sequence", "attempt", "until_ms", "id", "online"])
        body = f'{{"id":"{new_id()}","type":"{rng.choice(sorted(messages.ALL))}","{head}":{number}}}'.encode()
        topic = self._topic()
        return self._make(self._signed(self._nobody_or_member(), topic, body), topic)._replace(kind="numbers")

    def _wrong_text(self) -> Shot:
        bad = self._rng.choice(
            [b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b'"\\ud800"', b"\0", "\u202e\u0007".encode()]
        )
        body = b'{"id":"' + bad + b'","type":"' + bad + b'"}'
        topic = self._topic()
        payload = self._rng.choice([bad, body, self._signed(self._nobody_or_member(), topic, body)])
        return self._make(payload, topic)._replace(kind="wrong text")

    def _empty(self) -> Shot:
        return self._make(b"")._replace(kind="empty")

    def _unknown_signer(self) -> Shot:
        topic, payload = self._envelope()
        try:
            bodies = [json.dumps(body).encode() for body in json.loads(payload)["body"]]
        except (ValueError, KeyError, TypeError):
            bodies = [b"{}"]
        return self._make(self._signed(self._nobody, topic, *bodies), topic)._replace(kind="unknown signer")

    def _wrong_topic(self) -> Shot:
        """A right signature of a member, for a body that it may not say there, or for another topic."""
        topic, payload = self._envelope()
        who = self._rng.choice(self._members)
        try:
            bodies = [json.dumps(body).encode() for body in json.loads(payload)["body"]]
        except (ValueError, KeyError, TypeError):
            bodies = [b"{}"]
        elsewhere = self._topic()
        if topics.STOP.at() in (topic, elsewhere):  # there a member may
            elsewhere = topics.BEAT.at(node="nobody")
        signed_for = self._rng.choice([topic, elsewhere])
        return self._make(self._signed(who, signed_for, *bodies), elsewhere)._replace(kind="wrong topic")

    def _long_names(self) -> Shot:
        """Levels, key ids and types as long as MQTT and an envelope allow."""
        rng, long = self._rng, "n" * self._rng.choice([40, 1000, 30_000])
        line = rng.choice([topics.STATUS, topics.CARD, topics.CLAIM, topics.REPORT, topics.STOP])
        name = f"{long}{rng.randrange(10_000)}"
        head = {"v": 1, "site": self._target.site, "kid": name, "id": name[:100], "sig": "", "body": []}
        shot = self._make(json.dumps(head).encode(), line.at(node=rng.choice([name, self._target.nodes[0]])))
        return shot._replace(kind="long names", retain=False)

    def _retained(self) -> Shot:
        topic, payload = self._envelope()
        return self._make(payload, topic, retain=True)._replace(kind="retained")

    def _too_large(self) -> Shot:
        size = self._rng.choice([LARGEST + 1, LARGEST + 1, LARGEST + 1, 1 << 20])
        filling = self._rng.choice([b"x", b"[", b'{"a":', b"\0"])
        payload = (filling * (size // len(filling) + 1))[:size]
        return self._make(payload, retain=False)._replace(kind="too large", qos=0)

    def _nobody_or_member(self) -> Identity:
        return self._rng.choice([self._nobody, *self._members])

    def _signed(self, who: Identity, topic: str, *bodies: bytes) -> bytes:
        return envelope.seal(who, site=self._target.site, topic=topic, envelope_id=new_id(), bodies=bodies)


def garbage(rng: random.Random) -> bytes:
    """Bytes that are no MQTT, or MQTT that nobody may say."""
    connect = b"\x10\x10\0\4MQTT\4\2\0\0\0\4junk"
    return rng.choice(
        [
            rng.randbytes(rng.choice([1, 7, 300])),
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x10\xff\xff\xff\xff\xff",
            b"\x10\xff\xff\xff\x7f",  # 256 MiB are announced
            connect[: rng.randrange(1, len(connect))],
            connect + b"\x30\xff\xff\xff\x7f\0\1a",
            connect + b"\x30\x02\xff\xff",
            connect + b"\x30\x05\0\3a/#x",
            connect + b"\x82\x02\0\0",
            connect + b"\x82\x07\0\1\0\2\xff\xfe\0",
            connect + connect,
            connect + bytes([rng.randrange(256), 0]),
            b"\x10\x0c\0\4MQTT\x04\xff\0\0\0\0",
            b"\x10\x0c\0\4MQTT\x63\x02\0\0\0\0",
        ]
    )
