"""Finds the module of a command, runs it, and turns whatever goes wrong into one line and an exit code."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import click

from edgepanda.cli.exits import exit_code
from edgepanda.cli.table import COMMANDS, overview
from edgepanda.errors import EdgePandaError


class LazyGroup(click.Group):
    """Imports a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the overview."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"edgepanda.cli.{entry[0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def get_help(self, ctx: click.Context) -> str:
        """The overview."""
        return overview()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but an unknown command is told its nearest neighbour."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            cure = f"did you mean `edgepanda {near[0]}`?" if near else "`edgepanda --help` lists the commands"
            raise EdgePandaError(f"there is no command {name!r}", code="usage", where="COMMAND", cure=cure)
        return super().resolve_command(ctx, args)


def run(words: list[str]) -> int:
    """Run a command; gives its exit code and never raises."""
    as_json = "--json" in words
    try:
        result = LazyGroup("edgepanda").main(words, prog_name="edgepanda", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        return _tell(_usage_error(error), as_json)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: the exit must not complain
        return 0
    except EdgePandaError as error:
        return _tell(error, as_json)
    except Exception as error:
        return _tell(_fault(error, words), as_json)


def _usage_error(error: click.ClickException) -> EdgePandaError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "edgepanda"
    cure = "" if "edgepanda" in error.format_message() else f"`{path} --help` shows how"
    message = " ".join(error.format_message().split()).rstrip(".")
    return EdgePandaError(message[:1].lower() + message[1:], code="usage", where=_place(error), cure=cure)


def _place(error: click.ClickException) -> str:
    """The option or argument that is wrong, or the command."""
    context = getattr(error, "ctx", None)
    parameter = getattr(error, "param", None)
    option = getattr(error, "option_name", None)
    if option or parameter is None:
        return str(option or (context.command_path if context is not None else "edgepanda"))
    return str(parameter.get_error_hint(context)).replace("'", "")


def _innermost(error: Exception) -> str:
    """File and line that raised it, for a report; no path of this machine."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "edgepanda"


def _fault(error: Exception, words: list[str]) -> EdgePandaError:
    if {"-v", "--verbose"} & set(words):
        import traceback

        from edgepanda.redact import redact

        sys.stderr.write(redact(traceback.format_exc()))
    return EdgePandaError(
        f"a fault in EdgePanda itself: {type(error).__name__}: {error}",
        code="internal",
        where=_innermost(error),
        cure="run it again with -v, and report what it prints",
    )


def _tell(error: EdgePandaError, as_json: bool) -> int:
    from edgepanda.redact import redact, redact_value

    if as_json:
        document: dict[str, Any] = {"error": redact_value(error.as_dict())}
        print(json.dumps(document, ensure_ascii=False, default=str), flush=True)
    else:
        for line in error.lines():
            print(f"error: {redact(line)}", file=sys.stderr, flush=True)
    if "NOTIFY_SOCKET" in os.environ:
        from edgepanda.sdnotify import ERROR, notify

        notify(f"STATUS={redact(str(error))}", ERROR + json.dumps(redact_value(error.as_dict()), default=str))
    return exit_code(error)
