"""Does what the documents by goal say, in Debian trees: `python tests/containers/guides.py ROOT [NSPAWN_OPTION...]`.

ROOT is a tree with a user who may use sudo and has a clone in ~/edgepanda. Prints what was typed and how long it took.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.rig.container import Container  # noqa: E402 found through the line above
from tests.rig.guide import read  # noqa: E402
from tests.rig.reader import Reader  # noqa: E402

OBEYS = "do pan.move"


def first_servo(tree: Path, options: list[str]) -> None:
    """The whole page, and the time from the clone to the servo that obeys."""
    steps = read(ROOT / "docs/guide/first-servo.md").steps
    began, typed, obeyed = time.monotonic(), 0, False
    with Container("pi1", tree, options) as machine:
        reader = Reader({"pi1": machine})
        for step in steps:
            print(f"{step.machine}$ {step.text}", flush=True)
            reader.take(step)
            typed += not obeyed
            if OBEYS in step.text and not obeyed:
                obeyed = True
                print(f"time: {time.monotonic() - began:.1f} s and {typed} commands from the clone", flush=True)
        reader.leave()


if __name__ == "__main__":
    first_servo(Path(sys.argv[1]), sys.argv[2:])
