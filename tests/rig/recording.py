"""Everything that is said on a broker, byte for byte, and saying it again."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion


class Said(NamedTuple):
    """One message."""

    topic: str
    payload: bytes


class Recording:
    """Records all below a base, as a context manager; `again` publishes it all once more."""

    def __init__(self, url: str, base: str) -> None:
        self.said: list[Said] = []
        self._parts, self._base = urlsplit(url), base
        self._subscribed = threading.Event()
        self._client = self._make()

    def _make(self) -> mqtt.Client:
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        client.on_connect = lambda c, *_: c.subscribe(f"{self._base}/#", qos=1)
        client.on_subscribe = lambda *_: self._subscribed.set()
        client.on_message = lambda _c, _u, m: self.said.append(Said(m.topic, bytes(m.payload)))
        return client

    def __enter__(self) -> Self:
        self._client.connect(str(self._parts.hostname), int(self._parts.port or 1883))
        self._client.loop_start()
        if not self._subscribed.wait(10):
            raise RuntimeError("the recording has not begun")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def again(self) -> int:
        """Publish every recorded message again, in order; gives their number. Not while recording."""
        client = mqtt.Client(CallbackAPIVersion.VERSION2)
        client.max_queued_messages_set(0)
        client.connect(str(self._parts.hostname), int(self._parts.port or 1883))
        client.loop_start()
        infos = [client.publish(topic, payload, qos=1) for topic, payload in self.said]
        for info in infos:
            info.wait_for_publish(30)
        client.disconnect()
        client.loop_stop()
        return len(infos)
