"""What people type, as values: `30`, `angle=30`, `desk/pan.move`, by the schema of the action. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from edgepanda.errors import EdgePandaError
from edgepanda.model import matching
from edgepanda.model.card import Action, Offer

_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class ArgumentError(EdgePandaError):
    """What was typed does not suit the action."""

    code = "invalid_args"


def find_offer(offers: Sequence[Offer], target: str) -> Offer:
    """The one that `[NODE/]DEVICE.ACTION` or `[NODE/]CAPABILITY` names. A device's own name goes before a capability.

    Raises `RoutingError`: `unknown_capability`, `unknown_device`, `unknown_node`, or `ambiguous` with the candidates.
    """
    before, _, name = target.rpartition("/")
    node = before or None
    if node is not None and node not in {o.node for o in offers}:
        nodes = ", ".join(sorted({o.node for o in offers})) or "none"
        raise matching.RoutingError(
            f"there is no node {node!r}", code="unknown_node", where="target", cure=f"known are: {nodes}"
        )
    device, _, action = name.partition(".")
    of_device = [o for o in offers if o.device == device and o.action_name == action and node in (None, o.node)]
    own = [o for o in offers if o.device is None and o.capability == name and node in (None, o.node)]
    if of_device and own:
        raise _two_meanings(name, of_device[0], own[0])
    if of_device:
        return matching.route(offers, capability=None, device=device, action=action, node=node)[0]
    if not any(o.capability == name for o in offers):
        if any(o.device == device for o in offers):
            return matching.route(offers, capability=None, device=device, action=action, node=node)[0]
        raise _nothing(offers, name)
    return matching.route(offers, capability=name, node=node)[0]


def check_usable(offers: Sequence[Offer], chosen: Offer) -> None:
    """Whether anybody can do it now: what `do` asks for should not wait for a repair.

    Raises `EdgePandaError` (`unavailable`) with the reason and the cure.
    """
    alike = [o for o in offers if (o.capability, o.device) == (chosen.capability, chosen.device)]
    if chosen.device is not None:
        alike = [o for o in alike if o.node == chosen.node]
    if all(o.state in ("unavailable", "problem") for o in alike):
        raise EdgePandaError(
            f"{chosen.device or chosen.capability} on {chosen.node} cannot be used: {chosen.reason or chosen.state}",
            code="unavailable",
            where=chosen.node,
            cure=chosen.cure or "`edgepanda doctor` there says more; `edgepanda submit` would wait for it",
        )


def _nothing(offers: Sequence[Offer], name: str) -> matching.RoutingError:
    known = {o.capability for o in offers} | {f"{o.device}.{o.action_name}" for o in offers if o.device}
    return matching.RoutingError(f"nobody offers {name!r}", where="target", cure=matching.nearest(name, known))


def _two_meanings(name: str, device: Offer, own: Offer) -> matching.RoutingError:
    return matching.RoutingError(
        f"{name} is an action of {device.place} and a capability of {own.node}",
        code="ambiguous",
        where="target",
        cure=f"`edgepanda submit {own.capability}`, or `edgepanda submit {device.capability} --device {device.device}`",
        details={"candidates": [f"{device.place}.{device.action_name}", f"{own.node}/{own.capability}"]},
    )


def parse_args(words: Iterable[str], action: Action) -> dict[str, Any]:
    """The arguments: `key=value` by name, others in the order of the schema, the required ones first.

    Raises `ArgumentError`.
    """
    properties: dict[str, Any] = action.args.get("properties", {})
    required = [name for name in action.args.get("required", []) if name in properties]
    order = [*required, *(name for name in properties if name not in required)]
    args: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (equals and (name in properties or name.isidentifier())):
            free = [known for known in order if known not in args]
            if not free:
                raise ArgumentError(f"{word!r} is one argument too many", where=word, cure=usage(action))
            name, text = free[0], word
            if word.startswith("--"):
                raise ArgumentError(f"there is no option {word}", code="usage", where=word, cure=usage(action))
        elif name not in properties and action.args.get("additionalProperties") is False:
            raise ArgumentError(f"there is no argument {name!r}", where=name, cure=usage(action))
        elif name in args:
            raise ArgumentError("it is given twice", where=name)
        args[name] = typed(text, properties.get(name, {}), name)
    missing = [name for name in required if name not in args and "default" not in properties[name]]
    if missing:
        raise ArgumentError("the argument is missing", where=missing[0], cure=usage(action))
    return args


def usage(action: Action) -> str:
    """The arguments of an action, in a line."""
    properties: dict[str, Any] = action.args.get("properties", {})
    required = action.args.get("required", [])
    if not properties:
        return "it takes no arguments"
    words = [name if name in required else f"[{name}]" for name in properties]
    return f"it takes: {' '.join(words)}"


def typed(text: str, schema: dict[str, Any], name: str) -> Any:
    """The text as the schema wants it. Raises `ArgumentError` that names the argument."""
    if "enum" in schema:
        for value in schema["enum"]:
            if str(value) == text:
                return value
        raise ArgumentError(f"{text!r}; allowed: {', '.join(str(value) for value in schema['enum'])}", where=name)
    kinds = _kinds(schema)
    for kind in ("integer", "number", "boolean", "array", "object"):
        if kind in kinds:
            try:
                return _as(kind, text)
            except (ValueError, KeyError):
                continue
    if "null" in kinds and text in ("", "null"):
        return None
    if "string" in kinds:
        return text
    if kinds:
        unit = schema.get("unit")
        wanted = " or ".join(sorted(kinds - {"null"}))
        raise ArgumentError(f"{text!r} is no {wanted}{f' ({unit})' if unit else ''}", where=name)
    return guess(text)


def guess(text: str) -> Any:
    """Without a schema: JSON where it is JSON, else the text itself."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text
    return value


def guess_args(words: Iterable[str]) -> dict[str, Any]:
    """`key=value` without a schema. Raises `ArgumentError`."""
    args: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ArgumentError(f"{word!r} is no argument", where=word, cure="write name=value")
        args[name] = guess(text)
    return args


def _kinds(schema: dict[str, Any]) -> set[str]:
    kind = schema.get("type", [])
    kinds = {kind} if isinstance(kind, str) else set(kind)
    for part in (*schema.get("anyOf", []), *schema.get("oneOf", [])):
        kinds |= _kinds(part)
    return kinds


def _as(kind: str, text: str) -> Any:
    if kind == "boolean":
        return _WORDS[text.lower()]
    if kind == "integer":
        return int(text)
    if kind == "number":
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return number
    value = json.loads(text, parse_constant=_no_constant)
    if not isinstance(value, list if kind == "array" else dict):
        raise ValueError(text)
    return value


def _no_constant(word: str) -> Any:
    raise ValueError(word)
