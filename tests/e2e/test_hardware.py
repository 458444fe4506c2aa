"""The hardware on a real node's card: it is there, what is missing stays, the same machine makes no new revision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgepanda.documents import Documents
from edgepanda.model.hardware import Hardware, SerialPort
from edgepanda.wire import messages, topics
from edgepanda.wire.bus import Message
from tests.rig.brokers import Embedded
from tests.rig.cli import Person
from tests.rig.site import Site

ARDUINO = SerialPort(name="usb-Arduino", device="/dev/ttyACM0", usb="2341:0043")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose node remembers an Arduino that is not there any more; its node is not started."""
    with Embedded() as broker:
        site = Site(tmp_path, broker.url, {"desk": '[node]\nname = "desk"\n'})
        with Documents(site.state("desk") / "hardware.json", exclusive=True) as documents:
            documents.table("hardware").insert({"facts": msgspec.to_builtins(Hardware(serial=(ARDUINO,)))})
        with site:
            yield site


async def next_card(site: Site) -> dict[str, Any]:
    """The card that tells of this machine after a start of the node, however many come before."""
    cards: list[messages.CardBody] = []

    def wanted(message: Message) -> bool:
        if message.name == "desk" and isinstance(message.body, messages.CardBody):
            cards.append(message.body)
        return bool(cards) and cards[-1].card.hardware.get("kernel") == os.uname().release

    site.stop("desk")
    await site.heard(topics.CARD, wanted, lambda: site.start("desk"))
    found: dict[str, Any] = msgspec.to_builtins(cards[-1].card)
    return found


async def test_a_node_tells_its_hardware_and_what_is_missing(site: Site) -> None:
    first = await next_card(site)
    assert first["hardware"]["cpus"] >= 1
    (port,) = [each for each in first["hardware"]["serial"] if each["name"] == "usb-Arduino"]
    assert (port["state"], port["why"]) == ("unavailable", "gone")
    second = await next_card(site)
    assert second["hardware"] == first["hardware"]
    assert second["revision"] == 1  # it was remembered, and the scan found nothing new


def test_a_person_has_the_node_look_again_and_forget(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.ok("init", "--name", "desk")
    person.listen_anywhere()
    with Documents(person.folder / ".edgepanda/hardware.json", exclusive=True) as documents:
        documents.table("hardware").insert({"facts": msgspec.to_builtins(Hardware(serial=(ARDUINO,)))})
    with person.up():
        told = person.ok("card", "rescan")
        assert "desk: scanned, card " in told
        assert "  pan  ready" in told
        assert "usb-Arduino" in person.ok("card")
        assert "forgotten: serial usb-Arduino" in person.ok("card", "rescan", "--forget")
        assert "usb-Arduino" not in person.ok("card")
        assert "the hardware is as it was" in person.ok("card", "rescan")
        assert person.json("card", "rescan", "desk")["states"]["pan"]["state"] == "ready"  # over the bus
        assert person.run("card", "rescan", "attic").returncode == 2
        person.ok("card", "edit", "--label", "room=attic", "--description", "by the window")
        card = person.json("card")["card"]
        assert (card["labels"], card["description"]) == ({"room": "attic"}, "by the window")
        assert person.json("card", "show", "desk")["card"]["hardware"] == card["hardware"]
    person.close()
