"""Hostile payloads on every topic of a site of real processes, and a good command after each thousand.

    python -m tests.faults.hostile --count 100000 --seed 1 --broker mosquitto

Exit code: 0 all held, 1 something broke (and what), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from edgepanda.cli.local import LocalNode
from edgepanda.errors import EdgePandaError
from edgepanda.trust.identity import Identity, encode_key
from edgepanda.trust.peers import Peer
from tests.rig.brokers import Embedded, Mosquitto
from tests.rig.hostile import Shot, Stranger, Target, garbage
from tests.rig.raw_mqtt import PUBACK, RawClient, packet, text
from tests.rig.site import COORDINATOR, RECORDER, Site
from tests.rig.wiretap import Heard, Wiretap

GOOD_EVERY = 1_000  # payloads
TOGETHER = 100  # payloads until the broker, the coordinator and the node have answered
GARBAGE_EVERY = 100  # payloads
MOST_LOG = 4 << 20  # bytes that a process may log in the whole run
MOST_GROWTH = 24.0  # MiB that a process may have more at the end than after the first thousand
ANSWER_WITHIN = 20.0  # seconds for a good command

NODE = f"""
[node]
name = "desk"
beat = 0.5
drain = 0.5

[devices.rec]
driver = "{RECORDER}"
file = "{{record}}"

[devices.pan]
driver = "servo"
pin = 5
simulate = true
start = 0
"""


class Outcome(msgspec.Struct):
    """What came of it. `memory`: MiB (PSS) of each process after the first thousand and at the end."""

    seed: int
    broker: str
    payloads: int = 0
    seconds: float = 0.0
    garbage: int = 0
    reconnects: int = 0
    good: int = 0
    releases: int = 0
    kinds: dict[str, int] = msgspec.field(default_factory=dict)
    dropped: dict[str, int] = msgspec.field(default_factory=dict)  # by the node, by code
    memory: dict[str, list[float]] = msgspec.field(default_factory=dict)
    logs: dict[str, int] = msgspec.field(default_factory=dict)  # bytes
    broken: list[str] = msgspec.field(default_factory=list)


class Attack:
    """One run. `await run(count)` fills `outcome`."""

    def __init__(self, folder: Path, broker: Mosquitto | Embedded, seed: int) -> None:
        self._folder, self._broker, self._seed = folder, broker, seed
        self.record = folder / "record"
        self.outcome = Outcome(seed, type(broker).__name__.lower())
        self._program = Identity.create()
        self._raw: RawClient | None = None
        self._before = 0  # lines of the record

    async def run(self, count: int) -> Outcome:
        """Start the site, record what is said, and shoot."""
        began = time.perf_counter()
        with Site(self._folder / "site", self._broker.url, {"desk": NODE.format(record=self.record)}) as site:
            self._site = site
            async with site.client() as client:
                self._client = client
                await site.claiming(client, "desk")
                await client.add_peer(Peer(key=encode_key(self._program.public), name="program", role="client"))
                stranger = Stranger(self._seed, self._target(), await self._listened(), self._members())
                rng = random.Random(self._seed)
                began = time.perf_counter()
                while self.outcome.payloads < count and not self.outcome.broken:
                    await self._volley(stranger, rng, min(TOGETHER, count - self.outcome.payloads))
                    if self.outcome.payloads % GOOD_EVERY == 0 or self.outcome.payloads == count:
                        await self._still_good()
                        self._weigh()
                self._judge()
                if self.outcome.broken:
                    for name in site.loaded:
                        print(f"--- {name}\n{site.log(name)[-6000:]}", file=sys.stderr)
        self.outcome.seconds = time.perf_counter() - began
        return self.outcome

    # before

    def _target(self) -> Target:
        base = self._site.loaded[COORDINATOR].config.site.base
        return Target(self._site.name, base, ("desk",), (self._site.operator.kid, self._program.kid))

    def _members(self) -> tuple[Identity, ...]:
        node = Identity.load(self._site.loaded["desk"].keys_dir / "node.key")
        return (self._program, node)

    async def _listened(self) -> list[Heard]:
        """All that is said while the site is used."""
        client = self._client
        with Wiretap(self._broker.url) as tap:
            for _ in range(5):
                await self._good_command()
            await client.run("servo.move", {"angle": 10}, device="pan")
            task = await client.submit("recorder.mark", {"seconds": 30}, device="rec")
            await client.cancel(task["id"])
            await client.wait(task["id"], timeout=ANSWER_WITHIN)
            await client.stop("recorded")
            await self._released()
            await self._good_command()
            self._before = len(self.record.read_text().splitlines())
            self.outcome.good = 0
            return [each for each in tap.heard if each.payload]

    # the attack

    async def _volley(self, stranger: Stranger, rng: random.Random, count: int) -> None:
        """So many payloads; returns when broker, coordinator and node have all answered behind them."""
        for number in range(count):
            shot = stranger.shot()
            self.outcome.kinds[shot.kind] = self.outcome.kinds.get(shot.kind, 0) + 1
            await self._fire(shot)
            self.outcome.payloads += 1
            if number % GARBAGE_EVERY == 0:
                await self._garbage(rng)
        if self._raw is not None and not await self._raw.alive():
            self._hung_up()
        await self._answered()

    async def _fire(self, shot: Shot) -> None:
        raw = self._raw
        if raw is None or raw.writer.is_closing():
            raw = self._raw = await RawClient.open(self._broker.port)
            if await raw.connect(f"stranger{self.outcome.reconnects}") != 0:
                raise RuntimeError("the broker does not take a stranger any more")
        number = (self.outcome.payloads % 65_000 + 1).to_bytes(2) if shot.qos else b""
        topic = text(f"{self._target().base}/{shot.topic}")
        try:
            raw.writer.write(packet(0x30 | shot.qos << 1 | shot.retain, topic + number + shot.payload))
            await raw.writer.drain()
            if shot.qos and await raw.next_of(PUBACK) is None:
                self._hung_up()
        except ConnectionError:
            self._hung_up()

    def _hung_up(self) -> None:
        """The broker does not want this one any more, which is its right."""
        self.outcome.reconnects += 1
        if self._raw is not None:
            self._raw.close()
        self._raw = None

    async def _garbage(self, rng: random.Random) -> None:
        raw = await RawClient.open(self._broker.port)
        raw.writer.write(garbage(rng))
        with contextlib.suppress(ConnectionError):  # it need not listen to the end
            await raw.writer.drain()
        raw.close()
        self.outcome.garbage += 1

    # what must hold

    async def _answered(self) -> None:
        async with asyncio.timeout(ANSWER_WITHIN):
            await self._client.stops()
            status = await self._node().request("status", {}, within=ANSWER_WITHIN)
        self.outcome.dropped = status["dropped"]

    def _node(self) -> LocalNode:
        return LocalNode(self._site.state("desk") / "run/node.sock")

    async def _still_good(self) -> None:
        """No process has ended, the stops that anyone may say are released, and a good command does what it should."""
        ended = [name for name in self._site.loaded if self._site.ended(name)]
        if ended:
            self._broke(f"ended: {', '.join(ended)}")
            return
        try:
            await self._released()
            await self._good_command()
        except (EdgePandaError, TimeoutError, RuntimeError) as error:
            self._broke(f"after {self.outcome.payloads} payloads a good command failed: {error!r}")

    async def _good_command(self) -> None:
        async with asyncio.timeout(ANSWER_WITHIN):
            view = await self._client.run("recorder.note", device="rec")
        if view.state != "succeeded":
            raise RuntimeError(f"{view.id} is {view.state}: {view.reason}")
        self.outcome.good += 1

    async def _released(self) -> None:
        """Release all that is in force, until nothing is, at the site and at the node."""
        async with asyncio.timeout(ANSWER_WITHIN):
            while True:
                found = await self._client.stops()
                places = [found["site"], *found["nodes"].values()]
                wanted = {place["kid"]: [each["id"] for each in place["stops"]] for place in places if place["stops"]}
                own = (await self._node().request("status", {}, within=ANSWER_WITHIN))["stops"]
                if not wanted and not own:
                    return
                if wanted:
                    await self._client.release(wanted)
                    self.outcome.releases += 1
                await asyncio.sleep(0.05)

    def _weigh(self) -> None:
        pids = {name: self._site.pid(name) for name in self._site.loaded} | {"broker": self._broker.pid}
        for name, pid in pids.items():
            now = round(pss(pid), 2)
            first = self.outcome.memory.setdefault(name, [now, now])
            first[1] = now

    def _judge(self) -> None:
        for name, (before, after) in self.outcome.memory.items():
            if after - before > MOST_GROWTH:
                self._broke(f"the memory of {name} has grown from {before} to {after} MiB")
        lines = len(self.record.read_text().splitlines()) - self._before
        if lines != self.outcome.good and not self.outcome.broken:
            self._broke(f"{lines} calls ran, and {self.outcome.good} were asked for")
        for name in self._site.loaded:
            log = self._site.log(name)
            self.outcome.logs[name] = len(log)
            if len(log) > MOST_LOG:
                self._broke(f"{name} has logged {len(log)} bytes")
            if "Traceback" in log:
                self._broke(f"a traceback in the log of {name}: {log[log.index('Traceback') :][:2000]}")

    def _broke(self, what: str) -> None:
        self.outcome.broken.append(what)


def pss(pid: int) -> float:
    """Proportional set size of a process in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def printed(outcome: Outcome) -> str:
    """For people."""
    kinds = Counter(outcome.kinds).most_common()
    lines = [
        f"seed {outcome.seed}, {outcome.broker}: {outcome.payloads} payloads in {outcome.seconds:.0f} s "
        f"({outcome.payloads / max(outcome.seconds, 0.001):.0f} a second), {outcome.garbage} connections of garbage, "
        f"{outcome.reconnects} times hung up on, {outcome.good} good commands, {outcome.releases} releases",
        "sent: " + ", ".join(f"{name} {count}" for name, count in kinds),
        "dropped by the node: " + ", ".join(f"{code} {count}" for code, count in outcome.dropped.items()),
        *(f"memory of {name}: {before} to {after} MiB" for name, (before, after) in outcome.memory.items()),
        *(f"log of {name}: {size} bytes" for name, size in outcome.logs.items()),
        *(f"BROKEN: {what}" for what in outcome.broken),
    ]
    return "\n".join(lines)


def attack(count: int, seed: int, broker: str) -> Outcome:
    """One whole run."""
    with (
        tempfile.TemporaryDirectory(prefix="edgepanda-hostile-") as folder,
        Embedded() if broker == "embedded" else Mosquitto() as running,
    ):
        return asyncio.run(Attack(Path(folder), running, seed).run(count))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000, help="payloads (default: 100000)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the choices; keys and ids are new ones each time (default: 1)"
    )
    parser.add_argument("--broker", choices=("mosquitto", "embedded"), default="mosquitto")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    options = parser.parse_args()
    outcome = attack(options.count, options.seed, options.broker)
    print(json.dumps(msgspec.to_builtins(outcome)) if options.json else printed(outcome))
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    sys.exit(main())
