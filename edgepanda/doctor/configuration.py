"""The configuration: all that is wrong in it; what can still be used of it is looked at by the other checks."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

import msgspec

from edgepanda.doctor.finding import Finding, fault, of_error, ok, warning
from edgepanda.doctor.patient import broker_address
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import Loaded, find_config, load_what_is_right
from edgepanda.model.config_check import Problem


class ConfigurationFacts(msgspec.Struct, frozen=True):
    """What was read. `error`: why there is nothing to check; `secret`: why the broker's secret cannot be had."""

    path: str = ""
    problems: Sequence[Problem] = ()
    error: EdgePandaError | None = None
    secret: EdgePandaError | None = None
    mode: int = 0o600
    password_inside: bool = False
    things: int = 0
    usable: bool = True


def read(given: str | None) -> tuple[Loaded | None, ConfigurationFacts]:
    """The configuration as far as it is right, and the facts."""
    try:
        path = find_config(given)
        loaded, problems = load_what_is_right(path)
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError as error:
        return None, ConfigurationFacts(error=EdgePandaError(str(error), code="config_unreadable", where=str(given)))
    except EdgePandaError as error:
        return None, ConfigurationFacts(error=error)
    facts = ConfigurationFacts(path=str(path), problems=problems, mode=mode, usable=loaded is not None)
    if loaded is None:
        return None, facts
    config = loaded.config
    return loaded, msgspec.structs.replace(
        facts,
        secret=_secret(loaded),
        password_inside="@" in config.broker.url and ":" in config.broker.url.partition("://")[2].rpartition("@")[0],
        things=len(config.devices) + len(config.capabilities),
    )


def _secret(loaded: Loaded) -> EdgePandaError | None:
    try:
        broker_address(loaded)
    except EdgePandaError as error:
        return None if error.code == "broker_secret" else error  # which is the broker's matter
    return None


def judge(facts: ConfigurationFacts) -> list[Finding]:
    """Every problem is a fault of its own."""
    if facts.error is not None:
        return [of_error(facts.error)]
    found = [
        fault(code=each.code, where=each.where, found=each.message, cure=f"{each.cure}; `edgepanda config edit`")
        for each in facts.problems
    ]
    if facts.secret is not None:
        found.append(of_error(facts.secret))
    if not facts.usable:
        found.append(
            warning(
                code="doctor_not_checked",
                where=facts.path,
                found="so much is wrong in it that what depends on it was not looked at",
                cure="correct it, and give the command again",
            )
        )
    if facts.password_inside and facts.mode & 0o077:
        found.append(
            warning(
                code="config_exposed",
                where=facts.path,
                found=f"it holds the broker's password, and others may read it (mode {facts.mode:04o})",
                cure=f"chmod 600 {facts.path}, or keep the password in a file of its own: password_file",
            )
        )
    return found or [ok(where=facts.path, found=f"no errors; {facts.things} devices and capabilities")]
