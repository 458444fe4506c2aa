"""The embedded broker's memory over hours: 100 messages a second, ten reconnects a minute.

`python -m tests.bench.broker_soak [--minutes 120] [--json FILE]` prints the slope of its own memory by least squares
over the second half, with its standard error, and exits with 1 if messages were lost. The first half is left out:
allocator and caches fill up then.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import threading
import time
from pathlib import Path

import paho.mqtt.client as mqtt

RIG = Path(__file__).parents[1] / "rig/embedded_broker.py"
RATE = 100  # messages a second
RECONNECTS = 10  # a minute; every second one takes a connection over that is still there
SAMPLE = 15.0  # seconds between two looks at the memory


def own_kib(pid: int) -> int:
    """What a process holds for itself alone, in KiB. Not PSS: that falls and rises with other processes' starts."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1])
    raise ValueError(f"nothing is known of process {pid}")


def slope(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: the slope, and its standard error, in y for each x."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - rise * (x - mean_x)) ** 2 for x, y in points)
    return rise, math.sqrt(rest / max(count - 2, 1) / spread)


def client(port: int, name: str) -> mqtt.Client:
    """Connected, its own thread running."""
    made = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, reconnect_on_failure=False)
    made.connect("127.0.0.1", port, keepalive=10)
    made.loop_start()
    return made


class Load:
    """What the broker has to do, until `stop` is set."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent = self.received = self.reconnects = 0
        self.stop = threading.Event()
        self._subscriber = client(port, "subscriber")
        self._subscriber.on_message = self._count
        self._subscriber.subscribe("soak/#", qos=1)
        self._threads = [threading.Thread(target=self._publish), threading.Thread(target=self._come_and_go)]
        for thread in self._threads:
            thread.start()

    def _count(self, *_: object) -> None:
        self.received += 1

    def _publish(self) -> None:
        publisher = client(self._port, "publisher")
        began = time.monotonic()
        while not self.stop.wait(max(0.0, began + self.sent / RATE - time.monotonic())):
            publisher.publish(f"soak/{self.sent % 50}", bytes(64), qos=1, retain=self.sent % 10 == 0)
            self.sent += 1
        publisher.loop_stop()
        publisher.disconnect()

    def _come_and_go(self) -> None:
        before: mqtt.Client | None = None
        while not self.stop.wait(60 / RECONNECTS):
            guest = client(self._port, "guest")
            guest.subscribe("soak/1")
            self.reconnects += 1
            if before is not None:
                before.loop_stop()
            before = guest
            if self.reconnects % 2:
                guest.disconnect()

    def end(self) -> None:
        """Stop, and let what is under way arrive."""
        self.stop.set()
        for thread in self._threads:
            thread.join()
        time.sleep(1)
        self._subscriber.loop_stop()
        self._subscriber.disconnect()


def main() -> int:
    """Run it, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.minutes < 2:
        parser.error("a slope needs 2 minutes")
    broker = subprocess.Popen([sys.executable, str(RIG), "127.0.0.1", "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        load = Load(int(broker.stdout.readline().split()[-1]))
        began = time.monotonic()
        points: list[tuple[float, float]] = []
        while (passed := time.monotonic() - began) < options.minutes * 60:
            points.append((passed / 3600, own_kib(broker.pid)))
            print(f"{passed / 60:7.1f} min  {points[-1][1] / 1024:6.2f} MiB  {load.received} received", flush=True)
            time.sleep(SAMPLE)
        load.end()
    finally:
        broker.terminate()
        broker.wait()
    half = points[len(points) // 2 :]
    rise, error = slope(half)
    figures = {
        "minutes": options.minutes,
        "sent": load.sent,
        "received": load.received,
        "reconnects": load.reconnects,
        "first_mib": round(points[0][1] / 1024, 2),
        "last_mib": round(points[-1][1] / 1024, 2),
        "slope_kib_per_hour": round(rise, 1),
        "standard_error_kib_per_hour": round(error, 1),
    }
    print(json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(figures))
    return 0 if load.received >= load.sent else 1


if __name__ == "__main__":
    sys.exit(main())
