"""Errors of the command line and of the configuration, each from a command or from what a command calls."""

from __future__ import annotations

from pathlib import Path

from edgepanda.cli.table import COMMANDS
from edgepanda.config_edit import ConfigFile, replace_text
from edgepanda.storage import FileLock, make_folder
from edgepanda.trust.identity import Identity
from tests.provoke.kit import Here, Words, provokes

KEY = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
NOWHERE = Path("/dev/null")  # a file: nothing can be made in it, not by root either
BROKER = '[broker]\nurl = "mqtt://127.0.0.1:9"\n'  # nothing listens there


@provokes("usage")
def _(_here: Here) -> Words:
    return Words(["task"])


@provokes("internal")
def _(here: Here) -> Words:
    here.patch.setitem(COMMANDS, "version", ("gone", ""))
    return Words(["version"])


@provokes("man_unwritable")
def _(_here: Here) -> Words:
    return Words(["man", str(NOWHERE / "man")])


@provokes("operator_key_missing")
def _(here: Here) -> Words:
    return Words(["tasks", "--config", here.config(f'[site]\nkey = "{KEY}"\n{BROKER}')])


@provokes("site_key_missing")
def _(here: Here) -> Words:
    Identity.load_or_create(here.folder / "me.key")
    here.patch.setenv("EDGEPANDA_KEY", str(here.folder / "me.key"))
    return Words(["tasks", "--config", here.config(BROKER)])


@provokes("broker_unreachable")
def _(here: Here) -> Words:
    Identity.load_or_create(here.folder / "me.key")
    here.patch.setenv("EDGEPANDA_KEY", str(here.folder / "me.key"))
    return Words(["tasks", "--timeout", "50ms", "--config", here.config(f'[site]\nkey = "{KEY}"\n{BROKER}')])


@provokes("already_running")
def _(here: Here) -> Words:
    path = here.config("[node]\n")
    run = here.folder / ".edgepanda" / "run"
    make_folder(run)
    FileLock(run / "up").acquire()
    return Words(["up", "--config", path])


@provokes("config_missing")
def _(here: Here) -> Words:
    return Words(["config", "check", "--config", str(here.folder / "none.toml")])


@provokes("config_unreadable")
def _(here: Here) -> Words:
    return Words(["config", "check", "--config", str(here.folder)])


@provokes("config_unwritable")
def _(_here: Here) -> None:
    replace_text(NOWHERE / "edgepanda.toml", "")


@provokes("config_invalid")
def _(here: Here) -> Words:
    return Words(["up", "--config", here.config("[site]\n")])


for _code, _text in {
    "config_syntax": "[node\n",
    "config_key_unknown": '[node]\nnmae = "desk"\n',
    "config_key_missing": "[devices.pan]\npin = 18\n",
    "config_type": '[node]\nbeat = "often"\n',
    "config_value": "[node]\nslots = 0\n",
}.items():
    provokes(_code)(lambda here, text=_text: Words(["config", "check", "--config", here.config(text)]))


@provokes("config_changed")
def _(here: Here) -> None:
    path = Path(here.config('[node]\nname = "desk"\n'))
    file = ConfigFile(path)
    file.set(("node", "name"), "shed")
    path.write_text('[node]\nname = "attic"\n')
    file.save()


@provokes("config_form")
def _(here: Here) -> None:
    file = ConfigFile(Path(here.config('devices.pan.driver = "servo"\ndevices.pan.pin = 18\n[node]\n')))
    file.set(("devices", "tilt"), {"driver": "servo", "pin": 19})
    file.save()


@provokes("config_editor")
def _(here: Here) -> Words:
    here.patch.setenv("VISUAL", "")
    here.patch.setenv("EDITOR", "/no/such/editor")
    return Words(["config", "edit", "--config", here.config("[node]\n")])


DEVICE = '[node]\n[devices.pan]\ndriver = "servo"\npin = 18\nsimulate = true\n'


@provokes("device_exists")
def _(here: Here) -> Words:
    return Words(["device", "add", "servo", "pan", "--config", here.config(DEVICE)])


@provokes("unknown_driver")
def _(here: Here) -> Words:
    return Words(["device", "add", "servoo", "tilt", "--config", here.config(DEVICE)])


@provokes("invalid_broker")
def _(_here: Here) -> Words:
    return Words(["init", "--broker", "http://broker.lan"])


@provokes("invalid_name")
def _(_here: Here) -> Words:
    return Words(["init", "--name", "Übel"])


@provokes("invalid_key")
def _(_here: Here) -> Words:
    broker = ["--broker", "mqtt://broker.lan"]
    return Words(["init", "--node-only", "--name", "shed", "--site", "home", "--site-key", "ed25519:short", *broker])
