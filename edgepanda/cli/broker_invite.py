"""`broker invite`: another machine's way to the embedded broker, and the line to type over there."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepanda.cli.common import Settings, command
from edgepanda.cli.out import emit, hint, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded
    from edgepanda.model.config_types import Broker

USERS_FILE = "broker-users.toml"
EVERYWHERE = "0.0.0.0"  # noqa: S104 that is what was asked for
PASSWORD_BYTES = 15
ELSEWHERE = ("192.0.2.1", 9)  # kept for documents (RFC 5737): nothing is sent there


@command(
    "invite",
    short_help="Let another machine reach it: NAME",
    timeout_help="",
    returns="Exit codes: 0 done, 1 a file cannot be used, 2 wrong usage.",
    examples="""
    edgepanda broker invite shed --allow-plaintext
    edgepanda broker invite shed --address attic.lan --replace
    """,
)
@click.argument("name")
@click.option("--address", default="", help="This machine as the other one finds it (default: its address there).")
@click.option("--allow-plaintext", is_flag=True, help="Listen without TLS: who is on the network reads everything.")
@click.option("--replace", is_flag=True, help="There is such a user already, who gets a new password.")
def invite_command(settings: Settings, name: str, address: str, allow_plaintext: bool, replace: bool) -> None:
    """Open the embedded broker to the network, if it is not yet, and make a user for another machine's node.

    Prints what to type there. The password in it is shown this once. Whoever reads along on a network without TLS can
    read and disturb, but not command: everything is signed, and a node counts only once you let its key in.
    """
    from edgepanda.client import site_key
    from edgepanda.config_edit import ConfigFile
    from edgepanda.model.ids import check_name
    from edgepanda.services.broker_users import add_user
    from edgepanda.trust.identity import encode_key

    check_name(name, "NAME")
    loaded = settings.load()
    _require_ours(loaded)
    wanted = opened(loaded.config.broker, allow_plaintext=allow_plaintext)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    users = loaded.beside(loaded.config.broker.users_file) or loaded.path.parent / USERS_FILE
    add_user(users, name, password, replace=replace)
    if wanted:
        file = ConfigFile(loaded.path)
        for key, value in wanted.items():
            file.set(("broker", key), value)
        file.save()
    scheme = "mqtts" if loaded.config.broker.cert_file else "mqtt"
    url = f"{scheme}://{name}:{password}@{address or own_address()}:{loaded.listen_address()[1]}"
    site = loaded.config.site.name
    words = f"init --node-only --name {name} --site {site} --site-key {encode_key(site_key(loaded))} --broker {url}"
    if settings.json:
        emit({"user": name, "file": str(users), "changed": wanted, "url": url, "next": f"edgepanda {words}"})
    else:
        _show(name, users, wanted, words, loaded)


def _require_ours(loaded: Loaded) -> None:
    where = str(loaded.path)
    if not loaded.config.broker.embedded:
        raise EdgePandaError(
            "this site has a broker of its own",
            code="config_invalid",
            where=f"{where}: broker.url",
            cure="make a user there, and on the other machine: edgepanda init --node-only --broker mqtt://USER@HOST",
        )
    if loaded.config.coordinator is None:
        raise EdgePandaError(
            "this machine runs no coordinator, so that nothing would be here to join",
            code="config_invalid",
            where=f"{where}: coordinator",
            cure="type it on the machine where the site's coordinator runs",
        )


def opened(broker: Broker, *, allow_plaintext: bool) -> dict[str, str | bool]:
    """What must change in [broker] so that other machines reach it; nothing where they can already. Pure.

    Raises `click.UsageError` where that would be without TLS and nobody has allowed it.
    """
    from edgepanda.model.broker import is_loopback, parse_listen

    host, port = parse_listen(broker.listen) or (EVERYWHERE, 1883)
    changes: dict[str, str | bool] = {}
    if not broker.users_file:
        changes["users_file"] = USERS_FILE
    if is_loopback(host):
        changes["listen"] = f"{EVERYWHERE}:{port}"
    if not (broker.cert_file or broker.allow_plaintext):
        if not allow_plaintext:
            raise click.UsageError(
                "this broker has no certificate: --allow-plaintext lets it listen without TLS, where you trust "
                "everybody on the network; else set cert_file and key_file in [broker]"
            )
        changes["allow_plaintext"] = True
    return changes


def own_address() -> str:
    """This machine's address on its network, or its name where it has no network now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(ELSEWHERE)
            return str(sock.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _show(name: str, users: Path, wanted: dict[str, str | bool], words: str, loaded: Loaded) -> None:
    say(f"{name} may log in to the embedded broker ({users})")
    if wanted:
        say(f"changed {', '.join(wanted)} in [broker] of {loaded.path}: end `edgepanda up` here and start it again")
    if loaded.config.broker.cert_file:
        hint("The other machine needs ca_file in [broker] too: the authority that signed cert_file.")
    say()
    say("On the other machine:")
    say(f"    edgepanda {words}")
    say("It prints the command that lets its node in, to be typed here.")
