"""How long an emergency stop takes to the driver's `safe`.

    python -m tests.bench.stop [--times 50]

Prints a table; no figure passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edgepanda.cli.local import LocalNode
from edgepanda.client import AsyncClient
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from tests.bench import bare
from tests.bench.run import PAUSE, children, ms
from tests.rig.brokers import Mosquitto
from tests.rig.site import COORDINATOR, Site

PATIENCE = 20.0  # seconds
DRIVER = Path(__file__).parents[1] / "rig/stoppable.py"

NODE = f"""
[node]
name = "desk"

[devices.arm]
driver = "{DRIVER}"
file = "{{file}}"
"""

Stop = Callable[[], Awaitable[Any]]


class Bench:
    """A site with one node, whose device notes when it is safe."""

    def __init__(self, site: Site, client: AsyncClient, file: Path) -> None:
        self._site, self._client, self._file = site, client, file
        self._node = LocalNode(site.state("desk") / "run/node.sock")

    async def taken(self, stop: Stop) -> float:
        """Seconds from the beginning of `stop` until the device has begun to be safe; then all is released."""
        before = self._lines()
        began = time.monotonic()
        stopping = asyncio.ensure_future(stop())
        async with asyncio.timeout(PATIENCE):
            while len(lines := self._lines()) == len(before):  # noqa: ASYNC110 another process sets no event of ours
                await asyncio.sleep(0.001)
        await stopping
        await self._release()
        return float(lines[len(before)]) - began

    async def hung(self, stop: Stop) -> float:
        """The same, with the driver's host stopped by SIGSTOP."""
        host = children(self._site.pid("desk"))[0]
        os.kill(host, signal.SIGSTOP)
        return await self.taken(stop)

    def _lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    async def _release(self) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self._client.stops()
                places = [found["site"], *found["nodes"].values()]
                wanted = {place["kid"]: [each["id"] for each in place["stops"]] for place in places if place["stops"]}
                if wanted:
                    await self._client.release(wanted)
                elif not (await self._node.request("status", {}, within=5))["stops"]:
                    break
                await asyncio.sleep(0.05)
        await self._client.run("stoppable.hold", device="arm")


def publisher(site: Site) -> tuple[mqtt.Client, str]:
    """A program without a key, connected; and the topic."""
    address = site.loaded[COORDINATOR].broker_address()
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_socket_open = lambda _c, _u, sock: sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.connect(address.host, address.port)
    client.loop_start()
    return client, f"{site.loaded[COORDINATOR].config.site.base}/v1/site/stop"


async def measure(folder: Path, broker: Mosquitto, times: int) -> list[str]:
    """The lines of the table."""
    trip, trip99 = bare.round_trip("127.0.0.1", broker.port, 300, PAUSE)
    file, key = folder / "safe", folder / "operator.key"
    with Site(folder / "site", broker.url, {"desk": NODE.format(file=file)}) as site:
        async with site.client() as client:
            await site.claiming(client, "desk")
            person = Identity.load_or_create(key)
            await client.add_peer(Peer(key=encode_key(person.public), name="second", role="operator"))
            bench = Bench(site, client, file)
            await client.run("stoppable.hold", device="arm")
            stranger, topic = publisher(site)

            async def plain() -> None:
                stranger.publish(topic, b"stop", qos=1)

            async def command() -> None:
                config = str(site.loaded[COORDINATOR].path)
                words = [sys.executable, "-m", "edgepanda", "stop", "--config", config]
                environment = {**os.environ, "EDGEPANDA_KEY": str(key)}
                await asyncio.to_thread(
                    subprocess.run,
                    words,
                    env=environment,
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )

            few = max(3, times // 5)
            rows = [
                ("plain MQTT message to `safe`", sorted([await bench.taken(plain) for _ in range(times)]), "3 trips"),
                (
                    "signed by a connected client to `safe`",
                    sorted([await bench.taken(client.stop) for _ in range(times)]),
                    "3 trips",
                ),
                (
                    "`edgepanda stop`, its own start included, to `safe`",
                    sorted([await bench.taken(command) for _ in range(few)]),
                    "",
                ),
                (
                    "plain message, host stopped (SIGSTOP), to a fresh host's `safe`",
                    sorted([await bench.hung(plain) for _ in range(few)]),
                    "500 ms",
                ),
            ]
            stranger.disconnect()
            stranger.loop_stop()
    lines = [f"Raw round trip, alone: {ms(trip)} (p99 {ms(trip99)}).", ""]
    lines += ["| row | p50 | worst | p50 in raw round trips | runs | reach |", "|---|---|---|---|---|---|"]
    for name, taken, reach in rows:
        p50 = bare.quantile(taken, 0.5)
        lines.append(f"| {name} | {ms(p50)} | {ms(taken[-1])} | {p50 / trip:.1f} | {len(taken)} | {reach} |")
    return lines


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50, help="runs of each row; a fifth for the slow ones")
    options = parser.parse_args()
    with bare.scratch() as folder, Mosquitto() as broker:
        print("\n".join(asyncio.run(measure(Path(folder), broker, options.times))))


if __name__ == "__main__":
    main()
