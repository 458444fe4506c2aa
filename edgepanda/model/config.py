"""The configuration: one TOML file for all processes of a machine."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress, parse_broker
from edgepanda.model.ids import check_name, is_capability

FILE_NAME = "edgepanda.toml"
SYSTEM_FILE = Path("/etc/edgepanda") / FILE_NAME
SYSTEM_STATE = Path("/var/lib/edgepanda")


class ConfigError(EdgePandaError):
    """A configuration that cannot be used: `config_missing`, `config_unreadable`, `config_invalid`."""

    code = "config_invalid"


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site that this machine belongs to."""

    name: str = "home"
    key: str = ""  # the site's public key; empty on the machine that has the site's private key
    base: str = "edgepanda"  # first level of all topics


class Broker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The broker: the site's own, or the embedded one at `listen`."""

    url: str = ""  # empty: the embedded one
    listen: str = "127.0.0.1:1883"  # where the embedded one listens
    password_file: str = ""  # the password's file, or the variable that holds it, instead of a password in the URL
    password_env: str = ""
    ca_file: str = ""
    server_name: str = ""

    @property
    def embedded(self) -> bool:
        """True if `edgepanda up` starts the broker."""
        return not self.url


class Coordinator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The coordinator's settings. Times in seconds."""

    lease_ttl: float = 30.0


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node's settings. Times in seconds."""

    name: str = ""
    slots: int = 16  # attempts that it holds at most at one time
    beat: float = 10.0
    drain: float = 10.0  # how long SIGTERM waits for running work
    labels: dict[str, str] = {}


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. A table that is absent means: this machine does not run that."""

    site: Site = Site()
    broker: Broker = Broker()
    coordinator: Coordinator | None = None
    node: Node | None = None
    devices: dict[str, dict[str, Any]] = {}
    capabilities: dict[str, dict[str, Any]] = {}
    state_dir: str = ""


class Loaded(msgspec.Struct, frozen=True):
    """A configuration, the file that it came from, and the folder of its state."""

    config: Config
    path: Path
    state_dir: Path

    @property
    def run_dir(self) -> Path:
        """Sockets and locks."""
        return self.state_dir / "run"

    @property
    def keys_dir(self) -> Path:
        """Private keys of this machine's processes."""
        return self.state_dir / "keys"

    def require_node(self) -> Node:
        """The node's settings. Raises `ConfigError` when the file has none."""
        if self.config.node is None:
            raise ConfigError("this configuration has no node", where=str(self.path), cure="add a table [node]")
        return self.config.node

    def broker_address(self) -> BrokerAddress:
        """Where the broker is, with its secrets read. Raises `EdgePandaError` (`invalid_broker`, `config_invalid`)."""
        broker = self.config.broker
        address = parse_broker(broker.url or f"mqtt://{broker.listen}", where=f"{self.path}: broker.url")
        password = _secret(broker, self.path) or address.password
        return msgspec.structs.replace(
            address,
            password=password,
            ca_file=str(self.path.parent / broker.ca_file) if broker.ca_file else "",
            server_name=broker.server_name,
        )


def find_config(given: str | None) -> Path:
    """The file to use: the given one, `$EDGEPANDA_CONFIG`, or the first that exists of `./edgepanda.toml`, the user's
    and the system's. Raises `ConfigError` (`config_missing`).
    """
    named = given or os.environ.get("EDGEPANDA_CONFIG")
    if named:
        return Path(named)
    user = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "edgepanda" / FILE_NAME
    for path in (Path(FILE_NAME), user, SYSTEM_FILE):
        if path.exists():
            return path
    raise ConfigError(
        "there is no configuration",
        code="config_missing",
        where=f"./{FILE_NAME}, {user}, {SYSTEM_FILE}",
        cure="`edgepanda init` makes one, or name one with --config",
    )


def load_config(path: Path) -> Loaded:
    """Read and check the file. Raises `ConfigError` that names file and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(
            "there is no such file", code="config_missing", where=str(path), cure="`edgepanda init` makes one"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read it: {reason}", code="config_unreadable", where=str(path)) from error
    return load_text(text, path)


def load_text(text: str, path: Path) -> Loaded:
    """Check a text as if it stood in this file. Raises `ConfigError` that names file and key."""
    try:
        config = msgspec.convert(tomllib.loads(text), Config)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}", where=str(path)) from error
    except msgspec.ValidationError as error:
        raise _invalid(str(error), path) from error
    _check(config, path)
    return Loaded(config, path, _state_dir(config, path))


_AT = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<key>.*)`)?")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_TABLES: dict[str, type[msgspec.Struct]] = {
    "": Config,
    "site": Site,
    "broker": Broker,
    "coordinator": Coordinator,
    "node": Node,
}


def _invalid(text: str, path: Path) -> ConfigError:
    """msgspec's complaint, with the key where we have it, and for an unknown key the nearest known one."""
    found = _AT.fullmatch(text)
    what, table = (found["what"], found["key"] or "") if found else (text, "")
    unknown = _UNKNOWN.fullmatch(what)
    if unknown is None:
        return ConfigError(what, where=f"{path}: {table}" if table else str(path), cure="correct the value")
    key = unknown[1]
    known = _TABLES[table].__struct_fields__ if table in _TABLES else ()
    near = difflib.get_close_matches(key, known, n=1)
    return ConfigError(
        f"there is no key {key!r}",
        where=f"{path}: {table}.{key}" if table else f"{path}: {key}",
        cure=f"did you mean {near[0]!r}?" if near else f"known here are: {', '.join(known)}",
    )


def _state_dir(config: Config, path: Path) -> Path:
    if config.state_dir:
        return (path.parent / config.state_dir).absolute()
    if path.absolute() == SYSTEM_FILE:
        return SYSTEM_STATE
    return (path.parent / ".edgepanda").absolute()


def _check(config: Config, path: Path) -> None:
    check_name(config.site.name, f"{path}: site.name")
    check_name(config.site.base, f"{path}: site.base")
    if config.node is not None:
        if config.node.name:
            check_name(config.node.name, f"{path}: node.name")
        if not 1 <= config.node.slots <= 1000:
            raise ConfigError(f"{config.node.slots}; 1 to 1000 is allowed", where=f"{path}: node.slots")
        if not 0.1 <= config.node.beat <= 60:
            raise ConfigError(f"{config.node.beat}; 0.1 to 60 s is allowed", where=f"{path}: node.beat")
    if config.coordinator is not None and not 1 <= config.coordinator.lease_ttl <= 3600:
        raise ConfigError(
            f"{config.coordinator.lease_ttl}; 1 to 3600 s is allowed", where=f"{path}: coordinator.lease_ttl"
        )
    for name, device in config.devices.items():
        check_name(name, f"{path}: devices.{name}")
        if not isinstance(device.get("driver"), str | list):
            raise ConfigError(
                "a device needs a driver", where=f"{path}: devices.{name}.driver", cure='for example driver = "servo"'
            )
    for name in config.capabilities:
        if not is_capability(name):
            raise ConfigError(
                f"{name!r} is no name of a capability",
                where=f"{path}: capabilities",
                cure='use dotted words of a-z, 0-9, "_" and "-", such as "build.heavy"',
            )


def _secret(broker: Broker, path: Path) -> str:
    if broker.password_env:
        value = os.environ.get(broker.password_env)
        if value is None:
            raise ConfigError(f"the variable {broker.password_env} is not set", where=f"{path}: broker.password_env")
        return value
    if broker.password_file:
        try:
            return (path.parent / broker.password_file).read_text().strip()
        except OSError as error:
            raise ConfigError(f"cannot read it: {error.strerror}", where=f"{path}: broker.password_file") from error
    return ""
