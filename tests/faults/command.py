"""The command `tests/faults/run`: random faults against real processes, and whether every promise held."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.faults.harness import CALM_WITHIN, Run
from tests.rig.brokers import Embedded, Mosquitto

PLANTED = Path(__file__).with_name("planted")


class Plant(NamedTuple):
    """A planted fault: the seed at which it is found, and the broken promise that shows it."""

    seed: int
    shows: str


PLANTS = {
    "answer_before_commit": Plant(13, "lost; the submit was answered"),
    "counters_forgotten": Plant(13, "is back after it was removed"),
    "leases_endless": Plant(38, "stuck in"),
    "permit_skipped": Plant(38, "unsafe, and begun"),
    "released_forgotten": Plant(1, "stands after all were released"),
    "said_once": Plant(1, "stuck in"),
    "success_assumed": Plant(26, "a success of what never began"),
    "unsafe_again": Plant(5, "unsafe, and begun"),
}


def planted(name: str) -> dict[str, str]:
    """The variables with which processes have this fault."""
    return {"PYTHONPATH": str(PLANTED), "EDGEPANDA_PLANTED": name} if name else {}


async def run(args: argparse.Namespace, folder: Path) -> list[str]:
    """One run as the options say; prints what it does, gives the broken promises."""
    broker = Embedded() if args.broker == "embedded" else Mosquitto()
    run = Run(
        folder,
        broker,
        seconds=args.seconds,
        seed=args.seed,
        tasks=args.tasks or int(args.seconds * 10),
        every=args.every,
        calm=args.calm,
        environment=planted(args.planted),
    )
    began = time.monotonic()
    async with run:
        found = await run.go()
        print(f"faults: {run.counts.total()} {dict(sorted(run.counts.items()))}")
        print(f"packets: {dict(sorted(run.proxy.counts.items()))}")
    print(f"tasks: {run.model.counts()}, in {time.monotonic() - began:.0f} s")
    return found


def main(argv: list[str] | None = None) -> int:
    """The command; 0: every promise held, 1: not."""
    parser = argparse.ArgumentParser(prog="tests/faults/run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="for which faults strike (30)")
    parser.add_argument("--seed", type=int, default=None, help="of faults and work (by chance)")
    parser.add_argument("--broker", choices=("mosquitto", "embedded"), default="mosquitto")
    parser.add_argument("--tasks", type=int, default=0, help="how many (10 a second)")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between faults, on average (0.5)")
    parser.add_argument("--keep", type=Path, default=None, help="a new folder for all files and logs, which stays")
    parser.add_argument("--calm", type=float, default=CALM_WITHIN, help="seconds in which all must then end (60)")
    parser.add_argument(
        "--planted", choices=PLANTS, default="", help="a fault to find, 0: found; its seed if none is given"
    )
    args = parser.parse_args(argv)
    if args.seed is None and args.planted:
        args.seed = PLANTS[args.planted].seed
    args.seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"seed {args.seed}, {args.seconds:g} s, {args.broker}", flush=True)
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        logging.basicConfig(filename=folder / "client.log", level=logging.INFO, format="%(asctime)s %(message)s")
        found = asyncio.run(run(args, folder))
    for line in found[:50]:
        print(f"BROKEN {line}")
    if args.planted:
        return _told(args.planted, found)
    if found:
        again = f"--seconds {args.seconds:g} --seed {args.seed} --broker {args.broker} --every {args.every:g}"
        print(f"{len(found)} promises broken; again: tests/faults/run {again} --tasks {args.tasks} --keep FOLDER")
        return 1
    print("every promise held")
    return 0


def _told(name: str, found: list[str]) -> int:
    plant = PLANTS[name]
    shown = [line for line in found if plant.shows in line]
    print(f"{name}: found, by {len(shown)} of {len(found)} lines: {shown[0]}" if shown else f"{name}: NOT FOUND")
    return 0 if shown else 1


if __name__ == "__main__":
    sys.exit(main())
