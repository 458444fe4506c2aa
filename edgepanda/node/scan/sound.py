"""ALSA cards with the rates that /proc/asound tells: USB cards and HD audio do, others only once they are opened."""

from __future__ import annotations

import re

from edgepanda.model.hardware import SoundCard, Stream
from edgepanda.node.scan import usb
from edgepanda.node.scan.fault import Fault, denied, fields
from edgepanda.node.scan.root import Root

CARD = re.compile(r"^ *(\d{1,4}) \[(\S+) *\]: (\S+) - (.*)$", re.MULTILINE)
CODEC = {"capture": "Audio Input", "playback": "Audio Output"}


def sound(root: Root) -> tuple[SoundCard, ...]:
    """All cards, by number."""
    cards = CARD.findall("\n" + root.text("proc/asound/cards"))
    found = [_card(root, *words) for words in cards]
    for device, fault in usb.driverless(root, "snd-usb-audio"):
        found.append(SoundCard(name=device.id, model=device.name, **fault.fields))
    return tuple(found)


def _card(root: Root, number: str, name: str, driver: str, model: str) -> SoundCard:
    folder = f"proc/asound/card{number}"
    pcms = root.names(folder, r"pcm\d+[pc]")
    nodes = [f"/dev/snd/pcmC{number}D{pcm[3:-1]}{pcm[-1]}" for pcm in pcms]
    group = next((fault for node in nodes if (fault := denied(root, node, "audio")) is not None), None)
    return SoundCard(
        name=name,
        device=f"hw:{number}",
        driver=driver,
        model=model.strip(),
        capture=_stream(root, folder, "capture") if any(pcm.endswith("c") for pcm in pcms) else None,
        playback=_stream(root, folder, "playback") if any(pcm.endswith("p") for pcm in pcms) else None,
        **fields(group, _busy(root, folder, pcms)),
    )


def _stream(root: Root, folder: str, direction: str) -> Stream:
    rates, channels = set[int](), [0]
    for name in root.names(folder, r"stream\d+"):
        part = _section(root.text(f"{folder}/{name}"), direction)
        for words in re.findall(r"^\s+Rates: ([0-9, ]+)$", part, re.MULTILINE):
            rates.update(_rates(words.replace(",", " ")))
        channels += [int(count) for count in re.findall(r"^\s+Channels: (\d{1,4})$", part, re.MULTILINE)]
    for name in root.names(folder, r"codec#\d+"):
        for node in root.text(f"{folder}/{name}").split("\nNode "):
            if CODEC[direction] in node.split("\n")[0]:
                for words in re.findall(r"^\s+rates \[0x[0-9a-f]+\]: ([0-9 ]+)$", node, re.MULTILINE):
                    rates.update(_rates(words))
    return Stream(rates=tuple(sorted(rates)), channels=max(channels))


def _section(text: str, direction: str) -> str:
    """The lines of one direction: both begin at the line's first column."""
    found = re.search(rf"^{direction.title()}:\n((?:\s.*\n?)*)", text, re.MULTILINE)
    return found[1] if found else ""


def _rates(words: str) -> list[int]:
    return [int(word) for word in words.split() if len(word) <= 7]


def _busy(root: Root, folder: str, pcms: list[str]) -> Fault | None:
    """A card is busy when every stream of every direction is open."""
    owners = list[int]()
    for pcm in pcms:
        for part in root.names(f"{folder}/{pcm}", r"sub\d+"):
            found = re.search(r"^owner_pid\s*: (\d{1,9})$", root.text(f"{folder}/{pcm}/{part}/status"), re.MULTILINE)
            if found is None:
                return None
            owners.append(int(found[1]))
    if not owners:
        return None
    who = ", ".join(f"{root.command(pid)} (pid {pid})" for pid in dict.fromkeys(owners))
    return Fault("busy", f"it is in use by {who}", f"end it: sudo kill {owners[0]}")
