"""Runs all checks at once, each within a time of its own, and gathers what they found."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from edgepanda.doctor import (
    broker,
    clock,
    configuration,
    coordinator,
    devices,
    disk,
    groups,
    hardware,
    keys,
    memory,
    node,
    units,
)
from edgepanda.doctor.finding import Finding, of_error, warning
from edgepanda.doctor.patient import Patient, broker_address, read_text
from edgepanda.doctor.secrets import known_secrets
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded
from edgepanda.redact import redact

T = TypeVar("T")
Check = Callable[[Patient], Awaitable[list[Finding]]]

MANNERS = 1.0  # seconds that a check gets to end after its time is over


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """All findings in the order of the areas, without secrets; and what the report needs besides."""

    findings: list[Finding]
    loaded: Loaded | None
    path: str
    text: str = ""  # of the configuration
    known: set[str] | None = None  # secrets of this machine, as far as they can be read; None: not in time
    node: dict[str, Any] | None = None  # the node's own status


async def examine(
    given: str | None, *, within: float, root: Path = Path("/"), progress: Callable[[set[str]], None] = lambda _: None
) -> Examination:
    """Look the machine over. `within`: seconds for each check, all at once; `progress` gets the areas not done yet."""
    try:
        loaded, facts = await in_thread(functools.partial(configuration.read, given), within=within)
    except TimeoutError:
        late = EdgePandaError("its disk does not answer", code="doctor_late", where=given or "configuration")
        loaded, facts = None, configuration.ConfigurationFacts(error=late)
    patient = Patient(loaded, root=root, within=within)
    found: dict[str, list[Finding]] = {"configuration": configuration.judge(facts)}
    tasks = {area: asyncio.create_task(_check(patient, area, check)) for area, check in CHECKS.items()}
    waiting = set(tasks)
    progress(waiting)

    def done(area: str, _: object) -> None:
        waiting.discard(area)
        progress(waiting)

    for area, task in tasks.items():
        task.add_done_callback(functools.partial(done, area))
    await asyncio.wait(tasks.values(), timeout=within + MANNERS)
    for area, task in tasks.items():
        found[area] = task.result() if task.done() else [_late(area, within)]
    text, known = "", None
    with contextlib.suppress(TimeoutError):
        text, known = await in_thread(lambda: _secrets(loaded, facts.path), within=MANNERS)
    findings = [_discreet(each, area, known or set()) for area, some in found.items() for each in some]
    status = patient.node.result().status if patient.node.done() and not patient.node.cancelled() else None
    return Examination(findings=findings, loaded=loaded, path=facts.path, text=text, known=known, node=status)


def _secrets(loaded: Loaded | None, path: str) -> tuple[str, set[str]]:
    text = read_text(Path(path)) if path else ""
    return text, known_secrets(loaded, text)


def _discreet(finding: Finding, area: str, known: set[str]) -> Finding:
    """Without secrets, and with what a person needs where an error said less."""
    cure = finding.cure or ("" if finding.level == "ok" else f"`edgepanda explain {finding.code}`")
    told = {"where": finding.where or area, "found": finding.found, "cure": cure}
    return msgspec.structs.replace(finding, area=area, **{name: redact(text, known) for name, text in told.items()})


async def _check(patient: Patient, area: str, check: Check) -> list[Finding]:
    """Whatever goes wrong with one check, the others are told."""
    try:
        async with asyncio.timeout(patient.within):
            return await check(patient)
    except TimeoutError:
        return [_late(area, patient.within)]
    except EdgePandaError as error:
        return [of_error(error)]
    except Exception as error:
        told = f"the check itself failed: {type(error).__name__}: {error}"
        cure = "report it with `edgepanda doctor --report`"
        return [warning(code="doctor_failed", where=area, found=told, cure=cure)]


def _late(area: str, within: float) -> Finding:
    told = f"not known: it took more than {within:g} s to find out"
    return warning(code="doctor_late", where=area, found=told, cure="give the command again with a longer --timeout")


async def in_thread(work: Callable[[], T], *, within: float | None = None) -> T:
    """Off the loop, on a thread that nobody waits for: a disk that hangs must not keep the command from ending.

    Raises `TimeoutError` after `within` seconds.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if not done.done():
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, name="edgepanda-doctor", daemon=True).start()
    return await asyncio.wait_for(done, within)


async def _keys(patient: Patient) -> list[Finding]:
    return keys.judge(*await in_thread(lambda: keys.read(patient.loaded)))


async def _clock(patient: Patient) -> list[Finding]:
    return clock.judge(await clock.read(patient))


async def _disk(patient: Patient) -> list[Finding]:
    path = patient.loaded.state_dir if patient.loaded is not None else Path.cwd()
    return disk.judge(await in_thread(lambda: disk.read(patient, path)))


async def _memory(patient: Patient) -> list[Finding]:
    return memory.judge(memory.read(patient))


async def _broker(patient: Patient) -> list[Finding]:
    if patient.loaded is None:
        return []
    config = patient.loaded.config
    try:
        address = broker_address(patient.loaded)
    except EdgePandaError as error:
        return [msgspec.structs.replace(of_error(error, "warning"), code="doctor_not_checked")]
    facts = await broker.read(
        address,
        base=config.site.base,
        embedded=config.broker.embedded,
        within=patient.within * 0.6,
        now=time.time(),
    )
    return broker.judge(facts)


async def _coordinator(patient: Patient) -> list[Finding]:
    facts = await coordinator.read(patient)
    return [] if facts is None else coordinator.judge(facts)


async def _node(patient: Patient) -> list[Finding]:
    if patient.loaded is None or patient.loaded.config.node is None:
        return []
    return node.judge(await patient.node, where=str(patient.loaded.run_dir / "node.sock"))


async def _devices(patient: Patient) -> list[Finding]:
    return devices.judge(await devices.read(patient))


async def _groups(patient: Patient) -> list[Finding]:
    return groups.judge(*await groups.read(patient))


async def _hardware(patient: Patient) -> list[Finding]:
    return hardware.judge(await in_thread(lambda: hardware.read(patient)))


async def _units(patient: Patient) -> list[Finding]:
    return units.judge(await units.read(patient))


CHECKS: dict[str, Check] = {
    "keys": _keys,
    "clock": _clock,
    "disk": _disk,
    "memory": _memory,
    "hardware": _hardware,
    "broker": _broker,
    "coordinator": _coordinator,
    "node": _node,
    "devices": _devices,
    "groups": _groups,
    "units": _units,
}
"""The areas in their order; `configuration` comes before them."""
