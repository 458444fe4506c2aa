"""When which fault strikes: pure, and the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

NODES = ("one", "two")
CLIENTS = ("epn", "epc", "epo", "")  # how client ids begin: nodes, coordinator, operators, everybody
QUIET = 1.0  # seconds at both ends of a run without faults


@dataclass(frozen=True)
class Fault:
    """`at` and `lasts` in seconds; `victim`: a process, or how a client id begins; `strength` from 0 to 1."""

    at: float
    kind: str
    victim: str = ""
    lasts: float = 0.0
    strength: float = 0.0


KINDS: tuple[tuple[str, tuple[str, ...], float, int], ...] = (  # kind, victims, longest, how often
    ("kill", ("broker",), 1.0, 2),
    ("pause", ("broker",), 3.0, 1),
    ("kill", ("coordinator",), 2.0, 4),
    ("pause", ("coordinator",), 5.0, 2),
    ("kill", NODES, 2.0, 4),
    ("pause", NODES, 6.0, 3),
    ("kill_host", NODES, 0.0, 3),
    ("pause_host", NODES, 3.0, 2),
    ("delay", CLIENTS, 3.0, 2),
    ("repeat", CLIENTS, 3.0, 2),
    ("reorder", CLIENTS, 3.0, 2),
    ("swallow", CLIENTS, 3.0, 4),
    ("deaf", CLIENTS, 5.0, 2),
    ("cut", CLIENTS, 0.0, 2),
    ("echo", ("",), 0.0, 3),
    ("stop", ("",), 1.0, 1),
    ("guest", ("",), 0.0, 1),
)
WEATHER = frozenset({"delay", "repeat", "reorder", "swallow", "deaf"})


def schedule(seed: int, seconds: float, every: float) -> list[Fault]:
    """Faults in the order of their times, one each `every` seconds on average; a victim has one at a time."""
    chance = random.Random(seed)
    weights = [often for *_, often in KINDS]
    busy: dict[str, float] = {}
    faults = []
    at = QUIET
    while (at := at + chance.expovariate(1 / every)) < seconds - QUIET:
        kind, victims, longest, _ = chance.choices(KINDS, weights)[0]
        victim, lasts, strength = chance.choice(victims), chance.random() * longest, chance.random()
        place = "weather" if kind in WEATHER else f"host of {victim}" if kind.endswith("_host") else victim or kind
        if busy.get(place, 0.0) <= at:
            busy[place] = at + lasts + 0.3
            faults.append(Fault(round(at, 3), kind, victim, round(lasts, 3), round(strength, 3)))
    return faults
