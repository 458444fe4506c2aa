"""Errors that need a running site: commands of real processes around a real broker, drivers in their hosts."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgepanda.cli.local import LocalNode
from edgepanda.cli.supervisor import Child
from edgepanda.errors import EdgePandaError
from edgepanda.model.config import load_config
from tests.provoke.kit import Words, provokes
from tests.rig.brokers import Mosquitto
from tests.rig.cli import Person

MOODY = Path(__file__).with_name("moody.py")
WORK = {
    "work.slow": ("exec sleep 30", "timeout = 0.3"),
    "work.bad": ("exit 3", ""),
    "work.silent": ("true", ""),
    "work.garbled": ("echo { >result.json", ""),
    "work.sorry": ("""echo '{"outcome": "failed", "narrative": "too dark"}' >result.json""", ""),
    "work.empty": ("""echo '{"outcome": "succeeded"}' >result.json""", 'required_outputs = ["*.pdf"]'),
}
# one that fails three times in a row is left alone for a while, so each kind of failure has a device of its own
MOODS = ("moody", "cross", "glum")
CONFIG = "".join(f'\n[devices.{name}]\ndriver = "{MOODY}"\n' for name in MOODS) + "".join(
    f'\n[capabilities."{name}"]\nargv = ["sh", "-c", {json.dumps(script)}]\ntier = 0\nreplay = "safe"\n{more}\n'
    for name, (script, more) in {**WORK, "work.long": ("exec sleep 30", "")}.items()
)
MISSING = '\n[capabilities."work.missing"]\nargv = ["/no/such/program"]\ntier = 0\nreplay = "safe"\n'

Ended = dict[str, Any]  # a task as `show --json` has it
Provocation = Callable[[Person], Words | Ended | EdgePandaError | None]
ON_A_SITE: dict[str, Provocation] = {}


def on_a_site(code: str) -> Callable[[Any], Any]:
    """Register what brings `code` about on a site that is up: a command that ends with the error, a task that ends so,
    or an error that is raised or given.
    """
    return provokes(code, registry=ON_A_SITE)


def done(person: Person, *words: str) -> Ended:
    """A task that ends badly."""
    ran = person.run("do", *words, "--json")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    ended: Ended = json.loads(ran.stdout)
    return ended


for _code, _words in {
    "interlock": ("moody.fail", "interlock"),
    "io": ("cross.crash",),
    "failed": ("glum.give_up",),
    "timeout": ("work.slow",),
    "exit_status": ("work.bad",),
    "no_result": ("work.silent",),
    "bad_result": ("work.garbled",),
    "said_so": ("work.sorry",),
    "missing_output": ("work.empty",),
}.items():
    on_a_site(_code)(lambda person, words=_words: done(person, *words))


@on_a_site("cancelled")
def _(person: Person) -> Ended:
    task = person.json("submit", "work.long")["id"]
    person.ok("cancel", task)
    person.run("watch", task)
    ended: Ended = person.json("show", task)
    return ended


@on_a_site("invalid_args")
def _(_person: Person) -> Words:
    return Words(["do", "pan.move", "sideways"])


@on_a_site("unavailable")
def _(person: Person) -> None:
    node = LocalNode.of(load_config(person.folder / "edgepanda.toml"))
    asyncio.run(node.request("do", {"device": "work.missing", "action": "run"}))


@on_a_site("device_unusable")
def _(_person: Person) -> Words:
    return Words(["device", "add", "servo", "tilt", "--pin", "21", "--backend", "lgpio"])


@on_a_site("pin_conflict")
def _(_person: Person) -> Words:
    return Words(["device", "add", "servo", "tilt", "--pin", "18", "--simulate"])


@on_a_site("no_answer")
def _(person: Person) -> Words:
    """A site of which nobody speaks on this broker."""
    text = (person.folder / "edgepanda.toml").read_text()
    assert "[site]\n" in text
    other = person.folder / "other"
    shutil.copytree(person.folder / ".edgepanda" / "keys", other / ".edgepanda" / "keys", dirs_exist_ok=True)
    (other / "edgepanda.toml").write_text(text.replace("[site]\n", '[site]\nbase = "elsewhere"\n'))
    return Words(["tasks", "--timeout", "300ms", "--config", "other/edgepanda.toml"])


@on_a_site("second_coordinator")
def _(person: Person) -> Words:
    """With the site's key, which was copied."""
    twin = person.folder / "twin"
    shutil.copytree(person.folder / ".edgepanda" / "keys", twin / ".edgepanda" / "keys", dirs_exist_ok=True)
    (twin / "edgepanda.toml").write_text((person.folder / "edgepanda.toml").read_text())
    return Words(["coordinator", "--config", "twin/edgepanda.toml"])


@on_a_site("broker_refused")
def _(person: Person) -> EdgePandaError:
    with Mosquitto(users={"me": "secret"}) as broker:
        keys = person.folder / ".edgepanda" / "keys"
        shutil.copytree(keys, person.folder / "refused" / ".edgepanda" / "keys", dirs_exist_ok=True)
        (person.folder / "refused" / "edgepanda.toml").write_text(f'[broker]\nurl = "{broker.url}"\n')
        ran = person.run("tasks", "--json", "--config", "refused/edgepanda.toml")
    assert ran.returncode == 3, ran.stdout + ran.stderr
    return EdgePandaError.from_dict(json.loads(ran.stdout)["error"])


class _Deaf:
    """Hears what happens to a process, and forgets it."""

    def line(self, name: str, text: str) -> None:
        """Nothing."""

    def happened(self, name: str, what: str, detail: str = "") -> None:
        """Nothing."""


@on_a_site("process_ended")
def _(_person: Person) -> None:
    """A process that ends before it is ready."""

    async def start() -> None:
        await Child("node", ["version"], _Deaf()).start()

    asyncio.run(start())
