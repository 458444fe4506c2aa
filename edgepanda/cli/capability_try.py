"""`capability try`: runs a command of the user's own as the node would, and names what blocks it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.blocked import Blocked, Seen, as_seen, blocked_by, complained_about
from edgepanda.cli.common import Settings, command, confirmed, quiet
from edgepanda.cli.exits import FAILED, INTERRUPTED, OK
from edgepanda.cli.local import LocalNode
from edgepanda.cli.out import aligned_fields, coloured, emit, hint, plain, say
from edgepanda.errors import EdgePandaError
from edgepanda.model.nearest import did_you_mean

if TYPE_CHECKING:
    from edgepanda.drivers.contract import Probe
    from edgepanda.model.config import Loaded
    from edgepanda.node.hosts import Host

ANSWER_WITHIN = 10.0  # seconds


class Tried(msgspec.Struct, kw_only=True):
    """One run, and what kept it from working."""

    capability: str
    through: str = ""  # the node's name; empty: no node was asked
    outcome: str
    code: str = ""
    message: str = ""
    value: Any = None
    evidence: list[dict[str, Any]] = []
    outputs: list[str] = []
    seen: Seen
    blocked: list[Blocked] = []


class _Ran(msgspec.Struct, kw_only=True):
    """What a run gave, by either way."""

    outcome: str
    code: str = ""
    message: str = ""
    value: Any = None
    evidence: list[dict[str, Any]] = []
    artifacts: list[dict[str, Any]] = []


@command(
    "try",
    short_help="Run it as the node would, and see what blocks it: NAME",
    timeout_help="",
    context_settings={"ignore_unknown_options": True},
    examples="""
    edgepanda capability try disk.free
    edgepanda capability try pump.run seconds=1 --yes
    edgepanda capability try disk.free --json
    """,
    returns="Exit codes: 0 it works; 1 it does not, and what blocked it is shown; 2 wrong usage, or there is no such "
    "capability; 130 not confirmed.",
)
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[VALUE | NAME=VALUE]...", type=click.UNPROCESSED)
@click.option("--yes", is_flag=True, help="Do not ask, where it does more than look.")
def try_command(settings: Settings, name: str, words: tuple[str, ...], yes: bool) -> int:
    """Run a capability for real, once, and show its output, exit code and evidence; when it fails, name the option that
    blocked it: a path, a time or memory limit, a permission, a variable, result.json.

    The running node runs it, so with its own user, limits and view of the disk. Where none runs, a driver host is
    started for it, as the user that owns the node's state, and Ctrl-C ends the program. It asks before anything that
    does more than look.
    """
    quiet(settings)
    loaded = settings.load()
    entry = known_capability(loaded, name)
    if not yes and (entry["tier"] > 0 or entry["replay"] != "safe") and not _confirmed(settings, name, entry):
        hint("nothing was run")
        return INTERRUPTED
    try:
        tried = asyncio.run(_try(loaded, name, entry, words))
    except KeyboardInterrupt:
        if LocalNode.of(loaded).present:
            hint("the node goes on with it, up to its time limit; `edgepanda status` shows it")
        raise
    if settings.json:
        emit({**msgspec.to_builtins(tried), "ok": tried.outcome == "succeeded"})
    else:
        _show(tried)
    return OK if tried.outcome == "succeeded" else FAILED


def known_capability(loaded: Loaded, name: str) -> dict[str, Any]:
    """Its entry. Raises `EdgePandaError` (`unknown_capability`) with the nearest."""
    known = loaded.config.capabilities
    if name in known:
        return known[name]
    there = ", ".join(known) or "none; `edgepanda capability add` adds one"
    raise EdgePandaError(
        f"the configuration has no capability {name!r}",
        code="unknown_capability",
        where=str(loaded.path),
        cure=did_you_mean(name, known, f"there are: {there}"),
    )


def _confirmed(settings: Settings, name: str, entry: dict[str, Any]) -> bool:
    does = f"tier {entry['tier']}, replay {entry['replay']}"
    question, because = f"Run {name} for real ({does})?", f"it does more than look ({does})"
    return confirmed(settings, question, "runs it without asking", because=because)


def _show(tried: Tried) -> None:
    say(f"{coloured(tried.outcome)}  {tried.capability}" + (f"  [{tried.code}]" if tried.code else ""))
    seen = tried.seen
    how = "" if seen.exit_code is None else f"code {seen.exit_code}"
    how = f"signal {seen.signal}" if seen.signal is not None else how
    rows = [
        ("said", tried.message),
        ("exit", f"{how} after {seen.seconds:g} s" if how else ""),
        ("stdout", seen.stdout.rstrip("\n")),
        ("stderr", seen.stderr.rstrip("\n")),
        ("value", "" if tried.value is None else plain(tried.value)),
        ("outputs", ", ".join(tried.outputs)),
        ("evidence", "\n".join(plain(each) for each in tried.evidence if each.get("kind") != "output")),
        ("ran", f"by the node {tried.through}, as {seen.user}" if tried.through else f"without a node, as {seen.user}"),
    ]
    for line in aligned_fields(rows):
        say(line)
    for each in tried.blocked:
        say(f"blocked by {click.style(each.option, bold=True)}: {each.why}")
        say(f"    {each.cure}")


async def _try(loaded: Loaded, name: str, entry: dict[str, Any], words: Sequence[str]) -> Tried:
    from edgepanda.cli.service import memory_kills, peer_pid, surroundings

    local = LocalNode.of(loaded)
    pid = peer_pid(local.path)
    status = None if pid is None else await local.request("status", {}, within=ANSWER_WITHIN)
    kills = memory_kills(pid)
    if status is not None:
        through = str(status["name"])
        probe, ran = await _by_node(local, name, entry, words)
        user = ""
    else:
        through, user = "", _other_user(loaded)
        probe, ran = await _alone(name, entry, words, user)
    around = surroundings(pid)
    facts = {
        "program": entry["argv"][0],
        "found": str(probe.facts.get("program", "")),
        "search_path": str(probe.facts.get("path", "")),
        "outcome": ran.outcome,
        "code": ran.code,
        "message": ran.message,
        "timeout": float(entry.get("timeout", 600.0)),
        "user": user or around.user,
        "groups": around.groups,
        "memory_max": around.memory_max,
        "memory_kills": max(0, memory_kills(pid) - kills),
        "env": tuple(entry.get("env", ())),
    }
    seen = _looked_up(as_seen(facts, ran.evidence), entry, pid)
    return Tried(
        capability=name,
        through=through,
        outcome=ran.outcome,
        code=ran.code,
        message=ran.message,
        value=ran.value,
        evidence=ran.evidence,
        outputs=[str(each.get("path")) for each in ran.artifacts],
        seen=seen,
        blocked=blocked_by(seen),
    )


def _looked_up(seen: Seen, entry: dict[str, Any], pid: int | None) -> Seen:
    """With what only a look at this machine tells of programs and paths."""
    from edgepanda.cli.service import elsewhere, path_seen

    said = f"{seen.stderr}\n{seen.stdout}"
    return msgspec.structs.replace(
        seen,
        elsewhere=elsewhere(seen.program),
        here=tuple(word for word in entry["argv"][1:] if not os.path.isabs(word) and os.path.isfile(word)),
        paths=tuple(path_seen(path, pid, missing=missing) for path, missing in complained_about(said)),
    )


async def _by_node(local: LocalNode, name: str, entry: dict[str, Any], words: Sequence[str]) -> tuple[Probe, _Ran]:
    from edgepanda.cli.arguments import parse_args
    from edgepanda.drivers.contract import Probe
    from edgepanda.node.cards import as_action

    try:
        probe = msgspec.convert(await local.request("probe", {"device": name}, within=ANSWER_WITHIN), Probe)
    except EdgePandaError as error:
        if error.code != "unknown_device":
            raise
        raise EdgePandaError(
            "the running node has not read this capability yet",
            code="unavailable",
            where=name,
            cure="send SIGHUP to the node or to `edgepanda up`, or restart it: it reads the configuration then",
        ) from error
    if not probe.usable:
        return probe, _Ran(outcome="failed", code="unavailable", message=probe.reason)
    spec = (probe.actions or {})["run"]
    args = parse_args(words, as_action(spec))
    try:
        answer = await local.request("do", {"device": name, "args": args})
    except EdgePandaError as error:
        return probe, _Ran(outcome="failed", code=error.code, message=error.message)
    result = dict(answer["result"])
    result["message"] = result.get("message") or result.get("narrative", "")
    return probe, msgspec.convert(result, _Ran)


def _other_user(loaded: Loaded) -> str:
    """Whom to run it as, where that is somebody else. Raises `EdgePandaError` (`not_allowed`) unless we may."""
    from edgepanda.node.visit import state_owner

    owner = state_owner(loaded)
    if owner and os.geteuid() != 0:
        raise EdgePandaError(
            f"the node runs as {owner}, and you are somebody else",
            code="not_allowed",
            where=str(loaded.state_dir),
            cure="start the node, which then runs it; or put sudo in front",
        )
    return owner


async def _alone(name: str, entry: dict[str, Any], words: Sequence[str], user: str) -> tuple[Probe, _Ran]:
    from edgepanda.cli.arguments import parse_args
    from edgepanda.node.cards import as_action
    from edgepanda.node.configured import COMMAND, Program
    from edgepanda.node.visit import visited

    config = {key: value for key, value in entry.items() if key != "labels"}
    with tempfile.TemporaryDirectory(prefix="edgepanda-try-") as folder:
        work = Path(folder) / "work"
        if user:
            shutil.chown(folder, user)
        async with visited(Program(COMMAND), user=user) as host:
            probe = await host.probe(config)
            if not probe.usable:
                return probe, _Ran(outcome="failed", code="unavailable", message=probe.reason)
            args = parse_args(words, as_action((probe.actions or {})["run"]))
            await host.open(name, config)
            try:
                return probe, await _run(host, name, args, work, float(entry.get("timeout", 600.0)))
            finally:
                await host.safe(name)  # a command outlives its host: this one must not


async def _run(host: Host, name: str, args: dict[str, Any], work: Path, timeout: float) -> _Ran:
    try:
        done = await host.call(name, "run", args, task="try", attempt=0, work=work, timeout=timeout)
    except EdgePandaError as error:
        outcome = "timed_out" if error.code == "timeout" else "failed"
        evidence = list(error.details.get("evidence", ()))
        return _Ran(outcome=outcome, code=error.code, message=error.message, evidence=evidence)
    return _Ran(
        outcome=done.outcome,
        code="" if done.outcome == "succeeded" else done.reason or "failed",
        message=done.narrative,
        value=done.value,
        evidence=list(done.evidence),
        artifacts=list(done.artifacts),
    )
