"""Does what the documents by goal say, in Debian trees.

    python tests/containers/guides.py first ROOT [NSPAWN_OPTION...]
    python tests/containers/guides.py second ROOT ROOT [NSPAWN_OPTION...]

ROOT is a tree with a user who may use sudo and has a clone in ~/edgepanda. `second` begins where `first` has ended in
both, without anything but the installed packages, and gives the two a network of their own. Prints what was typed, and
how long it took until the servo obeyed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.rig.container import Container  # noqa: E402 found through the line above
from tests.rig.guide import Step, read, until  # noqa: E402
from tests.rig.machine import join  # noqa: E402
from tests.rig.reader import Reader  # noqa: E402

FIRST, SECOND = (read(ROOT / "docs/guide" / name) for name in ("first-servo.md", "second-pi.md"))
OBEYS, JOINS = "do pan.move", "do shed/pan.move"


def take(reader: Reader, steps: Iterable[Step], command: str) -> None:
    """All steps, with the time and the number of commands up to this one."""
    began, typed, obeyed = time.monotonic(), 0, False
    for step in steps:
        print(f"{step.machine}$ {step.text}", flush=True)
        reader.take(step)
        typed += not obeyed
        if command in step.text and not obeyed:
            obeyed = True
            print(f"time: {time.monotonic() - began:.1f} s and {typed} commands", flush=True)


def first(root: str, *options: str) -> None:
    """The first servo, from the clone on."""
    with Container("pi1", Path(root), list(options)) as machine:
        reader = Reader({"pi1": machine})
        take(reader, FIRST.steps, OBEYS)
        reader.leave()


def second(one: str, other: str, *options: str) -> None:
    """A second machine, from a servo that obeys on."""
    private = ["--private-network", *options]
    pi1, pi2 = Container("pi1", Path(one), private), Container("pi2", Path(other), private)
    for machine in (pi1, pi2):
        machine.start_over()
    with pi1, pi2:
        join(pi1, pi2)
        reader = Reader({"pi1": pi1, "pi2": pi2})
        for step in until(FIRST, OBEYS):
            reader.take(step)
        take(reader, SECOND.steps, JOINS)
        reader.leave()


if __name__ == "__main__":
    {"first": first, "second": second}[sys.argv[1]](*sys.argv[2:])
