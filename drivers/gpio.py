"""GPIO lines by their two names: the number on a Raspberry Pi's header, and chip and line. Who owns one, is said once.

A driver marks the keys of its configuration that name a line with `"gpio": true` in their schema. From that, and
without the driver, two devices on one line are found before either is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from edgepanda.drivers.contract import JsonSchema

HEADER_LABELS = ("pinctrl-rp1", "pinctrl-bcm2711", "pinctrl-bcm2835")
"""Labels of the gpiochips that a Raspberry Pi's header is on."""

MARK = "gpio"
"""The member of a property's schema which says that its value is a GPIO line."""


class Line(NamedTuple):
    """One line. `chip` is None for a number on the header of a Raspberry Pi, whose chip is not known yet."""

    chip: str | None
    number: int
    simulated: bool = False

    def __str__(self) -> str:
        return f"GPIO{self.number}" if self.chip is None else f"{self.chip} line {self.number}"

    def on(self, header: str | None) -> Line:
        """The line by its chip, where the header's chip is known."""
        return self._replace(chip=header) if self.chip is None and not self.simulated else self


class Owner(NamedTuple):
    """A device, its configuration, and the schema of that, which its driver gives (None: not known)."""

    device: str
    config: dict[str, Any]
    schema: JsonSchema | None


class Clash(NamedTuple):
    """Two devices on one line, each with the key and the line as its configuration names it."""

    device: str
    key: str
    line: Line
    other: str
    other_key: str
    other_line: Line

    def __str__(self) -> str:
        if self.line == self.other_line:
            return f"{self.line} belongs to the device {self.other!r} already"
        return f"{self.line} is {self.other_line}, which belongs to the device {self.other!r} already"


def declared_lines(owner: Owner) -> dict[str, Line]:
    """The lines that a device's configuration names, by key. A value that is none is left to its driver."""
    properties = (owner.schema or {}).get("properties", {})
    simulated = owner.config.get("simulate") is True
    found: dict[str, Line] = {}
    for key, value in owner.config.items():
        about = properties.get(key)
        if isinstance(about, dict) and about.get(MARK) is True:
            many = value if isinstance(value, list) else [value]
            named = [_line(each, simulated) for each in many]
            for at, line in enumerate(named):
                if line is not None:
                    found[key if len(many) == 1 else f"{key}[{at}]"] = line
    return found


def _line(value: object, simulated: bool) -> Line | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return Line(None, value, simulated)
    if isinstance(value, dict):
        chip, number = value.get("chip"), value.get("line")
        if isinstance(chip, str) and isinstance(number, int) and not isinstance(number, bool):
            return Line(chip, number, simulated)
    return None


def find_clash(device: Owner, others: Iterable[Owner], header: str | None) -> Clash | None:
    """The first of the others that has a line of this device. Pure.

    `header`: the chip of a Raspberry Pi's header; None where that is not known, and then a number and a line by its
    chip are never taken for one. A simulated line is never a real one.
    """
    mine = declared_lines(device)
    for other in others:
        for other_key, theirs in declared_lines(other).items():
            for key, line in mine.items():
                if line.on(header) == theirs.on(header):
                    return Clash(device.device, key, line, other.device, other_key, theirs)
    return None
