"""How long Tab takes at a site with 300 devices: `python tests/bench/completion.py`.

The whole process counts: interpreter, cache of names, answer. Held against a bare interpreter, taken in turn with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from edgepanda.cli.names import names_path, remember_nodes, remember_tasks

NODES, DEVICES, RUNS = 30, 300, 20
LINES = (["do", "dev-12"], ["submit", "ser"], ["show", ""], ["tasks", "--node", ""], ["tasks", "--st"])


def card(first: int, count: int) -> dict[str, Any]:
    """A card with so many servos."""
    about = {"args": {"properties": {"angle": {}, "speed": {}, "duration": {}}}}
    return {
        "drivers": {"servo": {"actions": {"move": about, "read": {}, "detach": {}}}},
        "devices": {f"dev-{number}": {"driver": "servo"} for number in range(first, first + count)},
    }


def taken(argv: list[str]) -> float:
    """Seconds from start to end of a process."""
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    program = str(Path(sys.executable).with_name("edgepanda"))
    each = DEVICES // NODES
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"XDG_CACHE_HOME": folder, "HOME": folder, "EDGEPANDA_CONFIG": f"{folder}/edgepanda.toml"}
        Path(folder, "edgepanda.toml").write_text('[site]\nname = "home"\n')
        nodes = [{"name": f"node-{number}", "card": card(number * each, each)} for number in range(NODES)]
        remember_nodes("home", nodes, all_of_them=True)
        remember_tasks("home", [f"01h8qk3v2x7c4m9d{number:04}" for number in range(50)])
        size = os.path.getsize(names_path("home")) // 1024
        print(f"{DEVICES} devices on {NODES} nodes, a cache of {size} KiB, {RUNS} runs\n")
        print("| typed | min | median | bare: min | median | ratio of the medians |\n|---|---|---|---|---|---|")
        for words in LINES:
            argv = [program, "completion", "words", "--", *words]
            taken(argv)  # the first one reads the command's options
            pairs = [(taken(argv), taken([sys.executable, "-c", "pass"])) for _ in range(RUNS)]
            ours, bare = (sorted(column) for column in zip(*pairs, strict=True))
            middle = RUNS // 2
            figures = " | ".join(f"{part * 1000:.0f} ms" for part in (ours[0], ours[middle], bare[0], bare[middle]))
            print(f"| `edgepanda {' '.join(words)}` | {figures} | {ours[middle] / bare[middle]:.2f} |")


if __name__ == "__main__":
    main()
