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
from collections.abc import Awaitable
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


class Bare(msgspec.Struct):
    """Seconds."""

    trip: float
    trip99: float
    sign: float
    check: float
    commit: float
    pipe: float
    interpreter: float


def measure_bare(folder: Path, url: str) -> Bare:
    """All the bare measures."""
    parts = urlsplit(url)
    trip, trip99 = bare.round_trip(str(parts.hostname), int(parts.port or 1883))
    sign, check = bare.signature()
    return Bare(trip, trip99, sign, check, bare.commit(folder), bare.pipe(), bare.interpreter())


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


def task_rows(b: Bare, client: AsyncClient, times: int) -> Awaitable[list[Row]]:
    """Submit to finished, and tasks a second."""

    async def rows() -> list[Row]:
        found = []
        await one_by_one(client, "note", 50)
        for action, replay, hops, commits in (("note", "safe", 4, 2), ("mark", "unsafe", 6, 5)):
            taken = await one_by_one(client, action, times)
            p50, p99 = bare.quantile(taken, 0.5), bare.quantile(taken, 0.99)
            sum_of_parts = needed(b, hops=hops, commits=commits)
            parts = f"{hops} hops, {hops} signatures and checks, {commits} commits, 1 pipe: {ms(sum_of_parts)}"
            found.append(Row(f"submit to finished, {replay}, p50", ms(p50), parts, p50 / sum_of_parts, "1.5, then 1.2"))
            found.append(Row(f"submit to finished, {replay}, p99", ms(p99), f"its p50: {ms(p50)}", p99 / p50, "3"))
        rate = await many(client, times * 4)
        found.append(Row("durable tasks a second, 64 in flight", f"{rate:.0f} /s", "", None, "600, then 1000"))
        return found

    return rows()


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


def command_rows(b: Bare) -> list[Row]:
    """`--version` and `--help`, in bare interpreters."""
    program = str(Path(sys.executable).with_name("edgepanda"))
    found = []
    for option, reach in (("--version", "3"), ("--help", "6")):
        taken = bare.program([program, option])
        found.append(
            Row(f"edgepanda {option}", ms(taken), f"1 interpreter: {ms(b.interpreter)}", taken / b.interpreter, reach)
        )
    return found


async def start_rows(site: Site, times: int) -> list[Row]:
    """From the start of the node's process to its card on the broker."""
    taken = sorted([await site.restart_until_card("desk") for _ in range(times)])
    p50 = bare.quantile(taken, 0.5)
    return [Row("process start to card on the broker", ms(p50), f"median of {times}", None, "1000 ms")]


def printed(rows: list[Row], b: Bare) -> str:
    """The table in Markdown."""
    raw = (
        f"bare: round trip {ms(b.trip)} (p99 {ms(b.trip99)}), "
        f"signature {b.sign * 1e6:.0f} µs, check {b.check * 1e6:.0f} µs, "
        f"commit {ms(b.commit)}, pipe {ms(b.pipe)}, interpreter {ms(b.interpreter)}"
    )
    lines = [raw, "", "| row | figure | held against | ratio | reach |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
        lines.append(f"| {row.name} | {row.figure} | {row.parts} | {ratio} | {row.reach} |")
    return "\n".join(lines)


async def measure(folder: Path, broker: Mosquitto, *, quick: bool) -> tuple[Bare, list[Row]]:
    """All rows."""
    times = 100 if quick else 1000
    b = measure_bare(folder, broker.url)
    with Site(folder / "site", broker.url, {"desk": NODE}) as site:
        async with site.client(watch=False) as client, site.client(watch=True):
            await site.claiming(client, "desk")
            rows = await task_rows(b, client, times)
        rows += await idle_rows(site, 10.0 if quick else 60.0)
        rows += await start_rows(site, 3 if quick else 7)
    return b, rows + command_rows(b)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs: to see that it works")
    options = parser.parse_args()
    with bare.scratch() as folder, Mosquitto() as broker:
        b, rows = asyncio.run(measure(Path(folder), broker, quick=options.quick))
    print(printed(rows, b))
    if options.json:
        Path(options.json).write_text(json.dumps({"bare": msgspec.to_builtins(b), "rows": msgspec.to_builtins(rows)}))


if __name__ == "__main__":
    main()
