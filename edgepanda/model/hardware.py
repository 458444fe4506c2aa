"""What a machine is made of, as a scan finds it: facts for the card, and apart from them readings that change.

A fact changes when somebody changes the machine; a reading (temperature, signal, free memory) changes by itself, and
would make a new revision of the card each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

State = Literal["usable", "unavailable"]
Cause = Literal[
    "", "busy", "group", "overlay", "module", "kernel", "blocked", "read_only", "unreadable", "stuck", "gone"
]
"""Why an item cannot be used, in one stable word: another process has it; the user is in no group that may; a switch of
the board's configuration is off; no driver or module of the kernel; a kernel driver has it; the radio is switched off;
it can only be read; the kernel's files say nonsense; the bus does not answer; it was there before and is not now."""

GONE = "it was found before, and is not there now"
GONE_CURE = "connect it again, then `edgepanda card rescan`; `edgepanda card rescan --forget` if it is gone for good"


class Item(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that was found, or that could be there. `name` outlives a restart; `device` is where it is now."""

    name: str
    device: str = ""
    state: State = "usable"
    why: Cause = ""
    reason: str = ""
    cure: str = ""


class Disk(Item, frozen=True, omit_defaults=True, kw_only=True):
    """A disk or card with blocks."""

    kind: str = ""  # "SD card", "eMMC", "NVMe", "USB", "SATA", "virtual", or nothing
    model: str = ""
    size_mib: int = 0


class GpioChip(Item, frozen=True, omit_defaults=True, kw_only=True):
    """A GPIO chip, named by its label: its number changes between kernels."""

    lines: int = 0
    header: bool = False  # the pins of a Raspberry Pi's header


class I2cBus(Item, frozen=True, omit_defaults=True, kw_only=True):
    """An I2C bus. Addresses are written like 0x68, with what is known of each."""

    adapter: str = ""
    probed: bool = False  # false: only what the kernel knows already; it is not safe to ask here
    addresses: dict[str, str] = {}


class SpiDevice(Item, frozen=True, omit_defaults=True, kw_only=True):
    """A chip select of an SPI bus."""


class Camera(Item, frozen=True, omit_defaults=True, kw_only=True):
    """A camera on USB or on the board's camera port."""

    kind: str = ""  # "USB" or "CSI"
    model: str = ""


class Stream(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One direction of a sound card. Without rates the kernel's files name none; they are known once it is opened."""

    rates: tuple[int, ...] = ()  # Hz
    channels: int = 0


class SoundCard(Item, frozen=True, omit_defaults=True, kw_only=True):
    """An ALSA card, named by its id."""

    driver: str = ""
    model: str = ""
    capture: Stream | None = None
    playback: Stream | None = None


class SerialPort(Item, frozen=True, omit_defaults=True, kw_only=True):
    """A serial port, named by its stable id under /dev/serial/by-id where it has one."""

    driver: str = ""
    model: str = ""
    usb: str = ""  # vendor:product


class PwmChip(Item, frozen=True, omit_defaults=True, kw_only=True):
    """A PWM chip, named by the hardware below it: its number changes between kernels."""

    channels: int = 0


class Wifi(Item, frozen=True, omit_defaults=True, kw_only=True):
    """A Wi-Fi interface."""

    driver: str = ""


class Hardware(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The facts. `problems`: the parts that could not be scanned, and why."""

    board: str = ""
    revision: str = ""  # a Raspberry Pi's revision code
    machine: str = ""  # the instruction set, as `uname -m` says it
    kernel: str = ""
    cpu: str = ""
    cpus: int = 0
    cpu_mhz: int = 0
    memory_mib: int = 0
    disks: tuple[Disk, ...] = ()
    gpio: tuple[GpioChip, ...] = ()
    i2c: tuple[I2cBus, ...] = ()
    spi: tuple[SpiDevice, ...] = ()
    cameras: tuple[Camera, ...] = ()
    sound: tuple[SoundCard, ...] = ()
    serial: tuple[SerialPort, ...] = ()
    pwm: tuple[PwmChip, ...] = ()
    wifi: tuple[Wifi, ...] = ()
    problems: dict[str, str] = {}


KINDS = ("disks", "gpio", "i2c", "spi", "cameras", "sound", "serial", "pwm", "wifi")
"""The members of `Hardware` that are lists of items."""


class WifiReading(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a Wi-Fi link is now. None: not told here."""

    connected: bool = False
    signal_dbm: int | None = None
    band: str = ""  # "2.4 GHz", "5 GHz", "6 GHz"
    power_saving: bool | None = None


class Readings(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What changes by itself. None: not told here."""

    temperature: float | None = None  # degrees Celsius of the processor
    cpu_mhz: int | None = None
    under_voltage: bool | None = None
    throttled: tuple[str, ...] = ()  # what is so now
    throttled_before: tuple[str, ...] = ()  # what has been so since the start of the machine
    memory_free_mib: int | None = None
    disk_free_mib: int | None = None
    wifi: dict[str, WifiReading] = {}


def items(hardware: Hardware) -> Iterator[tuple[str, Item]]:
    """Every item with its kind."""
    for kind in KINDS:
        for item in getattr(hardware, kind):
            yield kind, item


def with_missing(now: Hardware, before: Hardware) -> Hardware:
    """What is now, and besides, as unavailable, what was found before and is missing. Nothing vanishes.

    What only could have been there (a bus that was switched off) is not missed. A part that could not be scanned is
    kept as it was.
    """
    changes: dict[str, Any] = {}
    for kind in KINDS:
        found = getattr(now, kind)
        if kind in now.problems and not found:
            changes[kind] = getattr(before, kind)
            continue
        names = {item.name for item in found}
        missed = [item for item in getattr(before, kind) if item.name not in names and item.why != "overlay"]
        if missed:
            changes[kind] = (*found, *(_gone(item) for item in missed))
    return msgspec.structs.replace(now, **changes) if changes else now


def _gone(item: Item) -> Item:
    return msgspec.structs.replace(item, device="", state="unavailable", why="gone", reason=GONE, cure=GONE_CURE)
