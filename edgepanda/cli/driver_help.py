"""What a driver says of itself, for a person: its options, and a command that is worth trying. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from edgepanda.cli.driver_options import options_of

if TYPE_CHECKING:
    from edgepanda.drivers.contract import ActionSpec, Description, JsonSchema

TAKEN = frozenset({"config", "json", "verbose", "command", "label", "anyway", "unset", "help", "arg"})
"""Options of the commands themselves: a key of that name is written KEY=VALUE."""

_ANGLE = 30.0  # what is tried where it is allowed


def help_text(driver: str, description: Description, command: str) -> str:
    """The options of a driver with text, what is allowed, unit and default; its actions."""
    out = click.HelpFormatter(width=100)
    needed = [f"{each.flag} ..." for each in options_of(description.device) if each.required]
    out.write_usage(command, " ".join([driver, "NAME", *needed, "[--KEY VALUE]..."]))
    about = str(description.device.get("description", "")).split("\n")[0]
    out.write_paragraph()
    out.write_text(f"{description.driver}, version {description.version}. {about}".strip())
    with out.section("Options of this driver"):
        out.write_dl([row for _, row in option_rows(description.device)] or [("none", "")])
    with out.section("Then it can"):
        out.write_dl([(f"NAME.{name}", spec.description) for name, spec in description.actions.items()])
    out.write_paragraph()
    out.write_text(
        "A number may carry its unit. KEY=VALUE is the same as --KEY VALUE. `edgepanda device add --help` has the rest."
    )
    return out.getvalue().rstrip()


def option_rows(schema: JsonSchema) -> list[tuple[str, tuple[str, str]]]:
    """Each key with its line of a help."""
    return [
        (each.name, (f"{each.name}=..." if each.name in TAKEN else each.flag, _option(each)))
        for each in options_of(schema)
    ]


def _option(option: Any) -> str:
    facts = [f"{option.allowed}{f' ({option.unit})' if option.unit else ''}"]
    if option.required:
        facts.append("needed")
    elif option.default is not None and option.default not in ("", [], {}):
        default = str(option.default).lower() if isinstance(option.default, bool) else option.default
        facts.append(f"default {default:g}" if isinstance(default, float) else f"default {default}")
    return f"{option.text} [{'; '.join(facts)}]".strip()


def worth_trying(name: str, description: Description, limits: dict[str, Any], option: str) -> list[str]:
    """The command to try first: an action that can be undone, with arguments within its limits."""
    for wanted in ((1, True), (0, True), (0, False), (1, False)):
        for action, spec in description.actions.items():
            if (spec.tier, bool(spec.args.get("required"))) == wanted:
                words = _example(spec, limits.get(action, {}))
                if words is not None:
                    return [shlex.join(["edgepanda", "do", f"{name}.{action}", *words]) + option]
    return []


def _example(spec: ActionSpec, limits: dict[str, Any]) -> list[str] | None:
    """Values for the arguments that are needed; None where one cannot be guessed."""
    words = []
    required = spec.args.get("required", [])
    for argument in required:
        about = {**spec.args.get("properties", {}).get(argument, {}), **limits.get(argument, {})}
        value = _value(about)
        if value is None:
            return None
        words.append(value if len(required) == 1 and not value.startswith("-") else f"{argument}={value}")
    return words


def _value(about: dict[str, Any]) -> str | None:
    if about.get("enum"):
        return str(about["enum"][0])
    if about.get("type") == "boolean":
        return "true"
    if about.get("type") in ("number", "integer"):
        low, high = about.get("minimum", 0), about.get("maximum", 100)
        value = min(max(_ANGLE, low), high)
        return f"{value:g}"
    return None


def advice(name: str, schema: JsonSchema, values: dict[str, Any], option: str) -> list[str]:
    """Keys that the driver advises to set, and that are not: the command, and why."""
    return [
        f"edgepanda device set {name} {key}=...{option}   ({about.get('description', key)})"
        for key, about in schema.get("properties", {}).items()
        if about.get("advised") is True and values.get(key) is None
    ]
