"""What all commands share: the options --config, --json, --timeout and -v, and the way to the coordinator."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.model.config import Loaded

T = TypeVar("T")

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
EXIT_LINE = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 unreachable or no answer, 4 needs a person, 130 Ctrl-C."


class Settings(NamedTuple):
    """The common options as they were given."""

    config: str | None
    json: bool
    timeout: float | None
    verbose: bool

    def load(self) -> Loaded:
        """The configuration. Raises `ConfigError`."""
        from edgepanda.model.config import find_config, load_config

        return load_config(find_config(self.config))


def duration(text: str) -> float:
    """Seconds from a number with or without a unit: 30, 500ms, 90s, 5m, 2h, 3d. For `click.option(type=duration)`."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?)\s*(ms|s|m|h|d)?", text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no time; write 30, 90s, 5m, 2h or 3d")
    return float(found[1]) * _UNITS[found[2] or ""]


def time_out(text: str) -> float:
    """Seconds of a --timeout: as `duration`, and more than none."""
    seconds = duration(text)
    if not seconds:
        raise click.BadParameter("a time-out is longer than 0")
    return seconds


def _pairs(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise EdgePandaError(
                f"{text!r} is no label", code="invalid_args", where="--label", cure="write --label NAME=VALUE"
            )
        pairs[name] = value
    return pairs


def label_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option --label of every command that has one; the function gets `labels`, a dictionary."""
    return click.option(
        "--label", "labels", multiple=True, metavar="NAME=VALUE", callback=_pairs, help=f"{about} Repeatable."
    )


def node_option(about: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option --node of every command that has one; the function gets `node`, a name or None."""
    return click.option("--node", metavar="NODE", help=about)


def node_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """NODE as an argument or, as other commands have it, as --node; the function gets `node`, a name or None."""

    @functools.wraps(function)
    def wrapped(settings: Settings, node: str | None, named: str | None, **rest: Any) -> Any:
        if node and named and node != named:
            raise click.UsageError(f"{node} and --node {named} name two nodes")
        return function(settings, node=node or named, **rest)

    option = click.option("--node", "named", metavar="NODE", help="The same as NODE.")
    return click.argument("node", metavar="[NODE]", required=False)(option(wrapped))


def command(
    name: str,
    *,
    examples: str,
    returns: str = EXIT_LINE,
    timeout_help: str = "How long to wait for the coordinator's answer (default: 10s).",
    **settings: Any,
) -> Callable[[Callable[..., int | None]], click.Command]:
    """A command with the common options; its function takes `Settings` first and gives an exit code, or None for 0.

    `examples`: one command a line, shown as they stand. Without `timeout_help` the command has no --timeout.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        @functools.wraps(function)
        def wrapped(config: str | None, as_json: bool, verbose: bool, timeout: float | None = None, **rest: Any) -> int:
            return function(Settings(config, as_json, timeout, verbose), **rest) or 0

        options: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
            click.option(
                "--config",
                metavar="FILE",
                help="The configuration (default: the first of ./edgepanda.toml, the user's, the system's).",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON: one document, or one object a line."),
            click.option("-v", "--verbose", is_flag=True, help="Say more on standard error."),
        ]
        if timeout_help:
            options.insert(2, click.option("--timeout", type=time_out, metavar="TIME", help=timeout_help))
        shaped: Callable[..., Any] = wrapped
        for option in reversed(options):
            shaped = option(shaped)
        lines = [f"  {line.strip()}" for line in examples.strip().splitlines()]
        epilog = "\b\nExamples:\n" + "\n".join(lines) + f"\n\n{returns}"
        make: Callable[[Callable[..., Any]], click.Command] = click.command(name, epilog=epilog, **settings)
        return make(shaped)

    return decorate


def confirmed(settings: Settings, question: str, goes_on: str, *, because: str = "") -> bool:
    """A person's yes. `goes_on`: what --yes does, in the cure of the error where nobody can be asked (`usage`);
    `because`: why it must be asked, in the same.
    """
    if settings.json or not sys.stdin.isatty():
        why = f"{because}, and " if because else ""
        raise EdgePandaError(f"{why}nobody can be asked here", code="usage", where="--yes", cure=f"--yes {goes_on}")
    return click.confirm(question, default=False, err=True)


def quiet(settings: Settings) -> None:
    """Logging of a command that talks to the site: nothing, or everything with -v."""
    level = logging.DEBUG if settings.verbose else logging.CRITICAL
    discreet_logging(level, "%(levelname)s %(name)s: %(message)s")


class _Discreet(logging.Formatter):
    """Takes secrets out of a whole entry, its traceback included: libraries log too, and know nothing of ours."""

    def format(self, record: logging.LogRecord) -> str:
        from edgepanda.redact import redact

        return redact(super().format(record))


def discreet_logging(level: int, form: str) -> None:
    """Log to standard error, without secrets."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Discreet(form))
    logging.basicConfig(level=level, handlers=[handler])


def ask(settings: Settings, work: Callable[[AsyncClient], Awaitable[T]], *, watch: bool = False) -> T:
    """Connect as this user, let `work` do its requests, hang up. Raises `EdgePandaError`."""
    from edgepanda.client import ANSWER_WITHIN, AsyncClient

    quiet(settings)

    async def connected() -> T:
        within = settings.timeout or ANSWER_WITHIN
        async with AsyncClient.from_config(settings.config, answer_within=within, watch=watch) as client:
            return await work(client)

    return asyncio.run(connected())
