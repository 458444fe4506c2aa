"""From a client's submit to a task: every check, before anything is kept. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import fastjsonschema
import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model import matching
from edgepanda.model.card import MAX_ATTEMPTS, RETRY_BACKOFF, Action, Offer
from edgepanda.model.consent import consent_required
from edgepanda.model.ids import is_task_id
from edgepanda.model.task import Limits, Task
from edgepanda.wire.envelope import plain
from edgepanda.wire.requests import LARGEST_SUBMIT, Submit

VALID_FOR = 30.0  # seconds: default of `valid_for` for actions of a device, which act on the world of the moment
MOST_CRITERIA = 32
_CARD = "`edgepanda card --all` lists arguments and limits"
_WHAT = "name a capability, or a device and one of its actions; `edgepanda card --all` lists them"
LONGEST_LIMIT = 10 * 365 * 86_400.0  # seconds


class SubmitError(EdgePandaError):
    """Why a submit is refused: `invalid_args limit oversized invalid_task_id`."""

    code = "invalid_args"


def accept(submit: Submit, offers: Sequence[Offer], by: str) -> Task:
    """The task that the submit asks for, routed and with its arguments checked against the card.

    Raises `SubmitError`, and `RoutingError` from matching.
    """
    _check_form(submit)
    candidates = matching.route(
        offers,
        capability=submit.capability,
        device=submit.device,
        action=submit.action,
        node=submit.node,
        labels=submit.labels,
    )
    first = candidates[0]
    args = _with_defaults(first.action, submit.args)
    _check_args(candidates, args)
    if first.action.tier >= 2:
        raise consent_required(first.capability)
    return Task(
        id=submit.id,
        capability=first.capability,
        args=args,
        device=first.device,
        node=first.node if first.device is not None else submit.node,
        labels=submit.labels,
        goal=submit.goal,
        constraints=submit.constraints,
        criteria=submit.criteria,
        limits=_limits(submit.limits, first),
        priority=submit.priority,
        tier=max(o.action.tier for o in candidates),
        replay="unsafe" if any(o.action.replay == "unsafe" for o in candidates) else "safe",
        by=by,
        door=submit.door,
    )


def _check_form(submit: Submit) -> None:
    if not is_task_id(submit.id):
        raise SubmitError(
            f"{submit.id!r} cannot name a task",
            code="invalid_task_id",
            where="id",
            cure="use 8 to 40 of a-z, 0-9 and '-'",
        )
    if len(msgspec.json.encode(submit)) > LARGEST_SUBMIT:
        cure = "say it shorter; what is larger belongs into a file that the task is told the path of"
        raise SubmitError(f"more than {LARGEST_SUBMIT} bytes", code="oversized", where="params", cure=cure)
    if not plain(submit.args):
        raise SubmitError("too deep, or a number beyond 64 bits", where="args", cure=_CARD)
    if (submit.capability is None) == (submit.action is None):
        raise SubmitError("it is not clear what to do", where="capability, action", cure=_WHAT)
    if submit.action is not None and submit.device is None:
        raise SubmitError("an action needs a device", where="device", cure=_WHAT)
    if len(submit.criteria) > MOST_CRITERIA or len(submit.constraints) > MOST_CRITERIA:
        raise _limit(
            f"{max(len(submit.criteria), len(submit.constraints))} of them",
            "criteria, constraints",
            f"at most {MOST_CRITERIA} are allowed",
        )
    if not -100 <= submit.priority <= 100:
        raise _limit(str(submit.priority), "priority", "-100 to 100 is allowed")
    _check_limits(submit.limits)


def _check_limits(limits: Limits) -> None:
    for name in ("timeout", "valid_for", "deliver_within", "deadline", "retry_backoff"):
        value = getattr(limits, name)
        if value is not None and not 0 < value <= LONGEST_LIMIT:
            raise _limit(f"{value} s", f"limits.{name}", "more than 0 and at most ten years are allowed")
    if limits.max_attempts is not None and not 1 <= limits.max_attempts <= 100:
        raise _limit(str(limits.max_attempts), "limits.max_attempts", "1 to 100 is allowed")


def _limit(found: str, where: str, allowed: str) -> SubmitError:
    return SubmitError(f"{found} is out of range", code="limit", where=where, cure=allowed)


def _with_defaults(action: Action, args: dict[str, Any]) -> dict[str, Any]:
    properties = action.args.get("properties", {})
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    return {**defaults, **args}


def _check_args(candidates: Sequence[Offer], args: dict[str, Any]) -> None:
    """The arguments must suit at least one offer; the error is the first one's."""
    problems = [problem for problem in (check_args(o.action, args) for o in candidates) if problem is not None]
    if len(problems) == len(candidates):
        raise problems[0]


def check_args(action: Action, args: dict[str, Any]) -> SubmitError | None:
    """What is wrong with the arguments by the action's schema, or None."""
    try:
        _validator(msgspec.json.encode({"type": "object", **action.args}))(args)
    except fastjsonschema.JsonSchemaValueException as error:
        return _described(error, action)
    except SubmitError as error:
        return error
    return None


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> Callable[[dict[str, Any]], Any]:
    """The compiled schema. It comes from a node, so it may hold anything; references would be followed to anywhere."""
    decoded = msgspec.json.decode(schema)
    if b'"$ref"' in schema or b'"$dynamicRef"' in schema:
        raise SubmitError("the driver's schema has references", code="unsupported", where="card")
    try:
        validator: Callable[[dict[str, Any]], Any] = fastjsonschema.compile(decoded, use_default=False)
    except Exception as error:
        raise SubmitError(f"the driver's schema cannot be used: {error}", code="unsupported", where="card") from error
    return validator


def _described(outer: fastjsonschema.JsonSchemaValueException, action: Action) -> SubmitError:
    error = _inner(outer)
    path = ".".join(str(part) for part in outer.path[1:])
    properties = action.args.get("properties", {})
    if error.rule == "required" and not path:
        missing = next(name for name in error.rule_definition if name not in error.value)
        known = f"known are: {', '.join(properties)}"
        return SubmitError(f"the argument {missing} is missing", where=f"args.{missing}", cure=known)
    if error.rule == "additionalProperties":
        return SubmitError(
            error.message.replace("data ", "the arguments ", 1),
            where="args",
            cure=f"known are: {', '.join(properties)}",
        )
    code = "limit" if error.rule in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") else "invalid_args"
    unit = properties.get(path, {}).get("unit", "")
    found = f"{error.value!r}{' ' + unit if unit else ''}"
    message = (
        error.message.removeprefix(str(error.name)).strip() if path else error.message.removeprefix("data").strip()
    )
    where = f"args.{path}" if path else "args"
    return SubmitError(f"{found if path else 'the arguments'} {message}", code=code, where=where, cure=_CARD)


def _inner(error: fastjsonschema.JsonSchemaValueException) -> fastjsonschema.JsonSchemaValueException:
    """Of a value that may also be left out (null): why it does not suit the one schema that it has otherwise."""
    if error.rule != "anyOf" or error.value is None:
        return error
    meant = [schema for schema in error.rule_definition if schema.get("type") != "null"]
    if len(meant) == 1:
        try:
            _validator(msgspec.json.encode(meant[0]))(error.value)
        except fastjsonschema.JsonSchemaValueException as inner:
            return inner
    return error


def _limits(limits: Limits, offer: Offer) -> Limits:
    valid_for = limits.valid_for
    if valid_for is None and offer.device is not None and offer.action.tier > 0:
        valid_for = VALID_FOR
    attempts, pause = limits.max_attempts, limits.retry_backoff
    if attempts is None and offer.action.max_attempts != MAX_ATTEMPTS:
        attempts = offer.action.max_attempts
    if pause is None and offer.action.retry_backoff != RETRY_BACKOFF:
        pause = offer.action.retry_backoff
    return msgspec.structs.replace(limits, valid_for=valid_for, max_attempts=attempts, retry_backoff=pause)
