"""What the machine does bare: the measures that the product's figures are held against."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edgepanda.trust.identity import Identity, verify

Seconds = list[float]


def timed(action: Callable[[], object], times: int, pause: float = 0.0) -> Seconds:
    """How long each of so many runs took, sorted.

    With a pause before each (seconds) as a lone task has it: every part finds its processor asleep and its caches cold.
    """
    taken = []
    for _ in range(times):
        if pause:
            time.sleep(pause)
        began = time.perf_counter()
        action()
        taken.append(time.perf_counter() - began)
    return sorted(taken)


def quantile(taken: Seconds, share: float) -> float:
    """The value below which this share lies."""
    return taken[min(len(taken) - 1, int(len(taken) * share))]


def signature(times: int, pause: float) -> tuple[float, float]:
    """Medians of a signature over 500 bytes and of its check, in seconds."""
    identity, text = Identity.create(), b"x" * 500
    made = identity.sign(text)
    signing = timed(lambda: identity.sign(text), times, pause)
    checking = timed(lambda: verify(identity.public, text, made), times, pause)
    return quantile(signing, 0.5), quantile(checking, 0.5)


def commit(folder: Path, times: int, pause: float) -> float:
    """Median of one 130-byte row in SQLite's WAL with synchronous=FULL, in seconds."""
    connection = sqlite3.connect(folder / f"bare-{pause}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (a TEXT)")
    taken = timed(lambda: connection.execute("INSERT INTO t VALUES (?)", ("x" * 130,)), times, pause)
    connection.close()
    return quantile(taken, 0.5)


def interpreter(times: int = 15) -> float:
    """Median start and end of `python -c pass`, in seconds."""
    return program([sys.executable, "-c", "pass"], times)


def program(argv: list[str], times: int = 15) -> float:
    """Median start and end of a program, in seconds."""
    return quantile(timed(lambda: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL), times), 0.5)


def pipe(times: int, pause: float) -> float:
    """Median round trip of 64 bytes through pipes to another Python process, in seconds."""
    echo = "import os\nwhile got := os.read(0, 64): os.write(1, got)"
    with subprocess.Popen([sys.executable, "-c", echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        writing, reading = process.stdin.fileno(), process.stdout.fileno()

        def once() -> None:
            os.write(writing, b"x" * 63 + b"\n")
            os.read(reading, 64)

        taken = timed(once, times, pause)
        process.stdin.close()
    return quantile(taken, 0.5)


ECHO = """
import sys
sys.path.insert(0, {here!r})
from tests.bench.bare import echo
echo({host!r}, {port})
"""


def round_trip(host: str, port: int, times: int, pause: float) -> tuple[float, float]:
    """Median and 99th percentile of 64 bytes at QoS 1 from one bare paho process to another and back, in seconds."""
    code = ECHO.format(here=str(Path(__file__).parents[2]), host=host, port=port)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        if other.stdout is None:
            raise RuntimeError("no pipe")
        other.stdout.readline()
        came = threading.Event()
        client = _client(host, port, lambda *_: came.set())
        _subscribed(client, "bare/back")
        client.loop_start()

        def once() -> None:
            came.clear()
            client.publish("bare/there", b"x" * 64, qos=1)
            if not came.wait(5):
                raise RuntimeError("the bare round trip was lost")

        time.sleep(0.2)
        timed(once, 100)
        taken = timed(once, times, pause)
        client.loop_stop()
        other.terminate()
    return quantile(taken, 0.5), quantile(taken, 0.99)


def echo(host: str, port: int) -> None:
    """The other process of `round_trip`."""
    client = _client(host, port, lambda c, _u, m: c.publish("bare/back", m.payload, qos=1))
    client.on_subscribe = lambda *_: print("ready", flush=True)
    _subscribed(client, "bare/there")
    client.loop_forever()


def _client(host: str, port: int, on_message: Callable[..., object]) -> mqtt.Client:
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_socket_open = lambda _c, _u, sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.on_message = on_message
    client.connect(host, port)
    return client


def _subscribed(client: mqtt.Client, topic: str) -> None:
    client.subscribe(topic, qos=1)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder on the disk that the product's files would be on."""
    return tempfile.TemporaryDirectory(prefix="edgepanda-bench-", dir=os.environ.get("EDGEPANDA_BENCH_DIR"))
