"""`doctor`: looks this machine over."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgepanda import __version__
from edgepanda.cli.common import Settings, command, quiet
from edgepanda.cli.exits import FAILED, OK
from edgepanda.cli.out import emit, hint, say

if TYPE_CHECKING:
    from edgepanda.doctor.examine import Examination
    from edgepanda.doctor.finding import Finding

WITHIN = 10.0  # seconds for each check
_MARKS = {"fault": ("fault", "red"), "warning": ("warn", "yellow"), "ok": ("ok", "green")}


@command(
    "doctor",
    timeout_help="How long each check may take; all run at once (default: 10s).",
    examples="edgepanda doctor\nedgepanda doctor --json\nedgepanda doctor --report\n"
    "sudo edgepanda doctor --config /etc/edgepanda/edgepanda.toml",
    returns="Exit codes: 0 no faults (there may be warnings), 1 at least one fault, 2 wrong usage, 130 Ctrl-C.",
)
@click.option(
    "--report",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Write one archive for a bug report: these findings, configuration, versions, logs, units, hardware and card, "
    "without secrets (default: edgepanda-report-HOST-TIME.tar.gz here).",
)
def doctor_command(settings: Settings, report: str | None) -> int:
    """Look this machine over and say what is wrong, where, and what to do.

    Configuration, keys, clock, disk, memory, hardware, broker, coordinator, node, devices, groups, systemd units. It
    changes nothing, moves nothing, and works without a configuration, a node, a broker or a network. A fault keeps
    something from working; a warning may, or could not be found out.
    """
    quiet(settings)
    began = time.monotonic()
    found = asyncio.run(_examine(settings))
    document = as_document(found, time.monotonic() - began)
    written = _write_report(found, document, report, settings) if report is not None else {}
    if settings.json:
        emit({**document, **written})
    else:
        show(found.findings)
        if written:
            say(f"\nwrote {written['report']}: {', '.join(written['contains'])}")
            hint("Secrets were taken out of it. Names, addresses and paths are in it: look before you send it.")
    return FAILED if any(finding.level == "fault" for finding in found.findings) else OK


async def _examine(settings: Settings) -> Examination:
    from edgepanda.doctor.examine import examine

    shown = sys.stderr.isatty() and not settings.json and not settings.verbose

    def progress(waiting: set[str]) -> None:
        if shown:
            text = f"looking at {', '.join(sorted(waiting))}"[:78] if waiting else ""
            click.echo(f"\r\033[K{text}", nl=False, err=True)

    return await examine(settings.config, within=settings.timeout or WITHIN, progress=progress)


def _write_report(found: Examination, document: dict[str, Any], report: str, settings: Settings) -> dict[str, Any]:
    """The archive's name, and what is in it. Raises `EdgePandaError` (`report_unwritable`)."""
    from edgepanda.doctor.report import file_name, gather, write

    path = Path(report or file_name())
    files = asyncio.run(gather(found, document, within=settings.timeout or WITHIN))
    write(path, files)
    return {"report": str(path), "contains": list(files)}


def as_document(found: Examination, seconds: float) -> dict[str, Any]:
    """The answer for programs: its members and those of each finding do not change."""
    import msgspec

    levels = [finding.level for finding in found.findings]
    return {
        "ok": "fault" not in levels,
        "version": __version__,
        "config": found.path,
        "faults": levels.count("fault"),
        "warnings": levels.count("warning"),
        "seconds": round(seconds, 2),
        "findings": msgspec.to_builtins(found.findings),
    }


def show(findings: list[Finding]) -> None:
    """One screen: areas with faults first, then those with warnings; each with place and cure."""
    for line in lines(findings):
        say(line)
    faults, warnings = (sum(each.level == level for each in findings) for level in ("fault", "warning"))
    told = f"{_count(faults, 'fault')}, {_count(warnings, 'warning')}"
    say(f"\n{click.style(told, fg='red' if faults else 'yellow' if warnings else 'green', bold=True)}")
    if faults or warnings:
        hint("More about a code: edgepanda explain CODE")


def lines(findings: list[Finding]) -> list[str]:
    """What a person reads, without the sum. Pure but for colours."""
    from edgepanda.doctor.finding import LEVELS, worst

    areas: dict[str, list[Finding]] = {}
    for finding in findings:
        areas.setdefault(finding.area, []).append(finding)
    told = []
    for area, some in sorted(areas.items(), key=lambda pair: LEVELS.index(worst(pair[1]))):
        for number, finding in enumerate(sorted(some, key=lambda each: LEVELS.index(each.level))):
            word, colour = _MARKS[finding.level]
            head = f"{area if number == 0 else '':<14}{click.style(f'{word:<6}', fg=colour)}"
            if finding.level == "ok":
                told.append(f"{head}{finding.found}")
                continue
            told.append(f"{head}{finding.found}  ({finding.where}) [{finding.code}]")
            told.append(f"{'':<20}{click.style('do:', bold=True)} {finding.cure}")
    return told


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
