"""`device add`: asks the driver what it wants to know, checks, probes, writes, and has the running node take it up."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.common import Settings, command, label_option, quiet
from edgepanda.cli.out import emit, hint, say
from edgepanda.cli.reload import Taken, option_of, take_up, tell
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.cli.device_work import Checked
    from edgepanda.config_edit import ConfigFile
    from edgepanda.model.config import Loaded

RETURNS = (
    "Exit codes: 0 done; 1 it cannot be used here, or the file cannot be written: nothing was changed; "
    "2 the command or the configuration is wrong."
)


class Written(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A device that was written into the configuration."""

    device: str
    config: str
    entry: dict[str, Any]
    usable: bool
    simulated: bool = False
    reason: str = ""
    cure: str = ""
    facts: dict[str, Any] = {}
    node: Taken
    advice: list[str] = []
    next: list[str] = []


class _Add(click.Command):
    """A command whose help, once a driver is named, lists that driver's own options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it, but `DRIVER --help` asks the driver."""
        words = _without(args, "--config", "--command", "--label")
        if "--help" in words and not words[0].startswith("-"):
            _driver_help(ctx, words[0], config=_given(args, "--config"), program=_given(args, "--command") or "")
        return super().parse_args(ctx, args)


def _without(args: list[str], *options: str) -> list[str]:
    """The words, those options and their values left out."""
    return [word for at, word in enumerate(args) if word not in options and (at == 0 or args[at - 1] not in options)]


def _given(args: list[str], option: str) -> str | None:
    return args[args.index(option) + 1] if option in args[:-1] else None


def _driver_help(ctx: click.Context, driver: str, *, config: str | None, program: str) -> None:
    from edgepanda.cli.device_work import describe, entry_of
    from edgepanda.cli.driver_help import help_text
    from edgepanda.model.config import ConfigError
    from edgepanda.node.visit import visitor

    settings = Settings(config, False, None, False)
    quiet(settings)
    folder, user = Path(), ""
    with contextlib.suppress(ConfigError):  # there may be none yet, and the help does not need it
        loaded = settings.load()
        folder, user = loaded.path.parent, visitor(loaded)
    description = asyncio.run(describe(entry_of(driver, program, folder), folder, user=user))
    say(help_text(driver, description, ctx.command_path))
    ctx.exit()


@command(
    "add",
    cls=_Add,
    short_help="Check it, probe it, write it, use it: DRIVER NAME --KEY VALUE",
    timeout_help="",
    context_settings={"ignore_unknown_options": True},
    examples="""
    edgepanda device add servo --help
    edgepanda device add servo pan --pin 12 --start 0
    edgepanda device add servo tilt --pin gpiochip1:7 --max-angle 45 --label room=attic
    edgepanda device add servo trial --pin 13 --start 0 --simulate
    edgepanda device add ./dimmer.py shelf --file /sys/class/leds/led0/brightness
    edgepanda device add relay pump --command ./relay.sh --file /sys/class/leds/relay0/brightness
    """,
    returns=RETURNS,
)
@click.argument("driver")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="[--KEY VALUE]...", type=click.UNPROCESSED)
@click.option("--command", "program", default="", metavar="TEXT", help="The program of a driver in any language.")
@label_option("A label that tasks may ask for.")
@click.option("--anyway", is_flag=True, help="Write it although its driver says that it cannot be used now.")
def add_command(
    settings: Settings,
    driver: str,
    name: str,
    words: tuple[str, ...],
    program: str,
    labels: dict[str, str],
    anyway: bool,
) -> None:
    """Add a device to this machine's node: its DRIVER, a NAME of your choice, and what the driver wants to know.

    `edgepanda device add DRIVER --help` asks the driver and lists its options with unit and default. A pin is a GPIO
    number of a Raspberry Pi's header, or chip and line: --pin gpiochip1:7. Numbers may have units: --speed 90deg/s.

    The values are checked, no GPIO line may belong to two devices, and the driver probes the device. Only then it is
    written, the file's comments are kept, and the running node takes it up. What its driver cannot use is refused with
    the reason and the cure. With --anyway it is written all the same, and the node shows it as unavailable.
    """
    from edgepanda.cli.device_work import check_device, entry_of, open_config
    from edgepanda.cli.driver_options import read_words, require

    quiet(settings)
    loaded, file = open_config(settings)
    _refuse_taken(loaded, file, name)
    node_keys = entry_of(driver, program, loaded.path.parent) | ({"labels": labels} if labels else {})

    def values_of(schema: dict[str, Any]) -> dict[str, Any]:
        values = read_words(words, schema)
        require(values, schema)
        return values

    checked = asyncio.run(check_device(loaded, file, name, node_keys, values_of))
    write(settings, loaded, file, name, checked, anyway=anyway, what="added")


def _refuse_taken(loaded: Loaded, file: ConfigFile, name: str) -> None:
    """Raises `EdgePandaError`: `invalid_name`, `device_exists`."""
    from edgepanda.cli.device_work import line_of
    from edgepanda.model.ids import check_name

    check_name(name, "NAME")
    if name in loaded.config.devices:
        raise EdgePandaError(
            f"there is a device {name!r} already, of the driver {loaded.config.devices[name]['driver']!r}",
            code="device_exists",
            where=line_of(loaded, file, "devices", name),
            cure=f"choose another name, or change that one: edgepanda device set {name} KEY=VALUE",
        )


def write(
    settings: Settings, loaded: Loaded, file: ConfigFile, name: str, checked: Checked, *, anyway: bool, what: str
) -> None:
    """Save a device that was checked, have the node take it up, and say so. Raises `EdgePandaError`
    (`device_unusable`, and what `ConfigFile.save` raises), and then nothing was changed.
    """
    from edgepanda.cli.device_work import own_values, refuse_unusable, save
    from edgepanda.cli.driver_help import advice, worth_trying

    probe = checked.probe
    if not probe.usable and not anyway:
        refuse_unusable(name, probe)
    file.set(("devices", name), checked.entry)
    save(file)
    option = option_of(settings, loaded)
    done = Written(
        device=name,
        config=str(loaded.path),
        entry=checked.entry,
        usable=probe.usable,
        simulated=probe.simulated,
        reason=probe.reason,
        cure=probe.cure,
        facts=probe.facts,
        node=asyncio.run(take_up(loaded, name)),
        advice=advice(name, checked.description.device, own_values(checked.entry), option),
        next=worth_trying(name, checked.description, probe.limits, option) if probe.usable else [],
    )
    if settings.json:
        emit(done)
    else:
        _show(done, what, option)


def _show(done: Written, what: str, option: str) -> None:
    facts = [done.entry["driver"], *(str(value) for value in done.facts.values() if value)][:2]
    say(f"{what}  {done.device} ({', '.join(facts)}){', simulated' if done.simulated else ''} in {done.config}")
    if not done.usable:
        hint(f"it cannot be used now: {done.reason}" + (f"; {done.cure}" if done.cure else ""))
    tell(done.node, option)
    for line in done.advice:
        say(f"First: {line}")
    for line in done.next:
        say(f"Try: {line}")
