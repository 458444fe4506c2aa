"""`audit`: the ledger's proof, and the ledger itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.common import Settings, ask, command
from edgepanda.cli.events import describe
from edgepanda.cli.exits import FAILED, OK
from edgepanda.cli.out import clock, emit, fields, hint, say

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient


@command(
    "verify",
    short_help="Check the whole ledger; 1 if it does not hold",
    timeout_help="How long to wait for the broker (the check itself may take minutes).",
    examples="edgepanda audit verify\nedgepanda audit verify --offline\nedgepanda audit verify --json",
    returns="Exit codes: 0 the ledger holds, 1 it does not, 2 wrong usage, 3 unreachable or no answer.",
)
@click.option("--offline", is_flag=True, help="Check the file on this machine, without coordinator and witnesses.")
def _verify(settings: Settings, offline: bool) -> int:
    """Check the whole ledger: its hash chain, its payloads, the state of the tasks.

    The coordinator asks the nodes for the newest point of the ledger that each has seen: so a tail that was cut off is
    found. Where there is no such witness it says so.
    """
    found = _offline(settings) if offline else ask(settings, lambda client: client.verify())
    if settings.json:
        emit(found)
    else:
        show_proof(found)
    return OK if found["ok"] else FAILED


def show_proof(found: dict[str, Any]) -> None:
    """What a verification found."""
    head = found["head"]
    say(click.style("the ledger holds", fg="green") if found["ok"] else click.style("THE LEDGER IS DAMAGED", fg="red"))
    witnesses = found.get("witnesses")
    names = ", ".join(sorted(witnesses)) if isinstance(witnesses, dict) else ""
    fields(
        [
            ("ledger", found["ledger"]),
            ("chain", f"{found['height']} entries, {found['payloads']} payloads, {found['dropped']} dropped"),
            ("head", f"{head['hash'][:32]}..."),
            ("tasks", str(found["tasks"])),
            ("witnesses", names or "none"),
            ("note", found.get("note", "")),
        ]
    )
    for problem in found["problems"]:
        say(f"  {click.style('problem', fg='red')}  {_problem(problem)}")


def _problem(problem: dict[str, Any]) -> str:
    from edgepanda.error_codes import usual_cure

    return f"{problem['message']} (entry {problem['seq']}); {usual_cure(problem['code'])} [{problem['code']}]"


def _offline(settings: Settings) -> dict[str, Any]:
    from edgepanda.coordinator.ledger import Ledger

    loaded = settings.load()
    ledger = Ledger.open(loaded.state_dir / "ledger.db", writable=False)
    try:
        found: dict[str, Any] = msgspec.to_builtins(ledger.verify())
    finally:
        ledger.close()
    return {**found, "witnesses": {}}


@command(
    "log",
    short_help="Print its entries, oldest first",
    examples="""
    edgepanda audit log
    edgepanda audit log --after 100 --limit 20
    edgepanda audit log --task 01h8qk3v2x7c4m9d5e6f --json
    """,
)
@click.option("--task", "task_id", metavar="ID", help="Only entries of this task.")
@click.option("--after", type=click.IntRange(0), default=0, help="Only entries after this number.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="How many.")
def _log(settings: Settings, task_id: str | None, after: int, limit: int) -> None:
    """Print the ledger's entries, oldest first; with --json one object a line, with its hash."""
    rows, more = ask(settings, lambda client: _entries(client, task_id, after, limit))
    for row in rows:
        if settings.json:
            emit(row)
        else:
            text = describe(row["kind"], row["data"] or {}, row["attempt"])
            moment = clock(row["at"], untrusted=bool(row.get("untrusted")))
            say(f"{row['seq']:>7}  {moment}  {row['hash'][:12]}  {row['task'] or '-':<20}  {text}")
    if more and rows and not settings.json:
        hint(f"There are more: --after {rows[-1]['seq']}")


async def _entries(
    client: AsyncClient, task_id: str | None, after: int, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    rows: list[dict[str, Any]] = []
    while True:
        page = await client.events(task_id, after=after, limit=min(100, limit - len(rows)))
        rows += page["events"]
        if not page["events"] or not page["more"] or len(rows) >= limit:
            return rows, bool(page["more"] and page["events"])
        after = rows[-1]["seq"]


audit_command = click.Group(
    "audit",
    no_args_is_help=False,  # then it is an error that names the help
    commands={"verify": _verify, "log": _log},
    help="Prove the ledger, or read it: every task, every decision, in one chain of hashes.",
)
