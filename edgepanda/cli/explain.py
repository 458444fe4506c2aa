"""`explain`: what an error's code means, and what to do."""

from __future__ import annotations

import difflib

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, fields, say
from edgepanda.errors import EdgePandaError


@command(
    "explain",
    timeout_help="",
    examples="edgepanda explain broker_unreachable\nedgepanda explain\nedgepanda explain --json",
    returns="Exit codes: 0 explained, 2 there is no such code.",
)
@click.argument("code", required=False)
def explain_command(settings: Settings, code: str | None) -> None:
    """What an error's code means, and what to do.

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
    name = code.strip("[]")
    if name not in CODES:
        near = difflib.get_close_matches(name, CODES, n=1)
        raise EdgePandaError(
            f"there is no code {name!r}",
            code="usage",
            where="CODE",
            cure=f"did you mean {near[0]!r}?" if near else "`edgepanda explain` lists all",
        )
    entry = CODES[name]
    if settings.json:
        emit({"code": name, **entry._asdict()})
    else:
        fields([("code", name), ("means", entry.meaning), ("do", entry.cure)], indent="")
