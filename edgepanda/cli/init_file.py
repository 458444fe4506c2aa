"""The text of the configuration that `init` writes, made from the types; config/edgepanda.toml is the same text."""

from __future__ import annotations

import textwrap

from edgepanda.model.config_types import TABLES, Config
from edgepanda.model.config_words import Field, allowed, fields_of, toml

_SHORT = 40  # characters of an example that helps more than it fills

_HEAD = """\
# EdgePanda: the configuration of one machine. `edgepanda up` starts what it enables.
# Lines that begin with "# key =" show the defaults. Paths are relative to this file. In brackets stand what is allowed
# (with the unit), the default, and `restart` where a change is taken up only by a restart.
"""

_SIMULATED = """\
# A device: its name, its driver, and what the driver wants to know. This one works without hardware.
[devices.pan]
driver = "servo"
pin = 18
start = 0.0        # degrees: where it stands when nobody knows
safe = "detach"    # or an angle: where it goes on stop and on exit
simulate = true    # remove this line to drive a real servo on GPIO 18
"""

_SERVO = """\
# A device: its name, its driver, and what the driver wants to know. `edgepanda device add servo --help` lists it all.
[devices.pan]
driver = "servo"
pin = {pin}
start = 0.0        # degrees: where it stands before the first move; correct it, or the servo jumps there
safe = "detach"    # or an angle: where it goes on stop and on exit
# simulate = true  # moves nothing: to try it out without the servo
"""

_COMMAND = """
# A capability of your own: a program and its arguments, never a shell line. Tier (0 observes, 1 can be undone) and
# replay ("safe": doing it again changes nothing; "unsafe": anything else) must be declared. The program runs in a
# folder of its own and says there, in result.json, how it went: without that it has failed, also at exit code 0.
# [capabilities."disk.free"]
# argv = ["sh", "-c", 'df -h / && echo "{\\"outcome\\": \\"succeeded\\"}" >result.json']
# tier = 0
# replay = "safe"
"""


def render(*, site: str, site_key: str, broker: str, node: str, servo: str = "") -> str:
    """The text for these names; with a `site_key` the machine runs no coordinator. `servo`: its pin, as TOML."""
    given = {
        "site": {"name": site} | ({"key": site_key} if site_key else {}),
        "broker": {"url": broker} if broker else {},
        "node": {"name": node},
    }
    tables = [name for name in TABLES if name != "coordinator" or not site_key]
    examples = (_SERVO.replace("{pin}", servo) if servo else _SIMULATED) + _COMMAND
    top = [_key(field, {}) for field in fields_of(Config).values() if field.description]
    return "\n".join([_HEAD, *top, *(_table(name, given.get(name, {})) for name in tables), examples])


def _table(name: str, given: dict[str, str]) -> str:
    about = _comment(TABLES[name].__doc__ or "")
    return f"{about}[{name}]\n" + "\n".join(_key(field, given) for field in fields_of(TABLES[name]).values())


def _key(field: Field, given: dict[str, str]) -> str:
    """What it is for, the facts in brackets, and the line itself: a comment where it has its default."""
    facts = [allowed(field), f"default {toml(field.default)}"]
    if not field.default and field.example is not None and len(toml(field.example)) <= _SHORT:
        facts.append(f"for example {toml(field.example)}")
    if field.restart:
        facts.append("restart")
    sign = "" if field.name in given else "# "
    line = f"{sign}{field.name} = {toml(given.get(field.name, field.default))}"
    return _comment(field.description) + _comment(f"[{'; '.join(facts)}]") + f"{line}\n"


def _comment(text: str) -> str:
    lines = textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)
