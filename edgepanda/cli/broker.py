"""`broker`: run the embedded one, manage its users, or try any broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.broker_check import check_command
from edgepanda.cli.broker_invite import invite_command
from edgepanda.cli.broker_user import user_group
from edgepanda.cli.common import Settings, command
from edgepanda.cli.daemons import RETURNS, announce
from edgepanda.cli.process import Frame, daemon_logging, serve
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded

URL_LINE = "X_EDGEPANDA_URL="  # what the broker tells its supervisor


@command(
    "run",
    short_help="Run the embedded broker in the foreground",
    timeout_help="",
    returns=RETURNS,
    examples="edgepanda broker run\nedgepanda broker run --config ./edgepanda.toml",
)
def _run(settings: Settings) -> int:
    """Run the embedded MQTT broker in the foreground.

    It listens on this machine only, unless [broker] says otherwise, with passwords and TLS. `edgepanda up` starts it
    too. A busy site runs Mosquitto.
    """
    daemon_logging(settings)
    loaded = settings.load()
    if not loaded.config.broker.embedded:
        raise EdgePandaError(
            "this configuration uses a broker of its own",
            code="config_invalid",
            where=f"{loaded.path}: broker.url",
            cure="remove url to use the embedded one",
        )
    host, port = loaded.listen_address()
    options = embedded_options(loaded)

    async def run(frame: Frame) -> None:
        from edgepanda.services.broker import serve as serve_broker

        def listening(chosen: int) -> None:
            shown = f"[{host}]" if ":" in host else host
            url = f"{'mqtts' if loaded.config.broker.cert_file else 'mqtt'}://{shown}:{chosen}"
            announce(settings, {"process": "broker", "url": url}, f"broker at {url}")
            frame.ready(URL_LINE + url)

        await serve_broker(host, port, ready=listening, **options)

    return serve(run)


def embedded_options(loaded: Loaded) -> dict[str, Any]:
    """What the embedded broker is made with, from [broker]. Raises `EdgePandaError` for files that cannot be used."""
    from edgepanda.model.broker_secret import own_password
    from edgepanda.services.broker_accounts import Accounts
    from edgepanda.services.broker_files import Certificate

    broker = loaded.config.broker
    users, certificate, key = (loaded.beside(name) for name in (broker.users_file, broker.cert_file, broker.key_file))
    return {
        "accounts": Accounts.load(users, own_secret=own_password(loaded.broker_secret)) if users else None,
        "certificate": Certificate(certificate, key) if certificate and key else None,
        "allow_plaintext": broker.allow_plaintext,
        "largest_packet": broker.largest_message,
    }


broker_command = click.Group(
    "broker",
    no_args_is_help=False,  # then it is an error that names the help
    commands={"run": _run, "check": check_command, "user": user_group, "invite": invite_command},
    help="Run the embedded broker, let other machines in, manage its users, or try any broker.",
)
