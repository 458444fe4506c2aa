"""What the node and a driver host say to each other: the values of driver contract version 1.

JSON-RPC 2.0, one object a line, on the host's standard input and output. Members that a reader does not know are
ignored, so that a newer driver works with an older node. Nothing in here does I/O.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast, get_args

import msgspec

from edgepanda.errors import EdgePandaError

VERSION = 1
MAX_LINE = 1 << 20
"""Longest line in bytes, the newline included."""

CANCEL_WITHIN = 0.2
"""Seconds in which `cancel` and `safe` are answered; a host that does not is killed."""

EXIT_WITHIN = 5.0
"""Seconds in which a host goes to its safe state and exits after end of input or SIGTERM."""

Tier = Literal[0, 1, 2]
Replay = Literal["safe", "unsafe"]
OnBusy = Literal["preempt", "queue", "refuse"]
Outcome = Literal["succeeded", "failed"]
Code = Literal[
    "invalid_args", "limit", "unavailable", "busy", "timeout", "cancelled", "io", "interlock", "superseded"
]  # fmt: skip
Stream = Literal["stdout", "stderr"]
CODES: frozenset[str] = frozenset(get_args(Code))

JsonSchema = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL = -32603
DRIVER_ERROR = -32000
"""JSON-RPC error codes; the last one carries a `DriverError`."""


class DriverError(EdgePandaError):
    """A call, an open or a probe that failed, with one of the fixed codes of the contract (`Code`)."""

    code = "io"

    def __init__(
        self,
        message: str,
        *,
        code: Code | None = None,
        where: str = "",
        cure: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=code, where=where, cure=cure, details=details)


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every value of the contract: immutable, defaults stay off the wire."""


def about(text: str, **extra: bool) -> msgspec.Meta:
    """What a key of a device's configuration is for: `edgepanda device add DRIVER --help` shows it.

    `gpio=True` marks a key whose value names a GPIO line (see `edgepanda.drivers.gpio`), `advised=True` one without
    which something is refused later.
    """
    return msgspec.Meta(description=text, extra_json_schema=extra or None)


def no_args() -> JsonSchema:
    """The argument schema of an action that takes none."""
    return {"type": "object", "properties": {}, "additionalProperties": False}


class ActionSpec(Value, frozen=True):
    """What one action takes, gives and may do; from `describe`, and part of the node's card.

    `args` is a JSON Schema object with `additionalProperties: false`; physical properties name their `unit`.
    `timeout` is in seconds, for calls that name none. A `safe` action that fails with `io`, `unavailable` or `busy` is
    begun at most `max_attempts` times, with a pause of `retry_backoff` seconds that doubles. `spoken` holds sentence
    templates, `home` hints for home automation.
    """

    description: str
    tier: Tier
    replay: Replay
    args: JsonSchema = msgspec.field(default_factory=no_args)
    on_busy: OnBusy = "refuse"
    timeout: float = 30.0
    max_attempts: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3
    retry_backoff: Annotated[float, msgspec.Meta(ge=0.1, le=300)] = 1.0
    returns: JsonSchema | None = None
    spoken: tuple[str, ...] = ()
    home: dict[str, Any] = {}


class Description(Value, frozen=True):
    """The answer to `describe`.

    `device` is the JSON Schema of a device's configuration. With `remembers` the node keeps the last `state` values
    of each device durably and hands them back at `open` as `known`. With `attaches` a call of the same task, attempt
    and work directory joins what an earlier one began, so the node repeats it after the host's death. With `silence`
    (seconds) the host tells something at least that often while a call runs; if it does not, it is killed.
    """

    contract: int
    driver: str
    version: str
    actions: dict[str, ActionSpec]
    device: JsonSchema
    remembers: bool = False
    attaches: bool = False
    silence: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Probe(Value, frozen=True):
    """Whether a device of this configuration can be used here; if not, why, and what to do about it.

    `limits` narrows schemas of arguments: action, argument, members such as `minimum`. `facts` tells what is in use
    (backend, chip). `actions`, if given, replaces the driver's actions for this device.
    """

    usable: bool
    reason: str = ""
    cure: str = ""
    simulated: bool = False
    limits: dict[str, dict[str, JsonSchema]] = {}
    facts: dict[str, Any] = {}
    actions: dict[str, ActionSpec] | None = None


class ProbeParams(Value, frozen=True):
    """`probe`: one device's configuration."""

    config: dict[str, Any]


class OpenParams(Value, frozen=True):
    """`open`: the device, its configuration, and its last known state values (None: unknown)."""

    device: str
    config: dict[str, Any]
    known: dict[str, Any] | None = None


class CloseParams(Value, frozen=True):
    """`close`: the device."""

    device: str


class SafeParams(Value, frozen=True):
    """`safe`: the device, or None for all."""

    device: str | None = None


class CancelParams(Value, frozen=True):
    """`cancel`: the JSON-RPC id of the call."""

    call: int


class CancelResult(Value, frozen=True):
    """The answer to `cancel`: given when the driver's code has taken notice, or when no such call runs.

    The call itself is answered within `within_ms` from then on; a host that takes longer is killed.
    """

    known: bool
    within_ms: int = 2000


class CallParams(Value, frozen=True):
    """`call`: one attempt of one action. `deadline_ms` is what remains, counted from the reading of the line."""

    device: str
    action: str
    deadline_ms: Annotated[int, msgspec.Meta(ge=0, le=10**11, extra_json_schema={"unit": "ms"})]
    args: dict[str, Any] = {}
    task: str = ""
    attempt: int = 0
    work: str = ""
    goal: str = ""
    constraints: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()


class Answer(Value, frozen=True):
    """A driver's answer to one criterion (its exact text), with what shows it. Never given on a guess."""

    criterion: str
    met: bool
    evidence: Any = None


class CallResult(Value, frozen=True):
    """How a call ended, with what shows it; `artifacts` are files by `path` relative to the work directory.

    `reason` is a stable word for why it failed, where the driver has one.
    """

    outcome: Outcome
    value: Any = None
    evidence: tuple[dict[str, Any], ...] = ()
    answers: tuple[Answer, ...] = ()
    artifacts: tuple[dict[str, Any], ...] = ()
    narrative: str = ""
    reason: str = ""


class Progress(Value, frozen=True):
    """`progress` of a call: a fraction of 0 to 1 (None: not known) and a line for people."""

    call: int
    fraction: float | None = None
    text: str = ""


class State(Value, frozen=True):
    """`state`: a device's present values."""

    device: str
    values: dict[str, Any]


class Event(Value, frozen=True):
    """`event`: something happened at a device (an edge, a line)."""

    device: str
    name: str
    data: Any = None


class Output(Value, frozen=True):
    """`output`: text that a running call's program wrote."""

    call: int
    text: str
    stream: Stream = "stdout"


def error_from_data(message: str, data: object) -> DriverError:
    """The error that a host's JSON-RPC error describes; anything malformed in it is taken as `io`."""
    fields = data if isinstance(data, dict) else {}
    code = fields.get("code")
    details = fields.get("details")
    return DriverError(
        str(fields.get("message") or message),
        code=cast(Code, code) if code in CODES else "io",
        where=str(fields.get("where", "")),
        cure=str(fields.get("cure", "")),
        details=details if isinstance(details, dict) else None,
    )
