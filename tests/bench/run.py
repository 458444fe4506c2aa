"""The figures of docs/verified.md, in one run, each beside what the same run measures bare.

    ./install.sh test bench            (or, in its environment: python -m tests.bench.run [--json FILE] [--quick])

Prints a table; no figure passes or fails. These machines are noisy: the ratios count, not the milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from edgepanda.client import AsyncClient
from tests.bench import bare
from tests.rig.brokers import Mosquitto
from tests.rig.site import RECORDER, Site

NODE = f"""
[node]
name = "desk"
slots = 64

[devices.rec]
driver = "{RECORDER}"
"""


class Row(msgspec.Struct):
    """One line of the table: a figure, what it is held against, and the ratio."""

    name: str
    figure: str
    parts: str
    ratio: float | None
    reach: str


PAUSE = 0.002  # seconds


class Bare(msgspec.Struct):
    """Medians in seconds; `trip99` is the 99th percentile."""

    trip: float
    trip99: float
    sign: float
    check: float
    commit: float
    pipe: float

    def __str__(self) -> str:
        return (
            f"round trip {ms(self.trip)} (p99 {ms(self.trip99)}), signature {self.sign * 1e6:.0f} µs, "
            f"check {self.check * 1e6:.0f} µs, commit {ms(self.commit)}, pipe {ms(self.pipe)}"
        )


class Measures(msgspec.Struct):
    """The bare machine: `busy`, each part again and again; `alone`, each after a pause, as it is in a lone task."""

    busy: Bare
    alone: Bare
    interpreter: float


def measure_bare(folder: Path, url: str, times: int) -> Measures:
    """All the bare measures."""
    parts = urlsplit(url)

    def bares(pause: float) -> Bare:
        trip, trip99 = bare.round_trip(str(parts.hostname), int(parts.port or 1883), times, pause)
        sign, check = bare.signature(times, pause)
        return Bare(trip, trip99, sign, check, bare.commit(folder, times, pause), bare.pipe(times, pause))

    return Measures(bares(0.0), bares(PAUSE), bare.interpreter())


def needed(b: Bare, *, hops: int, commits: int) -> float:
    """What a task needs: hops (each half a round trip, a signature and its check), commits, one pipe to the driver."""
    return hops * (b.trip / 2 + b.sign + b.check) + commits * b.commit + b.pipe


async def one_by_one(client: AsyncClient, action: str, times: int) -> bare.Seconds:
    """How long each of so many tasks took, from submit to finished as the client knows it."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        view = await client.run(device="rec", action=action)
        taken.append(time.perf_counter() - began)
        if view.state != "succeeded":
            raise RuntimeError(f"{view.id} is {view.state}: {view.reason}")
    return sorted(taken)


async def many(client: AsyncClient, count: int, at_once: int = 64) -> float:
    """Tasks a second, end to end, with so many in flight."""
    gate = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with gate:
            view = await client.run(device="rec", action="note")
            if view.state != "succeeded":
                raise RuntimeError(f"{view.id} is {view.state}: {view.reason}")

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return count / (time.perf_counter() - began)


async def task_rows(m: Measures, client: AsyncClient, times: int) -> list[Row]:
    """Submit to finished, and tasks a second."""
    rows = []
    await one_by_one(client, "note", 50)
    for action, replay, hops, commits in (("note", "safe", 4, 2), ("mark", "unsafe", 6, 5)):
        taken = await one_by_one(client, action, times)
        p50, p99 = bare.quantile(taken, 0.5), bare.quantile(taken, 0.99)
        name = f"submit to finished, {replay}"
        busy, alone = (needed(b, hops=hops, commits=commits) for b in (m.busy, m.alone))
        parts = f"{hops} hops with signature and check, {commits} commits, 1 pipe, each alone: {ms(alone)}"
        rows.append(Row(f"{name}, p50", ms(p50), parts, p50 / alone, "1.5, then 1.2"))
        rows.append(Row(f"{name}, p50", ms(p50), f"the same, busy: {ms(busy)}", p50 / busy, ""))
        rows.append(Row(f"{name}, p50", ms(p50), f"round trips, alone: {ms(m.alone.trip)}", p50 / m.alone.trip, ""))
        rows.append(Row(f"{name}, p99", ms(p99), f"its p50: {ms(p50)}", p99 / p50, "3"))
    rate = await many(client, times * 4)
    rows.append(Row("durable tasks a second, 64 in flight", f"{rate:.0f} /s", "", None, "600, then 1000"))
    return rows


def ms(seconds: float) -> str:
    """Milliseconds, for people."""
    return f"{seconds * 1000:.2f} ms"


def pss(pid: int) -> float:
    """Proportional set size of a process in MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def written(pid: int) -> int:
    """Bytes that a process has had written to disk so far."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def idle_rows(site: Site, seconds: float) -> list[Row]:
    """Memory, processor time and writes of an idle, connected node with beats on, and of its driver host."""
    node = site.pid("desk")
    hosts = children(node)
    cpu, disk = sum(cpu_seconds(p) for p in (node, *hosts)), sum(written(p) for p in (node, *hosts))
    await asyncio.sleep(seconds)
    cpu = (sum(cpu_seconds(p) for p in (node, *hosts)) - cpu) / seconds
    disk = sum(written(p) for p in (node, *hosts)) - disk
    of = f"of a core, {seconds:g} s"
    return [
        Row("memory of the node's daemon, one driver (PSS)", f"{pss(node):.1f} MiB", "", None, "30 MiB, then 24"),
        Row("memory of its driver host (PSS)", f"{sum(pss(p) for p in hosts):.1f} MiB", "", None, ""),
        Row("memory of the coordinator (PSS)", f"{pss(site.pid('coordinator')):.1f} MiB", "", None, ""),
        Row("idle CPU of node and host", f"{cpu:.3%}", of, None, "0.1 %"),
        Row("writes of an idle node", f"{disk} bytes", f"{seconds:g} s", None, "0 bytes"),
    ]


def command_rows(m: Measures) -> list[Row]:
    """`--version` and `--help`, in bare interpreters."""
    program = str(Path(sys.executable).with_name("edgepanda"))
    found = []
    for option, reach in (("--version", "3"), ("--help", "6")):
        taken = bare.program([program, option])
        found.append(
            Row(f"edgepanda {option}", ms(taken), f"1 interpreter: {ms(m.interpreter)}", taken / m.interpreter, reach)
        )
    return found


async def start_rows(site: Site, times: int) -> list[Row]:
    """From the start of the node's process to its card on the broker."""
    taken = sorted([await site.restart_until_card("desk") for _ in range(times)])
    p50 = bare.quantile(taken, 0.5)
    return [Row("process start to card on the broker", ms(p50), f"median of {times}", None, "1000 ms")]


def printed(rows: list[Row], m: Measures) -> str:
    """The table in Markdown."""
    lines = [f"Bare, busy: {m.busy}.", f"Bare, alone: {m.alone}. Interpreter {ms(m.interpreter)}.", ""]
    lines += ["| row | figure | held against | ratio | reach |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
        lines.append(f"| {row.name} | {row.figure} | {row.parts} | {ratio} | {row.reach} |")
    return "\n".join(lines)


async def measure(folder: Path, broker: Mosquitto, *, quick: bool) -> tuple[Measures, list[Row]]:
    """All rows."""
    times = 100 if quick else 1000
    m = measure_bare(folder, broker.url, times)
    with Site(folder / "site", broker.url, {"desk": NODE}) as site:
        async with site.client(watch=False) as client, site.client(watch=True):
            await site.claiming(client, "desk")
            rows = await task_rows(m, client, times)
        rows += await idle_rows(site, 10.0 if quick else 60.0)
        rows += await start_rows(site, 3 if quick else 7)
    return m, rows + command_rows(m)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs: to see that it works")
    options = parser.parse_args()
    with bare.scratch() as folder, Mosquitto() as broker:
        m, rows = asyncio.run(measure(Path(folder), broker, quick=options.quick))
    print(printed(rows, m))
    if options.json:
        Path(options.json).write_text(json.dumps({"bare": msgspec.to_builtins(m), "rows": msgspec.to_builtins(rows)}))


if __name__ == "__main__":
    main()
