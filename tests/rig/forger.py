"""Says anything on a broker, under any key that a test holds, and hears the bodies that others say."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edgepanda.model.ids import new_id
from edgepanda.trust.identity import Identity
from edgepanda.wire import envelope

PATIENCE = 10.0  # seconds

Body = dict[str, Any]


class Said(NamedTuple):
    """One body, and the topic below the base that it came on."""

    topic: str
    body: Body


class Forger:
    """A context manager; topics are those below the base."""

    def __init__(self, url: str, *, base: str, site: str) -> None:
        self._parts, self._base, self._site = urlsplit(url), base, site
        self._heard: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._subscribed = threading.Event()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = lambda c, *_: c.subscribe(
            [(f"{base}/v1/clients/+/reply", 1), (f"{base}/v1/nodes/#", 1)]
        )
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._take

    def __enter__(self) -> Self:
        self._client.connect(str(self._parts.hostname), int(self._parts.port or 1883))
        self._client.loop_start()
        if not self._subscribed.wait(PATIENCE):
            raise RuntimeError("the broker does not subscribe us")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        try:
            bodies = json.loads(message.payload)["body"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return  # our own
        for body in bodies if isinstance(bodies, list) else []:
            if isinstance(body, dict):
                self._heard.put(Said(message.topic.removeprefix(f"{self._base}/"), body))

    def sealed(self, who: Identity, topic: str, *bodies: bytes, site: str = "") -> bytes:
        """A payload with these bodies, rightly signed for this topic."""
        return envelope.seal(who, site=site or self._site, topic=topic, envelope_id=new_id(), bodies=bodies)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """The bare payload; the broker has it when this returns."""
        self._client.publish(f"{self._base}/{topic}", payload, qos=1, retain=retain).wait_for_publish(PATIENCE)

    def say(self, who: Identity, topic: str, *bodies: Body | bytes) -> None:
        """Bodies, rightly signed."""
        raw = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
        self.publish(topic, self.sealed(who, topic, *raw))

    def wait_for(self, wanted: Callable[[Said], bool]) -> Said:
        """The next body that is wanted; what came before it is forgotten."""
        while True:
            said = self._heard.get(timeout=PATIENCE)  # queue.Empty fails the test
            if wanted(said):
                return said

    def replies(self, ids: set[str]) -> dict[str, Body]:
        """The reply to each of these requests."""
        found: dict[str, Body] = {}
        while missing := ids - set(found):
            try:
                body = self._heard.get(timeout=PATIENCE).body
            except queue.Empty:
                raise AssertionError(f"no reply to {missing}") from None
            if body.get("type") == "reply" and body["id"] in ids:
                found[body["id"]] = body
        return found
