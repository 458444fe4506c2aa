"""The hardware scan: what this machine is made of, what can be used, and why the rest cannot.

Each kind has a file with one function over a `Root`. All is read from files below a root folder, which may be a tree of
another board's files; what only the live machine can tell is asked through an `Edge`. A scan never fails as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgepanda.model.hardware import Hardware
from edgepanda.node.scan import board, cameras, disks, gpio, i2c, pwm, serial, sound, spi, wifi
from edgepanda.node.scan.edge import Edge, Owner, StuckBus, User
from edgepanda.node.scan.reading import readings
from edgepanda.node.scan.root import Root

__all__ = ["Edge", "Owner", "StuckBus", "User", "readings", "scan"]

log = logging.getLogger("edgepanda.node")

MACHINE: dict[str, Callable[[Root], dict[str, Any]]] = {
    "board": board.board,
    "system": board.system,
    "cpu": board.cpu,
    "memory": board.memory,
}
LISTS: dict[str, Callable[[Root], tuple[Any, ...]]] = {
    "disks": disks.disks,
    "gpio": gpio.gpio,
    "i2c": i2c.i2c,
    "spi": spi.spi,
    "cameras": cameras.cameras,
    "sound": sound.sound,
    "serial": serial.serial,
    "pwm": pwm.pwm,
    "wifi": wifi.wifi,
}


def scan(root: Path = Path("/"), edge: Edge | None = None) -> Hardware:
    """Scan the machine, or the files below another root. Blocks: at most 2 s for each I2C bus. Raises nothing."""
    tree = Root(root, edge)
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, describe in MACHINE.items():
        try:
            found.update(describe(tree))
        except Exception as error:
            problems[name] = _problem(name, error)
    for name, list_all in LISTS.items():
        try:
            found[name] = list_all(tree)
        except Exception as error:
            problems[name] = _problem(name, error)
    return Hardware(**found, problems=problems)


def _problem(name: str, error: Exception) -> str:
    log.warning("%s cannot be scanned", name, exc_info=error)
    return f"this part cannot be scanned: {type(error).__name__}: {error}"
