"""One archive for a bug report: findings, configuration, versions, logs, units, hardware, card. No secrets."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import platform
import tarfile
import time
from pathlib import Path
from typing import Any

import msgspec

from edgepanda import __version__
from edgepanda.cli.local import LocalNode
from edgepanda.doctor import units
from edgepanda.doctor.examine import Examination, in_thread
from edgepanda.doctor.patient import NODE_WITHIN, Patient, tool
from edgepanda.errors import EdgePandaError
from edgepanda.redact import redact, redact_value

LOG_LINES = 3000  # of the journal
PAGES = 20  # of the node's own lines
_PACKAGES = ("paho-mqtt", "msgspec", "click", "pynacl", "tinydb", "amqtt", "gpiozero", "lgpio", "pyserial", "rich")
_ABOUT = """A report of `edgepanda doctor` for a bug report.

Secrets were taken out and stand as ***: passwords, tokens, private keys. What is left tells names of hosts, users,
nodes and devices, addresses, paths and times: look through it before it goes to anybody.

In this archive:
"""


async def gather(found: Examination, document: dict[str, Any], *, within: float) -> dict[str, str]:
    """The files of the report: name and text, without secrets. `document`: what `doctor --json` prints.

    Raises `EdgePandaError` (`doctor_late`) where the secrets are not known.
    """
    if found.known is None:
        raise EdgePandaError(
            "the keys of this machine cannot be read in time, so that they could not be taken out of a report",
            code="doctor_late",
            where="report",
        )
    known = found.known
    patient = Patient(found.loaded, within=within)
    status = found.node or {}
    card = status.get("card")
    parts: dict[str, Any] = {
        "doctor.json": document,
        "edgepanda.toml": found.text,
        "versions.json": versions(patient),
        "units.json": await units.read(patient),
        "hardware.json": (card or {}).get("hardware") or await in_thread(_hardware),
        "readings.json": await in_thread(lambda: _readings(patient)),
        "node.json": {name: value for name, value in status.items() if name != "card"},
        "card.json": card,
        "log.txt": await _log(found, within),
    }
    files = {name: _text(part, known) for name, part in parts.items() if part}
    return {"README.txt": _ABOUT + "".join(f"  {name}\n" for name in files), **files}


def _text(part: Any, known: set[str]) -> str:
    if isinstance(part, str):
        return redact(part, known) + "\n"
    clean = redact_value(msgspec.to_builtins(part), known=known)
    return redact(json.dumps(clean, indent=1, ensure_ascii=False), known) + "\n"


def versions(patient: Patient) -> dict[str, Any]:
    """Of EdgePanda, of what it is built on, of the system."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    release = dict(line.partition("=")[::2] for line in patient.text("etc/os-release").splitlines())
    return {
        "edgepanda": __version__,
        "python": platform.python_version(),
        "system": release.get("PRETTY_NAME", "").strip('"'),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "packages": packages,
    }


def _hardware() -> Any:
    """From the kernel's files alone: no bus is asked for it."""
    from edgepanda.node.scan import scan
    from edgepanda.node.scan.edge import Still

    return scan(edge=Still())


def _readings(patient: Patient) -> Any:
    from edgepanda.node.scan import readings

    return readings(patient.root)


async def _log(found: Examination, within: float) -> str:
    """Of our units from systemd's journal; without that the newest lines that the running node keeps."""
    told = await tool(
        *("journalctl", "-q", "--no-pager", "-o", "short-iso", "-n", str(LOG_LINES), "-u", "edgepanda*"), within=within
    )
    return told if told and told.strip() else await _node_lines(found)


async def _node_lines(found: Examination) -> str:
    if found.loaded is None or found.node is None:
        return ""
    node, lines = LocalNode.of(found.loaded), []
    asked: dict[str, Any] = {"after": 0}
    try:
        for _ in range(PAGES):
            page = await node.request("logs", asked, within=NODE_WITHIN)
            lines += [_line(each) for each in page["lines"]]
            asked = {"after": page["next"], "start": page["start"]}
            if not page["more"]:
                break
    except EdgePandaError as error:
        lines.append(f"(its log cannot be read: {error})")
    return "\n".join(lines)


def _line(each: dict[str, Any]) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(each["at"]))
    return f"{moment} {each['level']} {each['logger']}: {each['text']}"


def file_name() -> str:
    """What the archive is called where nobody says: in the present folder, by host and time."""
    return f"edgepanda-report-{platform.node() or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz"


def write(path: Path, files: dict[str, str]) -> None:
    """The archive, for its owner only; nothing is overwritten. Raises `EdgePandaError` (`report_unwritable`)."""
    folder = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            data = text.encode(errors="replace")
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(data))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(packed.getvalue())
        except OSError:
            path.unlink()  # half an archive is none
            raise
    except OSError as error:
        raise EdgePandaError(
            f"the report cannot be written: {error.strerror or error}",
            code="report_unwritable",
            where=str(path),
            cure="name another file, as in `edgepanda doctor --report /tmp/report.tar.gz`",
        ) from error
