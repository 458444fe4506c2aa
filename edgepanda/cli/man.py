"""`man`: manual pages, made from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from edgepanda import __version__
from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, say
from edgepanda.cli.table import COMMANDS, EXITS, SECTIONS
from edgepanda.errors import EdgePandaError


@command(
    "man",
    timeout_help="",
    examples="edgepanda man ~/.local/share/man/man1\nsudo edgepanda man /usr/local/share/man/man1",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def man_command(settings: Settings, folder: Path) -> None:
    """Write the manual pages into DIR: edgepanda.1, and one page for each command."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages().items():
            path = folder / f"{name}.1"
            path.write_text(text, encoding="utf-8")
            written.append(str(path))
    except OSError as error:
        raise EdgePandaError(
            f"cannot write there: {error.strerror}",
            code="man_unwritable",
            where=str(folder),
            cure="name another folder",
        ) from error
    if settings.json:
        emit({"written": written})
    else:
        say(f"{len(written)} pages in {folder}; to read one: man -l {written[0]}")


def pages() -> dict[str, str]:
    """All pages in roff, by name."""
    from edgepanda.cli.app import LazyGroup

    group = LazyGroup("edgepanda")
    context = click.Context(group, info_name="edgepanda")
    found = {"edgepanda": overview_page()}
    for name, (_, about) in COMMANDS.items():
        known = group.get_command(context, name)
        if known is not None:
            found[f"edgepanda-{name}"] = page(known, context, name, about)
    return found


def overview_page() -> str:
    """`edgepanda.1`."""
    lines = [
        *_head("edgepanda", "durable work for small machines"),
        *_synopsis("edgepanda", "COMMAND [ARGUMENT...]"),
        ".SH DESCRIPTION",
        _text(
            "Nodes say what they can do, a coordinator keeps a ledger of all work, and every task ends with evidence."
        ),
    ]
    for title, commands in SECTIONS.items():
        lines.append(f".SS {_text(title)}")
        for name, (_, about) in commands.items():
            lines += _item(f"edgepanda-{name}(1)", about)
    return "\n".join([*lines, *_exits()]) + "\n"


def page(known: click.Command, parent: click.Context, name: str, about: str) -> str:
    """The page of one command; subcommands are part of it."""
    context = click.Context(known, info_name=name, parent=parent)
    lines = [*_head(f"edgepanda-{name}", about), *_command(known, context, top=True), *_below(known, context, name)]
    return "\n".join([*lines, *_exits(), ".SH SEE ALSO", ".BR edgepanda (1)"]) + "\n"


def _below(known: click.Command, context: click.Context, name: str) -> Iterable[str]:
    """The commands of a group, and of groups in it."""
    if not isinstance(known, click.Group):
        return
    for sub, each in known.commands.items():
        inner = click.Context(each, info_name=sub, parent=context)
        if not isinstance(each, click.Group):
            yield f".SH {_text(f'{name} {sub}'.upper())}"
            yield from _command(each, inner, top=False)
        yield from _below(each, inner, f"{name} {sub}")


def _command(known: click.Command, context: click.Context, *, top: bool) -> list[str]:
    heading = ".SH" if top else ".SS"
    lines = _synopsis(context.command_path, " ".join(known.collect_usage_pieces(context)), heading)
    lines += [f"{heading} DESCRIPTION", *_paragraphs(known.help or known.short_help or "")]
    records = [option.get_help_record(context) for option in known.get_params(context)]
    lines.append(f"{heading} OPTIONS")
    for record in records:
        if record is not None and record[1]:  # an argument is explained by the description
            lines += _item(*record)
    examples = [line.strip() for line in (known.epilog or "").splitlines() if line.startswith("  ")]
    if examples:
        lines += [f"{heading} EXAMPLES", ".nf", *(_text(line) for line in examples), ".fi"]
    return lines


def _head(name: str, about: str) -> list[str]:
    title = name.upper().replace("-", "\\-")
    return [
        f'.TH "{title}" "1" "" "EdgePanda {_text(__version__)}" "EdgePanda"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(about)}",
    ]


def _synopsis(name: str, words: str, heading: str = ".SH") -> list[str]:
    return [f"{heading} SYNOPSIS", f".B {_text(name)}", _text(words)]


def _item(term: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_text(term)}\\fR", _text(" ".join(text.split()))]


def _paragraphs(text: str) -> Iterable[str]:
    for paragraph in text.replace("\b", "").split("\n\n"):
        if words := " ".join(paragraph.split()):
            yield from (".PP", _text(words))


def _exits() -> Sequence[str]:
    lines = [".SH EXIT STATUS"]
    for code, meaning in EXITS.items():
        lines += _item(str(code), meaning)
    return lines


def _text(text: str) -> str:
    """Text as roff takes it: nothing in it is a request or an escape."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe
