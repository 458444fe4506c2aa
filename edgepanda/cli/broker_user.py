"""`broker user`: who may log in to the embedded broker."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, hint, say, table
from edgepanda.errors import EdgePandaError

_RETURNS = "Exit codes: 0 done, 1 the file cannot be used, 2 wrong usage, or no such user."
_FILTERS = "A topic filter that the user may {}, as in 'edgepanda/v1/#' (default: all). Repeatable."


def _file(settings: Settings) -> Path:
    loaded = settings.load()
    path = loaded.beside(loaded.config.broker.users_file)
    if path is None:
        raise EdgePandaError(
            "the configuration names no file of users",
            code="config_invalid",
            where=f"{loaded.path}: broker.users_file",
            cure='add users_file = "broker-users.toml" to [broker]',
        )
    return path


@command(
    "add",
    short_help="Add a user, or set a new password: NAME",
    timeout_help="",
    returns=_RETURNS,
    examples="""
    edgepanda broker user add shed
    edgepanda broker user add shed --replace
    edgepanda broker user add ha --password-stdin --subscribe 'edgepanda/v1/#' <ha.password
    """,
)
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input, for scripts.")
@click.option("--publish", multiple=True, metavar="FILTER", help=_FILTERS.format("publish to"))
@click.option("--subscribe", multiple=True, metavar="FILTER", help=_FILTERS.format("subscribe to"))
@click.option("--replace", is_flag=True, help="The user is there already and gets a new password.")
def _add(
    settings: Settings,
    name: str,
    password_stdin: bool,
    publish: tuple[str, ...],
    subscribe: tuple[str, ...],
    replace: bool,
) -> None:
    """Add a user to the file that [broker] users_file names. The password is asked for twice and kept as a hash.

    A running broker takes it up within seconds; a user with a new password is cut off.
    """
    from edgepanda.services.broker_users import add_user

    path = _file(settings)
    add_user(path, name, _password(name, password_stdin), publish=publish, subscribe=subscribe, replace=replace)
    if settings.json:
        emit({"user": name, "file": str(path)})
    else:
        say(f"{name} may log in to the embedded broker ({path})")
        hint("On the other machine: user and password_file in [broker], and url = the address of this one.")


def _password(name: str, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for the password; give it with --password-stdin")
    password: str = click.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True, err=True)
    return password


@command(
    "remove",
    short_help="Let a user in no longer: NAME",
    timeout_help="",
    returns=_RETURNS,
    examples="edgepanda broker user remove shed",
)
@click.argument("name")
def _remove(settings: Settings, name: str) -> None:
    """Remove a user. A running broker cuts him off within seconds."""
    from edgepanda.services.broker_users import remove_user

    path = _file(settings)
    remove_user(path, name)
    if settings.json:
        emit({"user": name, "file": str(path)})
    else:
        say(f"{name} may log in no longer ({path})")


@command(
    "list",
    short_help="Show who may log in, and to which topics",
    timeout_help="",
    returns=_RETURNS,
    examples="edgepanda broker user list\nedgepanda broker user list --json",
)
def _list(settings: Settings) -> None:
    """List the users and which topics each may use. No password is shown, nor its hash."""
    from edgepanda.services.broker_users import users_in

    path = _file(settings)
    users = users_in(path)
    if settings.json:
        rights = {name: {"publish": user.publish, "subscribe": user.subscribe} for name, user in users.items()}
        emit({"file": str(path), "users": rights})
    elif users:
        rows = [(name, " ".join(user.publish), " ".join(user.subscribe)) for name, user in users.items()]
        table(("USER", "PUBLISHES", "SUBSCRIBES"), rows)
    else:
        say(f"nobody yet ({path}): edgepanda broker user add NAME")


user_group = click.Group(
    "user",
    no_args_is_help=False,
    commands={"add": _add, "remove": _remove, "list": _list},
    help="Who may log in to the embedded broker.",
)
