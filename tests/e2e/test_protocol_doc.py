"""docs/protocol.md says what the code does: its tables, and the transcript of one task on a real broker.

`EDGEPANDA_WRITE_DOCS=1 pytest tests/e2e/test_protocol_doc.py` writes them anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from edgepanda.client import AsyncClient
from edgepanda.model import states
from edgepanda.wire import topics
from tests.rig.brokers import Mosquitto
from tests.rig.site import Site
from tests.rig.wiretap import Heard, Wiretap

PAGE = Path(__file__).parents[2] / "docs/protocol.md"
NODE = """
[node]
name = "desk"
beat = 60.0

[devices.pan]
driver = "servo"
pin = 18
start = 0.0
simulate = true
"""

Shape = tuple[str, bool, str, frozenset[str]]


def _section(name: str) -> str:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found is not None, name
    return found[1].strip("\n")


def _agrees(name: str, text: str) -> None:
    """The page has this text, or gets it."""
    if os.environ.get("EDGEPANDA_WRITE_DOCS"):
        page = PAGE.read_text()
        before, rest = page.split(f"<!-- {name} -->\n", 1)
        after = rest.split("<!-- end -->", 1)[1]
        PAGE.write_text(f"{before}<!-- {name} -->\n{text}\n<!-- end -->{after}")
    assert _section(name) == text, f"write it anew: EDGEPANDA_WRITE_DOCS=1 pytest {__file__}"


def test_the_table_of_topics() -> None:
    lines = ["| topic | QoS | retained | bodies | may be said by |", "|---|---|---|---|---|"]
    for topic in topics.TABLE:
        roles = sorted(set().union(*topic.says.values()))
        retained = "yes" if topic.retain else "no"
        pattern = topics.PREFIX + topic.pattern
        lines.append(f"| `{pattern}` | {topic.qos} | {retained} | `{' '.join(topic.says)}` | {', '.join(roles)} |")
    _agrees("topics", "\n".join(lines))


def test_the_table_of_states() -> None:
    lines = ["| from | what happens | to | when |", "|---|---|---|---|"]
    for row in states.TABLE:
        sources = " ".join(str(state) for state in states.State if state in row.sources)
        lines.append(f"| `{sources}` | `{row.kind}` | `{row.to}` | {row.why} |")
    _agrees("states", "\n".join(lines))


def test_the_errors_of_the_page_are_codes_of_the_program() -> None:
    """A code that nobody raises any more may not stay on the page."""
    source = "".join(
        path.read_text()
        for folder in ("edgepanda", "drivers", "services")
        for path in (PAGE.parents[1] / folder).rglob("*.py")
    )
    table = PAGE.read_text().split("| enters | codes |")[1].split("## One task")[0]
    for codes in re.findall(r"\| `([a-z_ ]+)` \|", table):
        for code in codes.split():
            assert re.search(rf'"{code}"', source), code


async def test_the_transcript_of_one_task(tmp_path: Path) -> None:
    with Mosquitto() as broker, Site(tmp_path, broker.url, {"desk": NODE}) as site:
        heard = await _record(site, broker.url)
    base = heard[0].topic.split("/")[0]
    lines = ["```text", *_transcript(heard, base), "```"]
    if os.environ.get("EDGEPANDA_WRITE_DOCS"):
        _agrees("transcript", "\n".join(lines))
    documented, found = _documented(), _shapes(heard, base)
    assert found == documented, f"write it anew: EDGEPANDA_WRITE_DOCS=1 pytest {__file__}"


async def _record(site: Site, url: str) -> list[Heard]:
    """What a plain client hears from before the task until the node knows that its report was taken."""
    async with site.client() as client:
        await site.claiming(client, "desk")
        await _probed(client)
        with Wiretap(url) as tap:
            await asyncio.to_thread(tap.wait_for, lambda one: one.topic.endswith("/card"))
            task = await client.run("servo.move", {"angle": 45.0}, criteria=["position within 1 degree"])
            assert task.state == "succeeded"
            await asyncio.to_thread(tap.wait_for, lambda one: _ends(one, tap.heard))
        return tap.heard


async def _probed(client: AsyncClient) -> None:
    """A node publishes its card at once, and again when its drivers have looked at their devices."""
    while (await client.node("desk"))["card"]["devices"]["pan"]["state"] == "probing":  # noqa: ASYNC110 the card tells
        await asyncio.sleep(0.05)


def _ends(one: Heard, heard: Iterable[Heard]) -> bool:
    """The acknowledgement of the report that finished the task."""
    reports = {body["id"] for each in heard for body in each.bodies if body["type"] == "finished"}
    return any(body["type"] == "ack" and reports & set(body.get("of", ())) for body in one.bodies)


def _transcript(heard: list[Heard], base: str) -> Iterable[str]:
    for before, one in zip([None, *heard], heard, strict=False):
        if one == before:
            continue
        topic = one.topic.replace(base, "edgepanda", 1)
        head = {key: value for key, value in one.envelope.items() if key != "body"}
        yield f"{topic}{'  (retained)' if one.retained else ''}"
        yield f'  {_compact(head)[:-1]},"body":['
        for body in one.bodies:
            if "card" in body:
                body["card"]["hardware"] = {}  # whose machine this page was made on is nobody's business
            yield f"    {_compact(body)}"
        yield "  ]}"


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


MACHINE = {"untrusted"}  # whether a time server sets the clock of this machine decides whether it is there


def _shape(topic: str, retained: bool, body: dict[str, object]) -> Shape:
    return re.sub(r"clients/[^/]+/", "clients/{client}/", topic), retained, str(body["type"]), frozenset(body) - MACHINE


def _shapes(heard: list[Heard], base: str) -> set[Shape]:
    return {_shape(one.topic.replace(base, "edgepanda", 1), one.retained, body) for one in heard for body in one.bodies}


def _documented() -> set[Shape]:
    found: set[Shape] = set()
    topic, retained = "", False
    for line in _section("transcript").splitlines():
        if line.startswith("edgepanda/"):
            topic, _, mark = line.partition("  ")
            retained = bool(mark)
        elif line.startswith("    {"):
            found.add(_shape(topic, retained, json.loads(line)))
    return found
