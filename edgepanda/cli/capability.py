"""`capability`: commands of the user's own, as capabilities of this machine's node: its group, and `add`."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.capability_try import try_command
from edgepanda.cli.common import Settings, command, label_option, quiet
from edgepanda.cli.device_add import RETURNS
from edgepanda.cli.out import emit, hint, say
from edgepanda.cli.reload import Taken, option_of, take_up, tell
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.config_edit import ConfigFile
    from edgepanda.drivers.contract import Probe
    from edgepanda.model.config import Loaded

_COMMAND = "edgepanda.command"


class Written(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A capability that was written into the configuration."""

    capability: str
    config: str
    entry: dict[str, Any]
    usable: bool
    reason: str = ""
    cure: str = ""
    node: Taken
    next: list[str] = []


class _Add(click.Command):
    """Keeps what stands behind `--` apart, and lists the driver's options in its help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does it, for what stands before `--`."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_COMMAND] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The text, and below it what the driver tells of its options."""
        from edgepanda.cli.driver_help import option_rows

        super().format_help_text(ctx, formatter)
        rows = option_rows(asyncio.run(_schema()))
        with formatter.section("Options of the capability"):
            formatter.write_dl([row for name, row in rows if name not in ("argv", "args")])


async def _schema() -> dict[str, Any]:
    from edgepanda.node.configured import COMMAND, Program
    from edgepanda.node.visit import visited

    async with visited(Program(COMMAND)) as host:
        return (await host.describe()).device


@command(
    "add",
    cls=_Add,
    short_help="Make a command a capability: NAME --tier 0 --replay safe -- COMMAND",
    timeout_help="",
    context_settings={"ignore_unknown_options": True},
    options_metavar="",
    examples="""
    edgepanda capability add disk.free --tier 0 --replay safe -- df -h /
    edgepanda capability add pump.run --tier 1 --replay unsafe --arg "s:integer maximum=300" -- ./pump.sh {s}
    edgepanda capability add build.heavy --tier 0 --replay safe --timeout 1h --env PROXY -- make -C /srv/checkout all
    """,
    returns=RETURNS,
)
@click.argument("name")
@click.argument(
    "words", nargs=-1, metavar="--tier N --replay WORD [--KEY VALUE]... -- COMMAND [ARG]...", type=click.UNPROCESSED
)
@click.option(
    "--arg",
    "arguments",
    multiple=True,
    metavar='"NAME:TYPE [KEY=VALUE]..."',
    help="A typed argument, which {NAME} in the command stands for; TYPE is string, integer, number or boolean. "
    "Repeatable.",
)
@label_option("A label that tasks may ask for.")
@click.option("--anyway", is_flag=True, help="Write it although it cannot be used now.")
def add_command(
    settings: Settings,
    name: str,
    words: tuple[str, ...],
    arguments: tuple[str, ...],
    labels: dict[str, str],
    anyway: bool,
) -> None:
    """Make a program of yours a capability of this machine's node. Behind -- stand the program and its arguments; it is
    never a line for a shell.

    Tier and replay have no default on purpose: 0 only looks, 1 can be undone, 2 cannot; safe means that doing it again
    changes nothing. The program runs in a folder of its own with a clean environment, and says in result.json there how
    it went. `edgepanda capability try NAME` shows whether it works, and what blocks it.
    """
    from edgepanda.cli.device_work import by_node, open_config, save
    from edgepanda.cli.driver_options import read_words, require
    from edgepanda.node.configured import COMMAND, Program
    from edgepanda.node.visit import visited, visitor

    quiet(settings)
    loaded, file = open_config(settings)
    _refuse_taken(loaded, file, name)
    argv = _argv(click.get_current_context().meta[_COMMAND])

    async def checked() -> tuple[dict[str, Any], Probe]:
        async with visited(Program(COMMAND), user=visitor(loaded)) as host:
            schema = (await host.describe()).device
            entry = {"argv": argv, **read_words(words, schema)}
            if arguments:
                entry["args"] = {**entry.get("args", {}), **typed_arguments(arguments, schema)}
            require(entry, schema)
            return entry, await by_node(loaded, COMMAND, entry) or await host.probe(entry)

    entry, probe = asyncio.run(checked())
    if not probe.usable and not anyway:
        raise EdgePandaError(
            f"{name} cannot be used: {probe.reason}",
            code="device_unusable",
            where=f'capabilities."{name}".argv',
            cure=f"{_found_elsewhere(argv[0]) or probe.cure}; nothing was written; --anyway writes it all the same",
        )
    entry |= {"labels": labels} if labels else {}
    file.set(("capabilities", name), entry)
    save(file)
    option = option_of(settings, loaded)
    done = Written(
        capability=name,
        config=str(loaded.path),
        entry=entry,
        usable=probe.usable,
        reason=probe.reason,
        cure=probe.cure,
        node=asyncio.run(take_up(loaded, name)),
        next=[shlex.join(["edgepanda", "capability", "try", name, *example_values(entry.get("args", {}))]) + option],
    )
    if settings.json:
        emit(done)
        return
    say(f"added  {name} ({shlex.join(argv)}) in {loaded.path}")
    if not done.usable:
        hint(f"it cannot be used now: {done.reason}; {done.cure}")
    tell(done.node, option)
    for line in done.next:
        say(f"Try: {line}")


def _refuse_taken(loaded: Loaded, file: ConfigFile, name: str) -> None:
    """Raises `EdgePandaError`: `invalid_name`, `device_exists`."""
    from edgepanda.cli.device_work import line_of
    from edgepanda.model.ids import is_capability

    if not is_capability(name):
        raise EdgePandaError(
            f"{name!r} is no name of a capability",
            code="invalid_name",
            where="NAME",
            cure="use 2 to 4 words of a-z, 0-9, '_' and '-' with dots between, such as disk.free",
        )
    if name in loaded.config.capabilities:
        raise EdgePandaError(
            f"there is a capability {name!r} already",
            code="device_exists",
            where=line_of(loaded, file, "capabilities", name),
            cure="choose another name, or change that one with `edgepanda config edit`",
        )


def _argv(words: list[str]) -> list[str]:
    """The program and its arguments; a program that is named by a path gets the whole path, for it runs elsewhere."""
    if not words:
        raise EdgePandaError(
            "there is no command", code="usage", where="-- COMMAND", cure="write it last, behind --, as in: -- df -h /"
        )
    program = words[0]
    return [os.path.abspath(program) if "/" in program else program, *words[1:]]


def _found_elsewhere(program: str) -> str:
    found = shutil.which(program) if "/" not in program else None
    return f"it is on your own PATH: write {os.path.abspath(found)}" if found else ""


def typed_arguments(given: tuple[str, ...], schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The entries of `args` from `NAME:TYPE KEY=VALUE ...`. Raises `EdgePandaError` that names the option. Pure."""
    from edgepanda.cli.driver_options import OptionError, read_words, resolved

    items = schema.get("properties", {}).get("args", {}).get("additionalProperties", {})
    about = {**resolved(items, schema), "$defs": schema.get("$defs", {})}
    found: dict[str, dict[str, Any]] = {}
    for text in given:
        first, *more = shlex.split(text) or [""]
        name, colon, kind = first.partition(":")
        if not colon or not name.isidentifier() or name in found:
            raise OptionError(f"{text!r} is no new argument", where="--arg", cure='write it like "seconds:integer"')
        try:
            found[name] = read_words([f"type={kind}", *more], _of_kind(about, kind))
        except OptionError as error:
            raise OptionError(error.message, where=f"--arg {name}: {error.where}", cure=error.cure) from error
    return found


def _of_kind(about: dict[str, Any], kind: str) -> dict[str, Any]:
    """The schema of an argument whose type is known: its values are read as that type, not as text."""
    properties = about.get("properties", {})
    if kind not in properties.get("type", {}).get("enum", ()):
        return about  # the type itself will be refused
    values = {"default": {"type": kind}, "enum": {"type": "array", "items": {"type": kind}}}
    return {**about, "properties": {**properties, **values}}


def example_values(args: dict[str, dict[str, Any]]) -> list[str]:
    """Values for the arguments that have no default, as they are typed. Pure."""
    words = []
    for name, about in args.items():
        if about.get("default") is None:
            plain = {"string": "...", "boolean": "true"}.get(about["type"], str(about.get("minimum", 1)))
            words.append(f"{name}={about['enum'][0] if about.get('enum') else plain}")
    return words


capability_command = click.Group(
    "capability",
    no_args_is_help=False,  # then it is an error that names the help
    commands={"add": add_command, "try": try_command},
    help="Commands of your own as capabilities: add one, or try it and see what blocks it.",
)
