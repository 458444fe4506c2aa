"""One task as a picture: a scale of time, and below it who held it when. Pure: events in, lines out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from edgepanda.cli.out import span as roughly
from edgepanda.model.states import ENDED, NEEDS_PERSON

NARROWEST = 20  # cells of the picture
TICK = 10  # cells between two marks of the scale, at least
MOST_ATTEMPTS = 12  # that are drawn; of more, the first and the newest
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600)
_LONG_STEPS = (7200, 21_600, 43_200, 86_400, 172_800, 604_800)
_HELD = frozenset({"leased", "running", "waiting_answer"})


class Glyphs(NamedTuple):
    """What a picture is drawn with."""

    waits: str
    leased: str
    runs: str
    person: str
    line: str
    tick: str
    rest: str


UNICODE = Glyphs("·", "░", "█", "▒", "─", "┴", "…")
ASCII = Glyphs(".", "-", "#", "?", "-", "+", "...")
MARKS = {"permitted": "P", "progress": "o", "cancel": "C", "declined": "D", "lost": "L", "interrupted": "I"}
MEANING = {
    "permitted": "permit",
    "progress": "progress",
    "cancel": "cancel asked",
    "declined": "declined",
    "lost": "lease lost",
    "interrupted": "cut short",
}


class _Stretch(NamedTuple):
    """A state that lasted, in wall seconds."""

    state: str
    attempt: int
    begin: float
    end: float


class _Lane(NamedTuple):
    name: str
    cells: str
    taken: float


def picture(events: Sequence[dict[str, Any]], *, now: float, width: int = 80, unicode: bool = True) -> list[str]:
    """Lines no longer than `width` (at least about 50) columns: scale, lanes, marks, what the letters mean, the end.

    `events` are `task.events` of one task, in order; `now` (wall seconds) is where a task that goes on is drawn to.
    """
    if not events:
        return ["nothing is known of it"]
    glyphs = UNICODE if unicode else ASCII
    stretches, nodes = _stretches(events, now)
    begin = events[0]["at"]
    end = max([begin + 0.001, *(event["at"] for event in events), *(stretch.end for stretch in stretches)])
    names = _names(stretches, nodes, events)
    left = max(len(name) for name in [*names.values(), "marks"]) + 2
    cells = max(NARROWEST, width - left - 8)
    canvas = _Canvas(begin, end, cells, glyphs)
    lanes = [canvas.lane(name, [s for s in stretches if _key(s) == key]) for key, name in names.items()]
    lines = [f"{'':{left}}{line}" for line in canvas.scale()]
    lines += [f"{lane.name:<{left}}{lane.cells} {exactly(lane.taken):>6}" for lane in _shortened(lanes, glyphs)]
    if marks := canvas.marks(events):
        lines.append(f"{'marks':<{left}}{marks}".rstrip())
    lines = [line.rstrip() for line in lines]
    return [*lines, *_legend(stretches, events, glyphs, width), _last(events[-1], stretches, end - begin)]


def _stretches(events: Sequence[dict[str, Any]], now: float) -> tuple[list[_Stretch], dict[int, str]]:
    """The states with their times, and the node of each attempt."""
    found: list[_Stretch] = []
    nodes: dict[int, str] = {}
    state, since, attempt = "", 0.0, 0
    for event in events:
        data, newest = event["data"] or {}, event["attempt"] or attempt
        if data.get("node") and event["attempt"] is not None:
            nodes.setdefault(event["attempt"], data["node"])
        after = str(data.get("state") or ("running" if event["kind"] == "direct" else state))
        if (after, newest) != (state, attempt):
            if state and state not in ENDED:
                found.append(_Stretch(state, attempt, since, event["at"]))
            state, since, attempt = after, event["at"], newest
    if state and state not in ENDED:
        found.append(_Stretch(state, attempt, since, max(since, now)))
    return found, nodes


def _key(stretch: _Stretch) -> str:
    return str(stretch.attempt) if stretch.state in _HELD else stretch.state


def _names(stretches: Sequence[_Stretch], nodes: dict[int, str], events: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The lanes in the order of their first stretch."""
    names: dict[str, str] = {}
    for stretch in stretches:
        held = stretch.state in _HELD
        number = f"attempt {stretch.attempt}" if stretch.attempt else "direct"
        name = f"{number} {nodes.get(stretch.attempt, '')}".rstrip() if held else stretch.state
        names.setdefault(_key(stretch), name)
    return names or {"": str((events[-1]["data"] or {}).get("state", events[-1]["kind"]))}


class _Canvas:
    """Times to cells."""

    def __init__(self, begin: float, end: float, cells: int, glyphs: Glyphs) -> None:
        self.begin, self.length, self.cells, self.glyphs = begin, end - begin, cells, glyphs

    def cell(self, at: float) -> int:
        """The cell of a moment; the end is one beyond the last."""
        return max(0, min(self.cells, round((at - self.begin) / self.length * self.cells)))

    def scale(self) -> list[str]:
        """Numbers, and the line with a mark below the first digit of each."""
        step = _step(self.length, self.cells)
        numbers, line = [" "] * (self.cells + 8), [self.glyphs.line] * self.cells
        for count in range(int(self.length / step + 1e-9) + 1):
            at = min(self.cells - 1, round(count * step / self.length * self.cells))
            line[at] = self.glyphs.tick
            for place, letter in enumerate(exactly(count * step) if count else "0", at):
                if place < len(numbers):
                    numbers[place] = letter
        return ["".join(numbers).rstrip(), "".join(line)]

    def lane(self, name: str, stretches: Sequence[_Stretch]) -> _Lane:
        """A row of bars; what lasted however shortly takes a cell."""
        row = [" "] * self.cells
        for stretch in stretches:
            first = min(self.cells - 1, self.cell(stretch.begin))
            last = max(first + 1, self.cell(stretch.end))
            row[first:last] = self._glyph(stretch.state) * (last - first)
        return _Lane(name, "".join(row), sum(stretch.end - stretch.begin for stretch in stretches))

    def _glyph(self, state: str) -> str:
        if state in NEEDS_PERSON:
            return self.glyphs.person
        return {"leased": self.glyphs.leased, "running": self.glyphs.runs}.get(state, self.glyphs.waits)

    def marks(self, events: Sequence[dict[str, Any]]) -> str:
        """A row of letters; empty where there is nothing to mark."""
        row = [" "] * self.cells
        for event in events:
            if letter := MARKS.get(event["kind"]):
                row[min(self.cells - 1, self.cell(event["at"]))] = letter
        return "".join(row).rstrip()


def _step(length: float, cells: int) -> float:
    """A round length of time whose marks are far enough from each other."""
    enough = length * TICK / cells
    return next((step for step in (*_STEPS, *_LONG_STEPS) if step >= enough), enough)


def exactly(seconds: float) -> str:
    """A length of time in at most six letters: 4ms, 1.5s, 12s, 2m30s, 3h05m, 2d."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 59.5:
        return f"{seconds:.1f}".removesuffix(".0") + "s" if seconds < 9.95 else f"{seconds:.0f}s"
    if seconds < 86_400:
        size, unit, small, mark = (60, "m", 1, "s") if seconds < 3600 else (3600, "h", 60, "m")
        rest = int(seconds % size / small)
        return f"{int(seconds // size)}{unit}" + (f"{rest:02d}{mark}" if rest else "")
    return roughly(seconds)


def _shortened(lanes: Sequence[_Lane], glyphs: Glyphs) -> list[_Lane]:
    held = [lane for lane in lanes if lane.name.startswith("attempt ")]
    if len(held) <= MOST_ATTEMPTS:
        return list(lanes)
    left_out = set(held[2 : 2 - MOST_ATTEMPTS])
    first = held[2]
    gap = _Lane(glyphs.rest, f"{len(left_out)} more attempts", sum(lane.taken for lane in left_out))
    gap = gap._replace(cells=gap.cells.ljust(len(first.cells)))
    return [gap if lane is first else lane for lane in lanes if lane is first or lane not in left_out]


def _legend(stretches: Sequence[_Stretch], events: Sequence[dict[str, Any]], glyphs: Glyphs, width: int) -> list[str]:
    states = {stretch.state for stretch in stretches}
    words = [
        (glyphs.waits, "waits", bool(states - _HELD - NEEDS_PERSON)),
        (glyphs.leased, "leased", "leased" in states),
        (glyphs.runs, "runs", "running" in states),
        (glyphs.person, "needs a person", bool(states & NEEDS_PERSON)),
    ]
    kinds = {event["kind"] for event in events}
    words += [(letter, MEANING[kind], kind in kinds) for kind, letter in MARKS.items()]
    lines: list[str] = []
    for said in (f"{glyph} {text}" for glyph, text, used in words if used):
        if lines and len(lines[-1]) + 2 + len(said) <= width:
            lines[-1] += f"  {said}"
        else:
            lines.append(said)
    return lines


def _last(event: dict[str, Any], stretches: Sequence[_Stretch], length: float) -> str:
    state = str((event["data"] or {}).get("state") or (stretches[-1].state if stretches else event["kind"]))
    return f"{state} after {exactly(length)}" if state in ENDED else f"{state} since {exactly(_since(stretches))}"


def _since(stretches: Sequence[_Stretch]) -> float:
    return stretches[-1].end - stretches[-1].begin if stretches else 0.0
