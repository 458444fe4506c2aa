"""Wall clocks that jump by a year either way in the middle of leases and waits: nothing ends, nothing is lost."""

from __future__ import annotations

import collections
from pathlib import Path

from edgepanda.model.task import Limits
from tests.faults.test_spine import TTL, begun, recorder_node, until
from tests.rig.brokers import Mosquitto
from tests.rig.site import COORDINATOR, Site, WallClocks

YEAR = 365 * 86_400.0
NORMAL = {"submitted", "leased", "permitted", "started", "finished"}
LIMITS = Limits(valid_for=600, deliver_within=900, deadline=1_800)


async def test_a_jump_of_a_year_ends_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """A task that runs for longer than a lease's time to live is in the middle of it at each jump; one waits for its
    device, one for a node that is away. At one jump the coordinator is killed; then the node comes.
    """
    record = tmp_path / "record"
    clocks = WallClocks(tmp_path)
    nodes = {name: recorder_node(record, name) for name in ("desk", "shed")}
    with Mosquitto() as at:
        site = Site(tmp_path / "site", at.url, nodes, lease_ttl=TTL)
        site.environment = clocks.environment
        with site:
            async with site.client() as client:
                await site.claiming(client, "desk", "shed", within=30.0)
                site.stop("shed")
                away = await client.submit(device="rec", node="shed", action="mark", limits=LIMITS)
                tasks = [away["id"]]
                for offset in ("+365d", "-365d", "+0"):
                    held = await client.submit(
                        device="rec", node="desk", action="mark", args={"seconds": TTL + 0.5}, limits=LIMITS
                    )
                    await until(lambda held=held: held["id"] in begun(record))
                    clocks.jump(offset)
                    if offset == "-365d":
                        site.kill(COORDINATOR)
                        site.start(COORDINATOR)
                        await site.claiming(client, "desk", within=30.0)
                    waiting = await client.submit(device="rec", node="desk", action="note", limits=LIMITS)
                    tasks += [held["id"], waiting["id"]]
                    for task in tasks[-2:]:
                        assert (await client.wait(task)).state == "succeeded", offset
                assert (await client.get(away["id"])).state == "queued"
                site.start("shed")
                assert (await client.wait(away["id"])).state == "succeeded"
                pages = [await client.events(task) for task in tasks]
                events = [event for page in pages for event in page["events"]]
                assert {event["kind"] for event in events} <= {
                    "submitted",
                    "leased",
                    "permitted",
                    "started",
                    "finished",
                }
                assert max(event["at"] for event in events) - min(event["at"] for event in events) > 1.9 * YEAR
                assert begun(record) == collections.Counter(tasks)
                assert (await client.verify())["ok"]
