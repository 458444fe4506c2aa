"""What a capability of the user's own is made of: an argument list with placeholders, typed arguments. No I/O."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from edgepanda.drivers.contract import ActionSpec, DriverError, JsonSchema, OnBusy, Replay, Tier, about

PATH = "/usr/local/bin:/usr/bin:/bin"
"""The search path of commands and the one that they see."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=604800, extra_json_schema={"unit": "s"})]
Name = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z_][a-zA-Z0-9_]{0,63}$")]


class Argument(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One typed argument. A string may not begin with `-` unless `allow_dash`, so that no value becomes an option."""

    type: Literal["string", "integer", "number", "boolean"]
    description: str = ""
    enum: list[str | int | float] | None = None
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None
    max_length: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 4096
    default: str | int | float | bool | None = None
    allow_dash: bool = False

    def __post_init__(self) -> None:
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern: {error}") from error
        if self.default is not None:
            self.check("default", self.default)

    def check(self, name: str, value: Any) -> Any:
        """The value if it is allowed.

        Raises:
            ValueError: says what is allowed.
        """
        if not self._has_type(value):
            raise ValueError(f"{name} must be of type {self.type}")
        if self.enum is not None and value not in self.enum:
            raise ValueError(f"{name} must be one of {', '.join(map(str, self.enum))}")
        if isinstance(value, str):
            return self._check_text(name, value)
        if self.minimum is not None and value < self.minimum:
            raise ValueError(f"{name} {value:g} is below {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise ValueError(f"{name} {value:g} is above {self.maximum:g}")
        return value

    def _has_type(self, value: Any) -> bool:
        if isinstance(value, bool):
            return self.type == "boolean"
        kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
        return isinstance(value, kinds[self.type])  # type: ignore[arg-type]

    def _check_text(self, name: str, value: str) -> str:
        if len(value) > self.max_length:
            raise ValueError(f"{name} is longer than {self.max_length} characters")
        if "\0" in value:
            raise ValueError(f"{name} holds a NUL character")
        if value.startswith("-") and not self.allow_dash:
            raise ValueError(f"{name} begins with '-'; allow_dash = true would let it")
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            raise ValueError(f"{name} does not match {self.pattern}")
        return value

    def schema(self) -> JsonSchema:
        """The argument as JSON Schema."""
        schema: JsonSchema = {"type": self.type}
        optional = {
            "description": self.description or None,
            "enum": self.enum,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "pattern": f"^(?:{self.pattern})$" if self.pattern else None,
            "maxLength": self.max_length if self.type == "string" else None,
            "default": self.default,
        }
        return schema | {key: value for key, value in optional.items() if value is not None}


class CommandConfig(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One capability: a program and its arguments, never a line for a shell.

    `{name}` in an element of `argv` stands for an argument; `{{name}}` is the text
    `{name}`, and braces around anything else are themselves. `tier` and `replay` have no default on
    purpose.
    """

    argv: Annotated[
        list[str], msgspec.Meta(min_length=1, max_length=1024, description="The program and its arguments.")
    ]
    tier: Annotated[Tier, about("0 observes, 1 acts and can be undone, 2 cannot be undone.")]
    replay: Annotated[Replay, about("safe: doing it again changes nothing; unsafe: anything else.")]
    description: Annotated[str, about("What it does, for people.")] = ""
    args: Annotated[dict[Name, Argument], about("Typed arguments, named in argv as {name}.")] = {}
    env: Annotated[list[Name], about("Variables of the node that the program may see.")] = []
    required_outputs: Annotated[list[str], about("Patterns of files below outputs/ without which it has failed.")] = []
    output_limit: Annotated[
        Annotated[int, msgspec.Meta(ge=1024, le=16 << 20, extra_json_schema={"unit": "byte"})],
        about("What is kept of each stream's head, and again of its tail."),
    ] = 65536
    timeout: Annotated[Seconds, about("After this time it is ended.")] = 600.0
    grace: Annotated[Seconds, about("Time between INT, TERM and KILL.")] = 5.0
    on_busy: Annotated[OnBusy, about("What a second call does.")] = "queue"
    max_attempts: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=100)],
        about("How often a safe one is tried that cannot be started for now."),
    ] = 3
    retry_backoff: Annotated[
        Annotated[float, msgspec.Meta(ge=0.1, le=300, extra_json_schema={"unit": "s"})],
        about("Time before it is tried again, doubled each time."),
    ] = 1.0

    def __post_init__(self) -> None:
        used = [name for element in self.argv for _, name in split(element) if name is not None]
        for name in used:
            if name not in self.args:
                raise ValueError(
                    f"argv: the placeholder {{{name}}} has no entry in args; {{{{{name}}}}} means the text"
                )
        if not self.argv[0] or any(name is not None for _, name in split(self.argv[0])):
            raise ValueError("argv: the first element is the program, and no argument may choose it")
        if taken := [name for name in self.env if name.startswith("EDGEPANDA_") or name in ("PATH", "HOME", "LANG")]:
            raise ValueError(f"env: {taken[0]} is set by the driver")
        if outside := [p for p in self.required_outputs if p.startswith("/") or ".." in p.split("/")]:
            raise ValueError(f"required_outputs: {outside[0]} is not below outputs/")


_PLACEHOLDER = re.compile(r"\{\{([a-zA-Z_]\w*)\}\}|\{([a-zA-Z_]\w*)\}", re.ASCII)


def split(element: str) -> list[tuple[str, str | None]]:
    """An element of `argv` as pairs of text and the placeholder after it (None: no more). Other braces are text."""
    parts: list[tuple[str, str | None]] = []
    text, end = "", 0
    for found in _PLACEHOLDER.finditer(element):
        text += element[end : found.start()]
        end = found.end()
        if found[1]:
            text += f"{{{found[1]}}}"
        else:
            parts.append((text, found[2]))
            text = ""
    return [*parts, (text + element[end:], None)]


def check_args(config: CommandConfig, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, with defaults.

    Raises:
        DriverError: `invalid_args`, naming the argument and what is allowed.
    """
    unknown = sorted(set(given) - set(config.args))
    if unknown:
        known = ", ".join(sorted(config.args)) or "none"
        raise DriverError(f"unknown argument {unknown[0]}; there are: {known}", code="invalid_args", where=unknown[0])
    values = {}
    for name, argument in config.args.items():
        value = given.get(name, argument.default)
        if value is None:
            raise DriverError(f"the argument {name} is missing", code="invalid_args", where=name)
        try:
            values[name] = argument.check(name, value)
        except ValueError as error:
            raise DriverError(str(error), code="invalid_args", where=name) from error
    return values


def fill(config: CommandConfig, values: dict[str, Any]) -> list[str]:
    """The argument list with its placeholders filled; each element stays one element whatever a value holds."""
    return ["".join(text + _text(values, name) for text, name in split(element)) for element in config.argv]


def _text(values: dict[str, Any], name: str | None) -> str:
    if name is None:
        return ""
    value = values[name]
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def action_spec(config: CommandConfig) -> ActionSpec:
    """The action `run` of a capability, for the node's card."""
    args: JsonSchema = {
        "type": "object",
        "properties": {name: argument.schema() for name, argument in config.args.items()},
        "required": [name for name, argument in config.args.items() if argument.default is None],
        "additionalProperties": False,
    }
    return ActionSpec(
        description=config.description or f"Runs {config.argv[0]}",
        tier=config.tier,
        replay=config.replay,
        args=args,
        on_busy=config.on_busy,
        timeout=config.timeout,
        max_attempts=config.max_attempts,
        retry_backoff=config.retry_backoff,
    )
