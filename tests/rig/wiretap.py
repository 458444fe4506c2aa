"""A plain MQTT client that takes down everything on a broker; of EdgePanda it knows only the shape of envelopes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt

PATIENCE = 20.0


@dataclass(frozen=True)
class Heard:
    """One message, as it came."""

    topic: str
    retained: bool
    payload: bytes

    @property
    def envelope(self) -> dict[str, Any]:
        """The parsed payload."""
        found: dict[str, Any] = json.loads(self.payload)
        return found

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What the envelope holds."""
        found: list[dict[str, Any]] = self.envelope["body"]
        return found


class Wiretap:
    """Use it as a context manager: it is subscribed once entered."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.heard: list[Heard] = []
        self._news = threading.Condition()
        self._subscribed = threading.Event()
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="wiretap")
        self._client.on_connect = lambda *_: self._client.subscribe("#", qos=1)
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._take
        self._where = (str(parts.hostname), int(parts.port or 1883))

    def __enter__(self) -> Self:
        self._client.connect(*self._where)
        self._client.loop_start()
        assert self._subscribed.wait(PATIENCE), "the broker did not subscribe us"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _take(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        with self._news:
            self.heard.append(Heard(message.topic, message.retain, bytes(message.payload)))
            self._news.notify_all()

    def wait_for(self, wanted: Callable[[Heard], bool]) -> None:
        """Returns once such a message was heard."""
        with self._news:
            came = self._news.wait_for(lambda: any(wanted(one) for one in self.heard), timeout=PATIENCE)
        assert came, "not heard; only " + ", ".join(one.topic for one in self.heard)


def say_again(url: str, heard: list[Heard]) -> int:
    """Publish all of it once more, byte for byte and in order, none of it retained; gives the number of messages."""
    parts = urlsplit(url)
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.max_queued_messages_set(0)
    client.connect(str(parts.hostname), int(parts.port or 1883))
    client.loop_start()
    for sent in [client.publish(one.topic, one.payload, qos=1) for one in heard]:
        sent.wait_for_publish(30)
    client.disconnect()
    client.loop_stop()
    return len(heard)
