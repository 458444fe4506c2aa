"""What commands print: JSON, tables, values, times. Plain text; a terminal also gets colours."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

_COLOURS = {
    "succeeded": "green",
    "ready": "green",
    "online": "green",
    "failed": "red",
    "timed_out": "red",
    "expired": "red",
    "unavailable": "red",
    "problem": "red",
    "uncertain": "magenta",
    "waiting_review": "magenta",
    "waiting_answer": "magenta",
    "waiting_consent": "magenta",
    "running": "cyan",
    "leased": "cyan",
}


def emit(value: object) -> None:
    """One JSON document on one line of standard output."""
    print(json.dumps(msgspec.to_builtins(value), ensure_ascii=False), flush=True)


def say(text: str = "") -> None:
    """A line on standard output; colours are dropped where it is no terminal, or with NO_COLOR."""
    click.echo(text, color=False if os.environ.get("NO_COLOR") else None)
    sys.stdout.flush()


def hint(text: str) -> None:
    """A line for a person, on standard error: what to do next."""
    click.echo(text, err=True)


def coloured(word: str) -> str:
    """A state in its colour."""
    colour = _COLOURS.get(word)
    return click.style(word, fg=colour) if colour else word


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Aligned columns; the last one may be long. Words of a state get their colour."""
    lines = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(headers, *lines, strict=True)]
    say(click.style(_aligned(headers, widths), bold=True))
    for line in lines:
        cells = [coloured(cell) + " " * (width - len(cell)) for cell, width in zip(line, widths, strict=True)]
        say("  ".join(cells).rstrip())


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def fields(rows: Iterable[tuple[str, str]], indent: str = "  ") -> None:
    """Names and values below each other; those without a value are left out."""
    for line in aligned_fields(rows, indent):
        say(line)


def aligned_fields(rows: Iterable[tuple[str, str]], indent: str = "  ") -> list[str]:
    """The lines of `fields`."""
    shown = [(name, text) for name, text in rows if text]
    width = max((len(name) for name, _ in shown), default=0)
    lines = []
    for name, text in shown:
        first, *more = text.splitlines()
        lines.append(f"{indent}{name.ljust(width)}  {first}")
        lines += [f"{indent}{' ' * width}  {line}" for line in more]
    return lines


def plain(value: Any) -> str:
    """A value as people write it: `angle=30 attached=true`."""
    if isinstance(value, dict):
        return " ".join(f"{key}={_inner(item)}" for key, item in value.items())
    return _inner(value)


def _inner(value: Any) -> str:
    if isinstance(value, str):
        return value if value and " " not in value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return json.dumps(value, ensure_ascii=False, default=str)


def clock(seconds: float, *, untrusted: bool = False) -> str:
    """A wall time of today with milliseconds, an older one with its date; `~` before one of a clock that nobody set."""
    moment = time.localtime(seconds)
    same_day = moment[:3] == time.localtime()[:3]
    shown = time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", moment)
    return f"{'~' if untrusted else ''}{shown}.{int(seconds % 1 * 1000):03d}"


def span(seconds: float) -> str:
    """A length of time, roughly: 45s, 12m, 3h, 2d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:.0f}s"
