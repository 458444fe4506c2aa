"""This machine's node, as it tells of itself on its local socket."""

from __future__ import annotations

from edgepanda.doctor.finding import Finding, fault, of_error, ok, warning
from edgepanda.doctor.patient import NodeSeen
from edgepanda.errors import EdgePandaError

MANY = 100  # reports that wait for the coordinator


def judge(seen: NodeSeen, *, where: str) -> list[Finding]:
    """`where`: its socket. A node without broker or coordinator works on alone, which is no reason not to say so."""
    if seen.denied:
        return [
            warning(
                code="doctor_not_checked",
                where=where,
                found="this user may not speak to it",
                cure="give the command as the user it runs as, with sudo, or join the group that owns the socket",
            )
        ]
    if seen.status is None:
        return [
            fault(
                code="node_not_running",
                where=where,
                found="no node answers" if seen.error is None else seen.error.message,
                cure="`edgepanda up` starts it, or `edgepanda node` alone; its last lines say why if it ends",
            )
        ]
    status, found = seen.status, []
    for key in ("problem", "journal_problem"):
        if status.get(key):
            found.append(of_error(EdgePandaError.from_dict(status[key])))
    if not status.get("broker"):
        cure = "see what is said of the broker; its own devices obey all the same"
        told = (status.get("broker_error") or {}).get("message", "not yet")
        place = f"node {status['name']}"
        found.append(
            warning(code="node_alone", where=place, found=f"it is not connected to the broker: {told}", cure=cure)
        )
    elif not status.get("coordinator") and not found:
        cure = "see what is said of the coordinator"
        found.append(warning(code="node_alone", where=where, found="it has heard no coordinator yet", cure=cure))
    if status.get("unacknowledged", 0) > MANY:
        told = f"{status['unacknowledged']} reports wait for the coordinator"
        found.append(warning(code="node_reports_wait", where=where, found=told, cure="bring the coordinator back"))
    running = len(status.get("running", ()))
    return found or [ok(where=f"node {status['name']}", found=f"runs; {running} attempts at work")]
