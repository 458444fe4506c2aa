"""From typed Python to JSON Schema: the arguments of an action, the configuration of a device."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from edgepanda.drivers.contract import ActionSpec, CallResult, DriverError, JsonSchema, no_args


def struct_schema(struct: Any) -> JsonSchema:
    """The JSON Schema of a Struct type, its own members at the top, others under `$defs`."""
    schema = msgspec.json.schema(struct)
    reference = schema.pop("$ref", None)
    if reference is None:
        return schema
    name = reference.rsplit("/", 1)[1]
    definitions = schema["$defs"]
    own: JsonSchema = dict(definitions[name])
    others = {key: value for key, value in definitions.items() if key != name}
    own.pop("title", None)
    return own | ({"$defs": others} if others else {})


class Bound(msgspec.Struct, frozen=True):
    """An action's method with its spec and the Struct type that its arguments are checked against."""

    method: Callable[..., Any]
    spec: ActionSpec
    args: type[msgspec.Struct]
    free: bool = False
    """The method takes `**arguments` of any name and checks them itself."""

    def check(self, args: dict[str, Any]) -> dict[str, Any]:
        """The typed arguments of a call.

        Raises:
            DriverError: `invalid_args`, naming the argument.
        """
        if self.free:
            return args
        try:
            typed = msgspec.convert(args, self.args, strict=True)
        except (msgspec.ValidationError, ValueError) as error:
            text = str(error)
            raise DriverError(
                text, code="invalid_args", cure="`edgepanda card` lists the arguments of each action"
            ) from error
        return {name: getattr(typed, name) for name in self.args.__struct_fields__}


def bind(method: Callable[..., Any], options: dict[str, Any], units: dict[str, str], returns: Any = None) -> Bound:
    """The action that a method `(self, ctx, ...)` and the options of its decorator describe.

    Raises:
        TypeError: an argument has no annotation, or a unit names no argument.
    """
    hints = typing.get_type_hints(method, include_extras=True)
    fields: list[Any] = []
    free = False
    for parameter in list(inspect.signature(method).parameters.values())[2:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            free = True
            continue
        if parameter.name not in hints:
            raise TypeError(f"{method.__qualname__}: the argument {parameter.name} has no annotation")
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hints[parameter.name], *default))
    args = msgspec.defstruct(method.__name__, fields, kw_only=True, frozen=True, forbid_unknown_fields=True)
    schema = no_args() | struct_schema(args)
    schema["additionalProperties"] = free
    for name, unit in units.items():
        if name not in schema["properties"]:
            raise TypeError(f"{method.__qualname__}: a unit is given for {name}, which is no argument")
        schema["properties"][name]["unit"] = unit
    spec = ActionSpec(
        description=(method.__doc__ or method.__name__).strip().splitlines()[0],
        args=schema,
        returns=_returns(returns or hints.get("return")),
        **options,
    )
    return Bound(method, spec, args, free)


def _returns(hint: Any) -> JsonSchema | None:
    if hint in (None, type(None), Any, CallResult):
        return None
    return struct_schema(hint)
