"""The broker is gone while work goes on at the node: all of it is in the ledger soon after its return.

For as long as an hour or a day: `EDGEPANDA_AWAY=600 pytest -n0 -s tests/faults/test_store_and_forward.py` (seconds).
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

from edgepanda.cli.local import LocalNode
from edgepanda.coordinator.ledger import Ledger
from tests.faults.test_spine import begun, recorder_node, until
from tests.rig.brokers import Mosquitto
from tests.rig.site import COORDINATOR, Site

AWAY = float(os.environ.get("EDGEPANDA_AWAY", "2"))  # seconds without a broker
WITHIN = 10.0  # seconds from the broker's return until everything is in the ledger
PAUSE = 0.2  # seconds between commands


async def work(node: LocalNode, seconds: float, done: list[str]) -> None:
    """Commands on the node's own socket, of both kinds in turn."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        action = ("note", "mark")[len(done) % 2]
        answer = await node.request("do", {"device": "rec", "action": action}, within=15)
        assert answer["result"]["outcome"] == "succeeded"
        done.append(answer["task"])
        await asyncio.sleep(PAUSE)


def on_disk(site: Site, done: list[str]) -> bool:
    """Whether the node's outbox holds the reports of all these."""
    with contextlib.closing(sqlite3.connect(site.state("desk") / "journal.db")) as journal:
        kept = {task for (task,) in journal.execute("SELECT task FROM outbox")}
    return kept >= set(done)


def usable(card: dict[str, Any] | None) -> bool:
    """Whether the node is back, and its device with it."""
    return card is not None and card["devices"].get("rec", {}).get("state") == "ready"


async def test_what_is_done_without_a_broker_is_in_the_ledger_soon_after_its_return(tmp_path: Path) -> None:
    record = tmp_path / "record"
    done: list[str] = []
    with Mosquitto() as broker, Site(tmp_path / "site", broker.url, {"desk": recorder_node(record)}) as site:
        async with site.client() as client:
            await site.claiming(client, "desk")
        node = LocalNode(site.state("desk") / "run/node.sock")
        broker.kill()
        await work(node, AWAY / 2, done)
        await until(lambda: on_disk(site, done))  # a moment after the answer
        site.kill("desk")
        site.start("desk")
        async with asyncio.timeout(15):
            while not usable(await node.card()):  # noqa: ASYNC110 the other side is a process
                await asyncio.sleep(0.05)
        await work(node, AWAY / 2, done)
        broker.restart()
        returned = time.monotonic()
        ledger = Ledger.open(site.state(COORDINATOR) / "ledger.db", writable=False)
        await until(lambda: all(ledger.task(task) for task in done), within=WITHIN)
        print(f"{len(done)} commands in {AWAY:g} s without a broker; in the ledger after", time.monotonic() - returned)
        states = collections.Counter(row.state for task in done if (row := ledger.task(task)))
        assert states == {"succeeded": len(done)}
        assert ledger.verify().ok
        ledger.close()
        assert begun(record) == collections.Counter(dict.fromkeys(done, 1))
