"""What `init` asks a person at a terminal. Each question has an option, and an option that was given is not asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import click

from edgepanda.errors import EdgePandaError

EMBEDDED = "embedded"
NO_SERVO = "none"


class Answers(NamedTuple):
    """What a new configuration is made from; empty where `init` has a default of its own."""

    name: str = ""
    site: str = ""
    broker: str = ""
    node_only: bool = False
    site_key: str = ""
    servo: str = ""  # its pin as the configuration has it, or `NO_SERVO`


def ask_for(given: Answers) -> Answers:
    """Ask for what was not given. A wrong answer is told why, and asked again."""
    click.echo(
        "A few questions; Enter takes what stands in brackets. `edgepanda init --help` has an option for each.\n"
    )
    node_only = given.node_only or bool(given.site_key) or _role() == "node"
    name = given.name or click.prompt(
        "Name of this machine's node [host name and four characters of its key]", "", False, value_proc=_named_or_none
    )
    site = given.site or click.prompt("Name of the site", "home", value_proc=_named)
    if not node_only:
        broker = given.broker or _broker_of_site()
        return Answers(name=name, site=site, broker=broker, servo=given.servo or _servo())
    key = given.site_key or click.prompt("The site's public key (`edgepanda init` printed it there)", value_proc=_key)
    broker = given.broker or click.prompt("The site's broker, as in mqtt://broker.lan:1883", value_proc=_broker)
    return Answers(name=name, site=site, broker=broker, node_only=True, site_key=key, servo=given.servo or _servo())


def _role() -> str:
    click.echo("  site   this machine has the coordinator: choose this for the first one")
    click.echo("  node   this machine joins a site whose coordinator runs elsewhere")
    choice: str = click.prompt("What is it to be", "site", type=click.Choice(["site", "node"]), show_choices=False)
    return choice


def _servo() -> str:
    from edgepanda.cli.init_hardware import ask_servo, scanned

    return ask_servo(scanned())


def _broker_of_site() -> str:
    click.echo("  embedded   a broker comes along, for this machine only")
    click.echo("  or the URL of one that other machines reach too, as in mqtt://user@broker.lan:1883")

    def checked(text: str) -> str:
        return text if text == EMBEDDED else _broker(text)

    answer: str = click.prompt("Broker", EMBEDDED, value_proc=checked)
    return "" if answer == EMBEDDED else answer


def _checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """The check as click wants it: a word to the person, and the question again."""

    def checked(text: str) -> str:
        try:
            check(text.strip())
        except EdgePandaError as error:
            raise click.UsageError(f"{error.message}; {error.cure}" if error.cure else error.message) from error
        return text.strip()

    return checked


@_checked
def _named(text: str) -> object:
    from edgepanda.model.ids import check_name

    return check_name(text, "the name")


def _named_or_none(text: str) -> str:
    return _named(text) if text else ""


@_checked
def _key(text: str) -> object:
    from edgepanda.trust.identity import decode_key

    return decode_key(text)


@_checked
def _broker(text: str) -> object:
    from edgepanda.model.broker import parse_broker

    return parse_broker(text, where="the broker")
