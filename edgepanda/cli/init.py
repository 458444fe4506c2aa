"""`init`: a configuration, keys, and who may speak at the site."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from edgepanda.cli.common import Settings, command
from edgepanda.cli.init_questions import NO_SERVO, Answers, ask_for
from edgepanda.cli.out import aligned_fields, emit, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.model.config import Loaded
    from edgepanda.trust.identity import Identity
    from edgepanda.trust.peers import Peer


class Made(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What `init` made or found."""

    config: str
    site: str
    site_key: str
    node: str
    node_key: str
    operator: str = ""
    operator_key_file: str = ""
    embedded_broker: bool = False
    made: list[str] = []
    next: list[str] = []


@command(
    "init",
    timeout_help="",
    examples="""
    edgepanda init
    edgepanda init --name desk --site home --servo 18
    edgepanda init --name desk --broker mqtt://user@broker.lan:1883
    edgepanda init --node-only --name shed --site home --site-key ed25519:... --broker mqtt://broker.lan:1883
    edgepanda init --from /boot/firmware/edgepanda.toml --config /etc/edgepanda/edgepanda.toml
    """,
    returns="Exit codes: 0 made, or there already; 1 a file cannot be written; 2 wrong usage.",
)
@click.option("--name", default="", help="The node's name (default: the host's name and four characters of its key).")
@click.option("--site", "site_name", default="", help="The site's name (default: home).")
@click.option("--broker", "broker_url", default="", metavar="URL", help="The broker (default: the embedded one).")
@click.option("--node-only", is_flag=True, help="This machine joins a site whose coordinator runs elsewhere.")
@click.option("--site-key", default="", metavar="KEY", help="With --node-only: the site's public key.")
@click.option("--servo", default="", metavar="PIN", help="A servo's pin: 18 or gpiochip1:7 (none: a simulated servo).")
@click.option("--from", "source", metavar="FILE", help="Take this configuration over, and leave the outcome beside it.")
@click.option("--yes", is_flag=True, help="Ask nothing: take the default where no option says otherwise.")
def init_command(
    settings: Settings,
    name: str,
    site_name: str,
    broker_url: str,
    node_only: bool,
    site_key: str,
    servo: str,
    source: str | None,
    yes: bool,
) -> None:
    """Make a configuration and keys.

    Writes ./edgepanda.toml (or the file of --config), keys in its state folder, and your own key as an operator in your
    home folder; lets you and this machine's node in. What exists is kept, so it can be run again at any time. At a
    terminal it asks for what no option says, unless there is a configuration already.

    A machine without screen: put edgepanda.toml on the card's boot partition and let --from take it over at the first
    boot. The outcome, with what to type at the site or what is wrong in the file, is left in edgepanda-outcome.txt
    beside it; a file that was taken over is removed from there, since it may hold a password.
    """
    path = Path(settings.config or os.environ.get("EDGEPANDA_CONFIG") or "edgepanda.toml")
    given = Answers(name=name, site=site_name, broker=broker_url, node_only=node_only, site_key=site_key, servo=servo)
    if source is not None:
        if any(given):
            raise click.UsageError("--from takes all from the file; leave the other options away")
        made = take_over(Path(source), path)
    else:
        made = _make(path, _answers(settings, given, path, yes=yes))
    if settings.json:
        emit(made)
    else:
        _show(made)


def _answers(settings: Settings, given: Answers, path: Path, *, yes: bool) -> Answers:
    """What was given, and at a terminal what the person says to the rest. Raises `click.UsageError`."""
    if given.site_key and not given.node_only:
        raise click.UsageError("--site-key goes with --node-only; a site makes its own key")
    if given.servo:
        given = given._replace(servo=_checked_servo(given.servo))
    silent = yes or settings.json or path.exists() or not (sys.stdin.isatty() and sys.stdout.isatty())
    if not silent:
        return ask_for(given)
    if given.node_only and not (given.site_key and given.broker):
        raise click.UsageError("--node-only needs --site-key and --broker: `edgepanda init` at the site prints them")
    return given


def _make(path: Path, answers: Answers) -> Made:
    site = answers.site or "home"
    if answers.node_only:
        return join_site(
            path,
            name=answers.name,
            site=site,
            site_key=answers.site_key,
            broker=answers.broker,
            servo=_pin_of(answers),
        )
    return make_site(path, name=answers.name, site=site, broker=answers.broker, servo=_pin_of(answers))


def _checked_servo(text: str) -> str:
    """The pin as the configuration has it. Raises `EdgePandaError` (`config_value`) when there is none like it here."""
    from edgepanda.cli.init_hardware import scanned, servo_pin, warn_of

    if text == NO_SERVO:
        return text
    hardware = scanned()
    pin = servo_pin(text, hardware)
    warn_of(text, hardware)
    return pin


def _pin_of(answers: Answers) -> str:
    return "" if answers.servo == NO_SERVO else answers.servo


def take_over(source: Path, path: Path) -> Made:
    """Make `source` the configuration at `path`, with keys as `make_site` or `join_site` do; leaves the outcome beside
    the source. Raises `EdgePandaError`, which stands in the outcome too.
    """
    from edgepanda.cli import first_boot

    try:
        files = first_boot.take(source, path)
        made = make_site(path, name="", site="", broker="")
        made = msgspec.structs.replace(made, made=[*files, *made.made])
        first_boot.finish(source, lines(made))
    except EdgePandaError as error:
        first_boot.fail(source, error)
        raise
    return made


def make_site(
    path: Path, *, name: str, site: str, broker: str, servo: str = "", operator_key: Path | None = None
) -> Made:
    """A site on this machine: configuration, keys, peers. Keeps what exists. Raises `EdgePandaError`.

    `operator_key`: the file of the person's key (default: `client.operator_key_path()`). Where the configuration that
    exists has no coordinator, the machine belongs to another one's site, and only the node's key is looked after.
    """
    from edgepanda.client import operator_key_path
    from edgepanda.node.daemon import node_name
    from edgepanda.trust.identity import encode_key
    from edgepanda.trust.peers import Peer

    made: list[str] = []
    loaded, node = _configure(path, made, name=name, site=site, site_key="", broker=broker, servo=servo)
    if loaded.config.coordinator is None:
        return _joined(path, loaded, node, made)
    site_identity = _key(loaded.keys_dir / "site.key", "the site's key", made)
    key_file = operator_key or operator_key_path()
    operator = _key(key_file, "your key as an operator", made)
    operator_name = _person(loaded, operator)
    wanted = [Peer(key=encode_key(operator.public), name=operator_name, role="operator")]
    if node is not None:
        wanted.append(Peer(key=encode_key(node.public), name=node_name(loaded, node), role="node"))
    _let_in(loaded, site_identity, wanted, made)
    return Made(
        config=str(path),
        site=loaded.config.site.name,
        site_key=encode_key(site_identity.public),
        node=node_name(loaded, node) if node is not None else "",
        node_key=encode_key(node.public) if node is not None else "",
        operator=operator_name,
        operator_key_file=str(key_file),
        embedded_broker=loaded.config.broker.embedded,
        made=made,
        next=[f"edgepanda up{_option(path)}"],
    )


def join_site(path: Path, *, name: str, site: str, site_key: str, broker: str, servo: str = "") -> Made:
    """A node of a site that runs elsewhere: configuration and its key. Keeps what exists. Raises `EdgePandaError`."""
    from edgepanda.trust.identity import decode_key

    decode_key(site_key)
    made: list[str] = []
    loaded, node = _configure(path, made, name=name, site=site, site_key=site_key, broker=broker, servo=servo)
    return _joined(path, loaded, node, made)


def _joined(path: Path, loaded: Loaded, node: Identity | None, made: list[str]) -> Made:
    from edgepanda.client import site_key
    from edgepanda.model.config import ConfigError
    from edgepanda.node.daemon import node_name
    from edgepanda.trust.identity import encode_key

    if node is None:
        raise ConfigError(
            "this configuration has neither coordinator nor node",
            where=str(path),
            cure="add a table [coordinator] or [node]",
        )
    site = encode_key(site_key(loaded))
    name, key = node_name(loaded, node), encode_key(node.public)
    return Made(
        config=str(path),
        site=loaded.config.site.name,
        site_key=site,
        node=name,
        node_key=key,
        made=made,
        next=[f"edgepanda nodes add {name} {key}", f"edgepanda up{_option(path)}"],
    )


def _option(path: Path) -> str:
    return "" if str(path) == "edgepanda.toml" else f" --config {path}"


def _configure(
    path: Path, made: list[str], *, name: str, site: str, site_key: str, broker: str, servo: str
) -> tuple[Loaded, Identity | None]:
    """The configuration, written if there is none, and the node's identity, unless the machine has no node."""
    from edgepanda.model.config import load_config

    if not path.exists():
        node = _write_new(path, made, name=name, site=site, site_key=site_key, broker=broker, servo=servo)
        return load_config(path), node
    loaded = load_config(path)
    if loaded.config.node is None:
        return loaded, None
    return loaded, _key(loaded.keys_dir / "node.key", "the node's key", made)


def _write_new(
    path: Path, made: list[str], *, name: str, site: str, site_key: str, broker: str, servo: str
) -> Identity:
    """The file, and the node's key before it: a name may be made from it."""
    from edgepanda.cli.init_file import render
    from edgepanda.model.broker import parse_broker
    from edgepanda.model.ids import check_name

    check_name(site, "--site")
    if name:
        check_name(name, "--name")
    if broker:
        parse_broker(broker, where="--broker")
    node = _key(_keys_dir(path) / "node.key", "the node's key", made)
    node_name = name or _default_name(path, node)
    _write(path, render(site=site, site_key=site_key, broker=broker, node=node_name, servo=servo))
    made.insert(0, f"{path}: the configuration")
    return node


def _default_name(path: Path, node: Identity) -> str:
    from edgepanda.model.config import Config, Loaded, Node
    from edgepanda.node.daemon import node_name

    return node_name(Loaded(Config(node=Node()), path, path.parent), node)


def _keys_dir(path: Path) -> Path:
    """Where the keys of a new configuration at this path will be; as `Loaded` says once it exists."""
    from edgepanda.model.config import SYSTEM_FILE, SYSTEM_STATE

    state = SYSTEM_STATE if path.absolute() == SYSTEM_FILE else path.parent / ".edgepanda"
    return state.absolute() / "keys"


def _write(path: Path, text: str) -> None:
    """With mode 0600: a broker's URL may hold a password."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise EdgePandaError(
            f"cannot write the configuration: {error.strerror}", code="config_unwritable", where=str(path)
        ) from error


def _key(path: Path, what: str, made: list[str]) -> Identity:
    from edgepanda.storage import make_folder
    from edgepanda.trust.identity import Identity

    if not path.exists():
        make_folder(path.parent)
        made.append(f"{path}: {what}")
    return Identity.load_or_create(path)


def _person(loaded: Loaded, operator: Identity) -> str:
    """The name under which this person is listed, or a new one: user name and four characters of the key."""
    known = {peer.kid: peer.name for peer in _peers(loaded)}
    if operator.kid in known:
        return known[operator.kid]
    user = "".join(c if c.isalnum() and c.isascii() else "-" for c in getpass.getuser().lower())[:27]
    return f"{user}-{operator.kid[:4]}"


def _peers(loaded: Loaded) -> list[Peer]:
    """Who is let in, as the file says; the coordinator may have it open."""
    from edgepanda.documents import Documents
    from edgepanda.trust.peers import Peer

    path = loaded.state_dir / "peers.json"
    if not path.exists():
        return []
    with Documents(path) as documents:
        stored = documents.single("peers") or {}
    listed = msgspec.convert(stored.get("peers", []), list[Peer])
    return [peer for peer in listed if not peer.revoked]


def _let_in(loaded: Loaded, site: Identity, wanted: list[Peer], made: list[str]) -> None:
    from edgepanda.coordinator.peers import PeersFile

    known = {(peer.key, peer.name, peer.role) for peer in _peers(loaded)}
    missing = [peer for peer in wanted if (peer.key, peer.name, peer.role) not in known]
    if not missing:
        return
    peers = PeersFile(loaded.state_dir / "peers.json", loaded.config.site.name, site)
    try:
        for peer in missing:
            peers.add(peer)
            made.append(f"{loaded.state_dir / 'peers.json'}: lets in the {peer.role} {peer.name}")
    finally:
        peers.close()


def _show(made: Made) -> None:
    for line in lines(made):
        say(line)


def lines(made: Made) -> list[str]:
    """What was made, who is who, and the next command, for a person."""
    told = [f"made  {line}" for line in made.made] or ["everything was there already"]
    rows = [("site", f"{made.site}   {made.site_key}".strip()), ("node", f"{made.node}   {made.node_key}".strip())]
    if made.operator:
        rows.append(("operator", f"{made.operator}   {made.operator_key_file}"))
    told += ["", *aligned_fields(rows), ""]
    if not made.operator:
        return [*told, "Next, at the site, as an operator:", f"    {made.next[0]}", f"then here: {made.next[1]}"]
    told.append(f"Next: {made.next[0]}")
    if made.embedded_broker:
        return [*told, "A second machine joins with what this prints: edgepanda broker invite NAME"]
    told += [
        "A second machine joins with: edgepanda init --node-only --name NAME \\",
        f"    --site {made.site} --site-key {made.site_key} --broker URL",
    ]
    return told
