"""The keys of the configuration, with all that is known of each: type, default, limits, unit, what it is for, and
whether a change needs a restart. The commented file, the checks, `config show` and `config schema` come from here.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec

_A_NAME = "1 to 32 of a-z, 0-9 and '-'"


def key(
    description: str,
    *,
    unit: str = "",
    allowed: str = "",
    example: Any = None,
    restart: bool = True,
    **limits: Any,
) -> msgspec.Meta:
    """What is known of a key. `allowed`: in words, where the limits alone would not say it to a person."""
    extra = {"unit": unit, "allowed": allowed, "examples": [] if example is None else [example]}
    known = {name: value for name, value in extra.items() if value}
    return msgspec.Meta(description=description, extra_json_schema={**known, "restart": restart}, **limits)


live = partial(key, restart=False)
"""A key whose change a running process takes up when it reloads its configuration."""


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The site that this machine belongs to."""

    name: Annotated[
        str, key("The site's name.", allowed=_A_NAME, example="home", pattern="^[a-z0-9-]{1,32}$(?!\\n)")
    ] = "home"
    key: Annotated[
        str,
        key(
            "The site's public key. Empty on the machine that has the private one (its coordinator's).",
            allowed="ed25519: and 43 characters, as `edgepanda init` prints it, or nothing",
            example=f"ed25519:{'A' * 43}",
            pattern="^(ed25519:[A-Za-z0-9_-]{43})?$",
        ),
    ] = ""
    base: Annotated[
        str,
        key(
            "First level of all MQTT topics.", allowed=_A_NAME, example="edgepanda", pattern="^[a-z0-9-]{1,32}$(?!\\n)"
        ),
    ] = "edgepanda"


class Broker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The broker: the site's own at `url`, or without that the embedded one at `listen`, which `edgepanda up` starts.
    Beyond this machine the embedded one listens only with `users_file`, and with a certificate or `allow_plaintext`.
    """

    url: Annotated[
        str,
        key(
            "The site's broker: mqtt://user@host:1883, or mqtts:// with TLS; IPv6 in brackets.",
            allowed="an address like mqtt://user@host:1883 or mqtts://[fd00::1]:8883, or nothing",
            example="mqtt://broker.lan:1883",
        ),
    ] = ""
    user: Annotated[str, key("The name to log in with, instead of one in the URL.", example="shed")] = ""
    password_file: Annotated[
        str,
        key(
            "The file that holds the password, instead of a password in the URL.",
            allowed="the path of a file",
            example="broker.password",
        ),
    ] = ""
    password_env: Annotated[
        str,
        key(
            "Or the environment variable that holds it.",
            allowed="the name of an environment variable",
            example="EDGEPANDA_BROKER_PASSWORD",
            pattern="^([A-Za-z_][A-Za-z0-9_]*)?$",
        ),
    ] = ""
    ca_file: Annotated[
        str,
        key(
            "For mqtts: the PEM file of the authority that signed the broker's certificate, or a certificate that "
            "signed itself; empty: the system's authorities.",
            allowed="the path of a file",
            example="ca.pem",
        ),
    ] = ""
    server_name: Annotated[
        str, key("For mqtts: the name in the certificate where it is not the host's.", example="broker.lan")
    ] = ""
    listen: Annotated[
        str,
        key(
            "Where the embedded one listens. Port 0 lets the system choose, for `edgepanda broker run` alone.",
            allowed="HOST:PORT",
            example="127.0.0.1:1883",
        ),
    ] = "127.0.0.1:1883"
    users_file: Annotated[
        str,
        key(
            "The embedded one's users: `edgepanda broker user add NAME` makes it. With it nobody comes in without a "
            "password; the processes of this machine have one of their own.",
            allowed="the path of a file",
            example="broker-users.toml",
        ),
    ] = ""
    cert_file: Annotated[
        str,
        key(
            "The embedded one's certificate, in PEM, those between it and the authority behind it: with it the broker "
            "speaks TLS alone. A new one is taken up without a restart.",
            allowed="the path of a file",
            example="broker.crt",
        ),
    ] = ""
    key_file: Annotated[
        str, key("The certificate's private key, in PEM.", allowed="the path of a file", example="broker.key")
    ] = ""
    allow_plaintext: Annotated[
        bool, key("Listen beyond this machine without TLS: who is on the network reads all, the passwords too.")
    ] = False
    largest_message: Annotated[
        int,
        key(
            "The largest packet that the embedded one takes; its sender is cut off.", unit="byte", ge=131072, le=1 << 28
        ),
    ] = 1 << 20

    @property
    def embedded(self) -> bool:
        """True if `edgepanda up` starts the broker."""
        return not self.url


class Coordinator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The coordinator's settings. Without this table this machine runs no coordinator; a site has one."""

    lease_ttl: Annotated[
        float, live("After this time a silent node loses its work; beats renew a lease.", unit="s", ge=1, le=3600)
    ] = 30.0


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node's settings. Without this table this machine runs no node."""

    name: Annotated[
        str,
        key(
            "The node's name, unique at the site; empty: the host's name and four characters of its key. Once it is "
            "let in, the site's word counts: `edgepanda rename` changes both.",
            allowed=_A_NAME,
            example="desk",
            pattern="^[a-z0-9-]{0,32}$(?!\\n)",
        ),
    ] = ""
    slots: Annotated[int, live("How many attempts it holds at most at one time.", unit="attempts", ge=1, le=1000)] = 16
    beat: Annotated[float, live("Time between two signs of life.", unit="s", ge=0.1, le=60)] = 10.0
    drain: Annotated[
        float, live("Time that running work gets when the node is asked to end.", unit="s", ge=0, le=3600)
    ] = 10.0
    description: Annotated[
        str, live("What this node is, for people: it is shown on its card.", example="above the bench", max_length=500)
    ] = ""
    labels: Annotated[
        dict[str, str],
        live(
            "Labels that a task may ask for: `edgepanda submit ... --label room=attic`.",
            example={"room": "attic"},
        ),
    ] = {}


class Device(msgspec.Struct, frozen=True):
    """What the node reads of a device. All other keys are its driver's, and the driver checks them."""

    driver: Annotated[
        str,
        live(
            "A built-in driver, the path of a .py file, or, with `command`, any name.",
            example="servo",
            min_length=1,
        ),
    ]
    command: Annotated[
        list[str] | None,
        live(
            "The program of a driver in any language, and its arguments.",
            allowed="a list of words, the program first",
            example=["./dimmer"],
        ),
    ] = None
    link_loss: Annotated[
        float,
        live(
            "After so long without broker or coordinator it goes to its safe state, if a task of the site commanded it "
            "last. 0: never.",
            unit="s",
            example=10.0,
            ge=0,
            le=86400,
        ),
    ] = 0.0
    labels: Annotated[dict[str, str], live("Labels that a task may ask for.", example={"room": "attic"})] = {}


class Capability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A capability of the user's own: the keys that its driver knows (`CommandConfig`, which checks them in full)."""

    argv: Annotated[
        list[str],
        live(
            "The program and its arguments, never a shell line.",
            allowed="a list of words, the program first",
            example=["df", "-h"],
            min_length=1,
        ),
    ]
    tier: Annotated[Literal[0, 1, 2], live("0 observes, 1 can be undone, 2 cannot.", example=0)]
    replay: Annotated[
        Literal["safe", "unsafe"],
        live("safe: doing it again changes nothing; unsafe: anything else.", example="safe"),
    ]
    description: Annotated[str, live("What it does, for people.", example="Shows free space")] = ""
    args: Annotated[dict[str, dict[str, Any]], live("Typed arguments, named in `argv` as {name}.")] = {}
    env: Annotated[list[str], live("Variables of the node that the program may see.", example=["TZ"])] = []
    required_outputs: Annotated[
        list[str], live("Patterns of files below outputs/ without which it has failed.", example=["*.pdf"])
    ] = []
    output_limit: Annotated[
        int, live("What is kept of each stream's head, and again of its tail.", unit="byte", ge=1024, le=16 << 20)
    ] = 65536
    timeout: Annotated[float, live("After this time it is ended.", unit="s", gt=0, le=604800)] = 600.0
    grace: Annotated[float, live("Time between INT, TERM and KILL.", unit="s", gt=0, le=604800)] = 5.0
    on_busy: Annotated[Literal["preempt", "queue", "refuse"], live("What a second call does.", example="queue")] = (
        "queue"
    )
    max_attempts: Annotated[
        int, live("How often a safe one is tried that cannot be started for now.", ge=1, le=100)
    ] = 3
    retry_backoff: Annotated[
        float, live("Time before it is tried again, doubled each time.", unit="s", ge=0.1, le=300)
    ] = 1.0
    labels: Annotated[dict[str, str], live("Labels that a task may ask for.", example={"room": "attic"})] = {}


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it. A table that is absent means: this machine does not run that."""

    site: Site = Site()
    broker: Broker = Broker()
    coordinator: Coordinator | None = None
    node: Node | None = None
    devices: dict[str, dict[str, Any]] = {}  # each is a `Device`
    capabilities: dict[str, dict[str, Any]] = {}  # each is a `Capability`
    state_dir: Annotated[
        str,
        key(
            "Where state is kept: keys, ledger, journal. Empty: .edgepanda beside this file.",
            allowed="the path of a folder",
            example=".edgepanda",
        ),
    ] = ""


TABLES: dict[str, type[msgspec.Struct]] = {"site": Site, "broker": Broker, "coordinator": Coordinator, "node": Node}
"""The tables with a fixed set of keys, in the order of the file."""

ENTRIES: dict[str, type[msgspec.Struct]] = {"devices": Device, "capabilities": Capability}
"""The tables of tables: `[devices.NAME]`."""

DRIVERS = ("command", "servo")
"""The built-in drivers. Only their names: the core imports no driver."""
