"""`explain`: what an error's code means, what usually brings it about, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, fields, say
from edgepanda.errors import EdgePandaError

NEAREST = 3  # codes that are named where there is none of that name


@command(
    "explain",
    timeout_help="",
    examples="edgepanda explain broker_unreachable\nedgepanda explain\nedgepanda explain --json",
    returns="Exit codes: 0 explained, 2 there is no such code.",
)
@click.argument("code", required=False)
def explain_command(settings: Settings, code: str | None) -> None:
    """What an error's code means, what usually brings it about, and what to do.

    The code is the word in brackets at the end of an error. Without one all codes are listed.
    """
    from edgepanda.error_codes import AREAS, CODES

    if code is None:
        if settings.json:
            emit({name: entry._asdict() for name, entry in CODES.items()})
            return
        for area, codes in AREAS.items():
            say(click.style(area, bold=True))
            fields([(name, entry.meaning) for name, entry in codes.items()])
        return
    name = code.strip().strip("[]").lower().replace("-", "_")
    entry = CODES.get(name)
    if entry is None:
        raise EdgePandaError(f"there is no code {name!r}", code="usage", where="CODE", cure=_nearest(name, CODES))
    if settings.json:
        emit({"code": name, **entry._asdict()})
        return
    causes = "\n".join(entry.causes)
    fields([("code", name), ("means", entry.meaning), ("usually", causes), ("do", entry.cure)], indent="")


def _nearest(name: str, codes: Iterable[str]) -> str:
    """Codes that look like this one, or that have its words in them."""
    near = difflib.get_close_matches(name, codes, n=NEAREST)
    near = near or [code for code in codes if set(name.split("_")) & set(code.split("_"))][:NEAREST]
    if not near:
        return "`edgepanda explain` lists all"
    return f"did you mean {' or '.join(repr(code) for code in near)}? `edgepanda explain` lists all"
