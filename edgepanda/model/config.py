"""The configuration: one TOML file for all processes of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.broker import BrokerAddress, parse_broker, parse_listen, reached_at
from edgepanda.model.broker_secret import OWN_USER, own_password
from edgepanda.model.config_check import Problem, check_text, what_is_right
from edgepanda.model.config_types import Broker, Config, Coordinator, Node, Site

__all__ = [
    "Broker",
    "Config",
    "ConfigError",
    "Coordinator",
    "Loaded",
    "Node",
    "Site",
    "find_config",
    "load_config",
    "load_what_is_right",
]

FILE_NAME = "edgepanda.toml"
SYSTEM_FILE = Path("/etc/edgepanda") / FILE_NAME
SYSTEM_STATE = Path("/var/lib/edgepanda")


class ConfigError(EdgePandaError):
    """A configuration that cannot be used: `config_missing`, `config_unreadable`, `config_invalid`."""

    code = "config_invalid"

    @classmethod
    def of(cls, problems: list[Problem]) -> ConfigError:
        """The error that tells the first of these and has all of them in `details`."""
        first, more = problems[0], len(problems) - 1
        return cls(
            first.message,
            where=first.where,
            cure=first.cure + (f" (and {more} more: `edgepanda config check` shows all)" if more else ""),
            details={"problems": [msgspec.to_builtins(problem) for problem in problems]},
        )

    def lines(self) -> list[str]:
        """One line for each problem."""
        problems = [msgspec.convert(each, Problem) for each in self.details.get("problems", [])]
        return [str(problem) for problem in problems] or super().lines()


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

    @property
    def broker_secret(self) -> Path:
        """The password with which this machine's processes log in to its embedded broker, if that wants one."""
        return self.keys_dir / "broker.secret"

    def beside(self, name: str) -> Path | None:
        """The path that a key names, relative to the file; None for an empty one."""
        return self.path.parent / name if name else None

    def broker_address(self) -> BrokerAddress:
        """Where the broker is, with its secrets read. Raises `EdgePandaError` (`invalid_broker`, `config_invalid`,
        `broker_secret`).
        """
        broker = self.config.broker
        address = self._embedded_address() if broker.embedded else parse_broker(broker.url, where=self._key("url"))
        if address.username == OWN_USER:
            return address
        return msgspec.structs.replace(
            address,
            username=broker.user or address.username,
            password=_secret(broker, self.path) or address.password,
            ca_file=str(self.beside(broker.ca_file) or ""),
            server_name=broker.server_name,
        )

    def _embedded_address(self) -> BrokerAddress:
        broker = self.config.broker
        host, port = self.listen_address()
        address = BrokerAddress(host=reached_at(host), port=port, tls=bool(broker.cert_file))
        if broker.cert_file:
            address = msgspec.structs.replace(address, pinned_file=str(self.beside(broker.cert_file)))
        if broker.users_file and not broker.user:
            password = own_password(self.broker_secret)
            address = msgspec.structs.replace(address, username=OWN_USER, password=password)
        return address

    def listen_address(self) -> tuple[str, int]:
        """Host and port of `broker.listen`; port 0 lets the system choose."""
        address = parse_listen(self.config.broker.listen)
        assert address is not None  # noqa: S101 the configuration has been checked
        return address

    def _key(self, name: str) -> str:
        return f"{self.path}: broker.{name}"


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
    """Read and check the file. Raises `ConfigError` that names file, line and key."""
    return load_text(read_text(path), path)


def load_what_is_right(path: Path) -> tuple[Loaded | None, list[Problem]]:
    """All that is wrong in the file, and what is left without that, to be looked at and not to be run: None if too
    little is. Raises `ConfigError` where the file cannot be read.
    """
    config, problems = what_is_right(read_text(path), path)
    return (None if config is None else Loaded(config, path, _state_dir(config, path))), problems


def read_text(path: Path) -> str:
    """The file as it stands, with its line ends. Raises `ConfigError` (`config_missing`, `config_unreadable`)."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise ConfigError(
            "there is no such file", code="config_missing", where=str(path), cure="`edgepanda init` makes one"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"cannot read it: {reason}",
            code="config_unreadable",
            where=str(path),
            cure="it must be a text file in UTF-8 that this account may read",
        ) from error


def load_text(text: str, path: Path) -> Loaded:
    """Check a text as if it stood in this file. Raises `ConfigError` that tells all that is wrong."""
    config, problems = check_text(text, path)
    if config is None:
        raise ConfigError.of(problems)
    return Loaded(config, path, _state_dir(config, path))


def _state_dir(config: Config, path: Path) -> Path:
    if config.state_dir:
        return (path.parent / config.state_dir).absolute()
    if path.absolute() == SYSTEM_FILE:
        return SYSTEM_STATE
    return (path.parent / ".edgepanda").absolute()


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
