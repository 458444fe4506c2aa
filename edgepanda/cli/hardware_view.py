"""A card's hardware for a person: what can be used, and what cannot with its reason and the cure. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from edgepanda.cli.out import plain
from edgepanda.model.hardware import (
    Camera,
    Disk,
    GpioChip,
    Hardware,
    I2cBus,
    Item,
    PwmChip,
    SerialPort,
    SoundCard,
    Stream,
    Wifi,
    items,
)

_KINDS = {
    "disks": "disk",
    "gpio": "GPIO",
    "i2c": "I2C",
    "spi": "SPI",
    "cameras": "camera",
    "sound": "sound",
    "serial": "serial",
    "pwm": "PWM",
    "wifi": "Wi-Fi",
}


def hardware_lines(told: dict[str, Any]) -> list[str]:
    """The lines of a card's hardware, as told by a node of any version."""
    try:
        hardware = msgspec.convert(told, Hardware)
    except msgspec.ValidationError:
        return [plain(told)]
    lines = [_machine(hardware)]
    usable = [(kind, item) for kind, item in items(hardware) if item.state == "usable"]
    broken = [(kind, item) for kind, item in items(hardware) if item.state != "usable"]
    lines += _block("can be used", [(kind, item.name, [_about(item)]) for kind, item in usable])
    lines += _block("cannot be used", [(kind, item.name, [item.reason, f"-> {item.cure}"]) for kind, item in broken])
    lines += _block("not known", [(kind, "", [reason]) for kind, reason in hardware.problems.items()])
    return [line for line in lines if line]


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What a new scan has changed, in lines for a person."""
    try:
        old, new = msgspec.convert(before, Hardware), msgspec.convert(after, Hardware)
    except msgspec.ValidationError:
        return []
    known = {(kind, item.name): item for kind, item in items(old)}
    found = {(kind, item.name): item for kind, item in items(new)}
    lines = []
    for (kind, name), item in found.items():
        if item != known.get((kind, name)):
            word = "new" if (kind, name) not in known else "changed" if item.state == "usable" else "cannot be used"
            about = _about(item) if item.state == "usable" else f"{item.reason}; {item.cure}"
            lines.append(f"{word}: {_KINDS[kind]} {name}, {about}")
    lines += [f"forgotten: {_KINDS[kind]} {name}" for kind, name in known if (kind, name) not in found]
    return lines


def _machine(hardware: Hardware) -> str:
    cpu = f"{hardware.cpus} x {hardware.cpu}" if hardware.cpu else f"{hardware.cpus} processors" * bool(hardware.cpus)
    parts = [
        hardware.board or hardware.machine,
        cpu + (f" at {hardware.cpu_mhz} MHz" if hardware.cpu_mhz else ""),
        f"{hardware.memory_mib} MiB memory" if hardware.memory_mib else "",
        f"Linux {hardware.kernel}" if hardware.kernel else "",
    ]
    return ", ".join(part for part in parts if part)


def _block(title: str, rows: list[tuple[str, str, list[str]]]) -> list[str]:
    if not rows:
        return []
    kinds = max(len(_KINDS.get(kind, kind)) for kind, _, _ in rows)
    names = max(len(name) for _, name, _ in rows)
    lines = [title]
    for kind, name, (first, *more) in rows:
        lines.append(f"  {_KINDS.get(kind, kind).ljust(kinds)}  {name.ljust(names)}  {first}".rstrip())
        lines += [f"  {' ' * kinds}  {' ' * names}  {line}" for line in more]
    return lines


def _about(item: Item) -> str:
    """Where it is and what it is, in a line."""
    parts: list[str] = next((tell(item) for kind, tell in _TELL.items() if isinstance(item, kind)), [])
    return ", ".join(part for part in [item.device, *parts] if part and part != item.name)


def _disk(disk: Disk) -> list[str]:
    return [disk.kind, disk.model, f"{disk.size_mib / 1024:.1f} GiB"]


def _gpio(chip: GpioChip) -> list[str]:
    return [f"{chip.lines} lines" if chip.lines else "", "the pins of the header" if chip.header else ""]


def _i2c(bus: I2cBus) -> list[str]:
    found = [f"{address} {about}" for address, about in bus.addresses.items()]
    return [bus.adapter, *(found or ["nothing answers" if bus.probed else "not asked"])]


def _stream(word: str, stream: Stream | None) -> str:
    if stream is None:
        return ""
    return f"{word} at {', '.join(str(rate) for rate in stream.rates)} Hz" if stream.rates else word


def _sound(card: SoundCard) -> list[str]:
    return [card.model, _stream("records", card.capture), _stream("plays", card.playback)]


_TELL: dict[type[Item], Callable[[Any], list[str]]] = {
    Disk: _disk,
    GpioChip: _gpio,
    I2cBus: _i2c,
    SoundCard: _sound,
    Camera: lambda camera: [camera.kind, camera.model],
    SerialPort: lambda port: [port.model or port.driver],
    PwmChip: lambda chip: [f"{chip.channels} channels"],
    Wifi: lambda wifi: [wifi.driver],
}
