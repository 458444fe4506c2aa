"""The coordinator: whether it answers, and whether its ledger holds."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from edgepanda.doctor.finding import Finding, fault, of_error, ok, warning
from edgepanda.doctor.patient import Patient, broker_address
from edgepanda.errors import EdgePandaError

SMALL = 200_000  # entries of a ledger that is proven on the way; a larger one takes minutes
_NOT_ITS_FAULT = frozenset(
    {"broker_unreachable", "broker_refused", "broker_tls", "broker_secret", "invalid_broker", "config_invalid"}
)
_OURS = frozenset({"operator_key_missing", "site_key_missing", "key_unreadable", "unknown_peer", "not_allowed"})


class CoordinatorFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`digest`: its answer. `proof`: of its ledger, None where that was not tried or not done in time."""

    site: str
    here: bool = False  # it is this machine that should run it
    digest: dict[str, Any] | None = None
    proof: dict[str, Any] | None = None
    error: EdgePandaError | None = None


async def read(patient: Patient) -> CoordinatorFacts | None:
    """Asks it, as this user's operator key allows. None without a configuration."""
    from edgepanda.client import AsyncClient

    if patient.loaded is None:
        return None
    config = patient.loaded.config
    facts = CoordinatorFacts(site=config.site.name, here=config.coordinator is not None)
    within = patient.within * 0.4
    try:
        broker_address(patient.loaded)
        async with AsyncClient.from_loaded(patient.loaded, answer_within=within) as client:
            digest = await client.digest()
            facts = msgspec.structs.replace(facts, digest=digest)
            if digest["head"]["height"] <= SMALL:
                async with asyncio.timeout(within):
                    facts = msgspec.structs.replace(facts, proof=await client.verify())
    except EdgePandaError as error:
        return msgspec.structs.replace(facts, error=error) if facts.digest is None else facts
    except (TimeoutError, OSError):
        return facts
    return facts


def judge(facts: CoordinatorFacts) -> list[Finding]:
    """Silence is a fault, if it could be heard at all."""
    where = f"coordinator of the site {facts.site}"
    if facts.error is not None:
        return [_unheard(facts, facts.error, where)]
    if facts.digest is None:
        cure = "give the command again with a longer --timeout"
        return [warning(code="doctor_not_checked", where=where, found="it was not asked", cure=cure)]
    found = []
    problem = facts.digest.get("problem")
    if problem:
        found.append(of_error(EdgePandaError.from_dict(problem)))
    if facts.proof is not None and not facts.proof["ok"]:
        told = f"its ledger does not hold: {len(facts.proof['problems'])} problems"
        cure = "stop it, keep the file, and look at `edgepanda audit verify`"
        found.append(fault(code="ledger_damaged", where=where, found=told, cure=cure))
    height = facts.digest["head"]["height"]
    proven = "which hold" if facts.proof is not None else "not proven here: `edgepanda audit verify`"
    return found or [ok(where=where, found=f"answers, epoch {facts.digest['epoch']}; {height} entries, {proven}")]


def _unheard(facts: CoordinatorFacts, error: EdgePandaError, where: str) -> Finding:
    if error.code in _NOT_ITS_FAULT:
        cure = "see what is said of the broker"
        return warning(code="doctor_not_checked", where=where, found="it cannot be asked without the broker", cure=cure)
    if error.code in _OURS:
        return warning(
            code="doctor_not_checked",
            where=where,
            found=f"it was not asked: {error.message}",
            cure=error.cure or "give the command as the site's operator",
        )
    own = "`edgepanda up` starts it, or `edgepanda coordinator` alone"
    start = own if facts.here else "look at the machine it runs on"
    if error.code == "no_answer":
        return fault(code="no_answer", where=where, found="it does not answer", cure=start)
    return of_error(error)
