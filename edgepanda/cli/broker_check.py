"""`broker check`: what any broker can do, and what is missing for EdgePanda."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.common import Settings, command, quiet
from edgepanda.cli.exits import FAILED, OK
from edgepanda.cli.out import emit, fields, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.model.broker import BrokerAddress
    from edgepanda.model.broker_needs import Finding, Observed

WITHIN = 30.0  # seconds for all of it


@command(
    "check",
    short_help="Try any broker, and say what is missing for EdgePanda: [URL]",
    timeout_help="How long all of it may take (default: 30s; a good broker needs 5 to 10).",
    returns="Exit codes: 0 nothing that is needed is missing, 1 something is, 2 wrong usage, 130 Ctrl-C.",
    examples="""
    edgepanda broker check
    edgepanda broker check mqtt://broker.lan
    edgepanda broker check mqtts://shed@broker.lan:8883 --password-file shed.password --ca-file ca.pem
    """,
)
@click.argument("url", required=False)
@click.option("--password-file", metavar="FILE", help="The file that holds the password of the URL's user.")
@click.option("--password-stdin", is_flag=True, help="Read that password from standard input.")
@click.option("--ca-file", metavar="FILE", help="For mqtts: the authority that signed the broker's certificate.")
@click.option("--server-name", default="", help="For mqtts: the name in the certificate where it is not the host's.")
@click.option("--base", default="", help="First level of the site's topics, for access lists (default: edgepanda).")
def check_command(
    settings: Settings,
    url: str | None,
    password_file: str | None,
    password_stdin: bool,
    ca_file: str | None,
    server_name: str,
    base: str,
) -> int:
    """Try a broker as EdgePanda uses it, and say what is missing; without URL the one of the configuration.

    It logs in as you would and works below topics of its own with random names: messages, retained ones, a will, two
    clients of one name, a silent one, a large message, round trips. Nothing is left behind, and nobody else's messages
    are read.
    """
    from edgepanda.model.broker_needs import judge

    quiet(settings)
    if url is None:
        if password_file or password_stdin or ca_file or server_name:
            raise click.UsageError("without URL everything is taken from the configuration")
        loaded = settings.load()
        address, base = loaded.broker_address(), base or loaded.config.site.base
    else:
        address = _address(url, _password(password_file, password_stdin), ca_file or "", server_name)
    seen = asyncio.run(_observe(address, base or "edgepanda", settings.timeout or WITHIN))
    findings = judge(seen, time.time())
    needed = any(finding.needed for finding in findings)
    if settings.json:
        told = [{**msgspec.to_builtins(each), "meaning": each.meaning, "cure": each.cure} for each in findings]
        emit({"ok": not needed, "observed": seen, "missing": told})
    else:
        _show(seen, findings)
    return FAILED if needed else OK


def _address(url: str, password: str, ca_file: str, server_name: str) -> BrokerAddress:
    from edgepanda.model.broker import parse_broker

    address = parse_broker(url, where="URL")
    if address.password:
        raise click.UsageError(
            "a password on the command line is seen by everybody on this machine; "
            "use --password-file or --password-stdin"
        )
    return msgspec.structs.replace(address, password=password, ca_file=ca_file, server_name=server_name)


def _password(file: str | None, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if file is None:
        return ""
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EdgePandaError(f"cannot read it: {reason}", code="invalid_args", where=file) from error


async def _observe(address: BrokerAddress, base: str, within: float) -> Observed:
    from edgepanda.wire.broker_check import observe

    task = asyncio.current_task()
    assert task is not None  # noqa: S101 a coroutine always runs in one
    for sign in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(sign, task.cancel)  # so that nothing is left behind
    try:
        return await observe(address, base=base, within=within)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _show(seen: Observed, findings: list[Finding]) -> None:
    say(" ".join(word for word in (seen.address, seen.version and f"({seen.version})") if word))
    fields(facts(seen))
    for finding in findings:
        word = click.style("missing", fg="red") if finding.needed else click.style("advice ", fg="yellow")
        found = f" ({finding.found})" if finding.found else ""
        say(f"{word}  {finding.meaning.rstrip('.')}{found} [{finding.code}]")
        say(f"         {finding.cure}")
    if not any(finding.needed for finding in findings):
        say(click.style("EdgePanda can use this broker.", fg="green"))


def facts(seen: Observed) -> list[tuple[str, str]]:
    """What was seen, for a person; what was not tried is left out. Pure."""

    def word(value: bool | None, yes: str = "yes", no: str = "no") -> str:
        return "" if value is None else yes if value else no

    def milliseconds(value: float | None) -> str:
        return "" if value is None else f"{value * 1000:.2f} ms"

    rows: list[tuple[str, Any]] = [
        ("reached", word(not seen.failure or seen.failure == "broker_refused")),
        ("TLS", _tls(seen)),
        ("logged in", "" if seen.failure else seen.user or "without a user"),
        ("without password", word(seen.anonymous, "anybody comes in", "nobody comes in")),
        ("topics", word(seen.topics, "may be used", "may not be used")),
        ("QoS 1", word(seen.qos)),
        ("retained", word(seen.retained, "kept", "not kept")),
        ("  by wildcard", word(seen.retained_wildcard)),
        ("  cleared", word(seen.retained_cleared)),
        ("  unasked", word(seen.retained_leaks, "sent to new clients", "not sent")),
        ("will", word(seen.will, "sent", "not sent")),
        ("silent clients", word(seen.keepalive, "cut off", "stay")),
        ("same client id", word(seen.takeover, "the newer takes over", "the newer is not heard")),
        ("  wrong password", word(seen.stranger, "disturbs the connection", "disturbs nobody")),
        ("largest tried", "" if seen.largest is None else f"{seen.largest} bytes"),
        ("wide filters", word(seen.past_acl, "go past the access list", "give nothing more")),
        ("kept sessions", word(seen.session, "yes, not needed", "no, not needed")),
        ("bare answer", milliseconds(seen.answer)),
        ("round trip p50", milliseconds(seen.round_trip)),
        ("round trip p95", milliseconds(seen.round_trip_p95)),
    ]
    return rows


def _tls(seen: Observed) -> str:
    if not seen.tls:
        return "" if seen.failure else "no"
    if seen.certificate_until is None:
        return "" if seen.failure else "yes"
    return f"valid until {time.strftime('%Y-%m-%d', time.gmtime(seen.certificate_until))}"
