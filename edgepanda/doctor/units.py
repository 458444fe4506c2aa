"""Our systemd units: installed, enabled, running, failed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from edgepanda.doctor.finding import Finding, fault, ok, warning
from edgepanda.doctor.patient import Patient, tool

PATTERN = "edgepanda*.service"
OFTEN = 5  # restarts
_PROPERTIES = "Id,LoadState,ActiveState,Result,ExecMainStatus,UnitFileState,NRestarts"


class UnitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One unit as systemd shows it."""

    name: str
    active: str
    result: str = "success"
    status: int = 0
    file: str = ""  # enabled, disabled, static
    restarts: int = 0


async def read(patient: Patient) -> list[UnitFacts] | None:
    """All of ours; None where systemd does not run or cannot be asked."""
    if not (patient.root / "run/systemd/system").is_dir():
        return None
    told = await tool(*("systemctl", "show", "--all", f"--property={_PROPERTIES}", PATTERN), within=patient.within / 2)
    return None if told is None else parse(told)


def parse(told: str) -> list[UnitFacts]:
    """From what `systemctl show` prints. Pure."""
    units = []
    for block in told.strip().split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        if values.get("Id") and values.get("LoadState") not in ("not-found", None):
            units.append(
                UnitFacts(
                    name=values["Id"],
                    active=values.get("ActiveState", ""),
                    result=values.get("Result") or "success",
                    status=_number(values.get("ExecMainStatus", "")),
                    file=values.get("UnitFileState", ""),
                    restarts=_number(values.get("NRestarts", "")),
                )
            )
    return units


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def judge(units: Sequence[UnitFacts] | None) -> list[Finding]:
    """No units is no fault: `edgepanda up` in the foreground needs none."""
    if units is None:
        return [ok(where="systemd", found="systemd does not run here, or cannot be asked")]
    found = []
    for unit in units:
        look = f"`journalctl -u {unit.name} -n 50` shows its last lines"
        if unit.active == "failed":
            told = f"it failed: {unit.result}, exit status {unit.status}"
            cure = f"{look}; then `sudo systemctl restart {unit.name}`"
            found.append(fault(code="unit_failed", where=unit.name, found=told, cure=cure))
        elif unit.file == "enabled" and unit.active == "inactive":
            cure = f"`sudo systemctl start {unit.name}`"
            found.append(warning(code="unit_stopped", where=unit.name, found="enabled, and does not run", cure=cure))
        elif unit.restarts >= OFTEN:
            told = f"it was started again {unit.restarts} times"
            found.append(warning(code="unit_restarts", where=unit.name, found=told, cure=look))
    names = ", ".join(f"{unit.name} {unit.active}" for unit in units) or "no unit of ours is installed"
    return found or [ok(where="systemd", found=names)]
