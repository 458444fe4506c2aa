"""Who can do a task: a pure function over the task and what the nodes offer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from edgepanda.errors import EdgePandaError
from edgepanda.model.card import Offer
from edgepanda.model.nearest import did_you_mean
from edgepanda.model.task import Task


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """A node as matching sees it at this moment."""

    name: str
    online: bool
    capabilities: frozenset[str]  # that its claim names
    free: int  # slots
    load: float = 0.0
    card_revision: int = 0


class RoutingError(EdgePandaError):
    """`unknown_capability`, `unknown_device`, `unknown_node`, `ambiguous`: the task names nothing that exists."""

    code = "unknown_capability"


def nearest(word: str, known: Iterable[str]) -> str:
    """The cure where nobody offers this."""
    return did_you_mean(word, sorted(set(known)), "`edgepanda card --all` lists what there is")


def _fits(offer: Offer, node: str | None, device: str | None, labels: Mapping[str, str]) -> bool:
    return (
        (node is None or offer.node == node)
        and (device is None or offer.device == device)
        and all(offer.labels.get(key) == value for key, value in labels.items())
    )


def route(
    offers: Sequence[Offer],
    *,
    capability: str | None,
    device: str | None = None,
    action: str | None = None,
    node: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[Offer]:
    """The offers that a task may go to: all of one capability, and all of one device where it has devices.

    Names are exact; nothing falls through to anything else. Raises `RoutingError`: `unknown_capability`,
    `unknown_device`, `unknown_node`, or `ambiguous` with `details["candidates"]`.
    """
    labels = labels or {}
    if capability is None:
        named = [o for o in offers if o.device == device and o.action_name == action]
    else:
        named = [o for o in offers if o.capability == capability]
    if not named:
        raise _unknown(offers, capability, device, action)
    fitting = [o for o in named if _fits(o, node, device, labels)]
    if not fitting:
        raise _no_fit(named, node, device, labels)
    places = sorted({o.place for o in fitting if o.device is not None})
    if len(places) > 1:
        raise RoutingError(
            f"{fitting[0].capability} could mean {' or '.join(places)}",
            code="ambiguous",
            where="device",
            cure="name the device, and the node where two have one of that name",
            details={"candidates": places},
        )
    return fitting


def _unknown(offers: Sequence[Offer], capability: str | None, device: str | None, action: str | None) -> RoutingError:
    if capability is not None:
        known = [o.capability for o in offers]
        return RoutingError(f"nobody offers {capability!r}", where="capability", cure=nearest(capability, known))
    devices = {o.device for o in offers if o.device}
    if device not in devices:
        return RoutingError(
            f"there is no device {device!r}", code="unknown_device", where="device", cure=nearest(str(device), devices)
        )
    actions = [o.action_name for o in offers if o.device == device]
    return RoutingError(f"{device} cannot {action!r}", where="action", cure=nearest(str(action), actions))


def _no_fit(named: Sequence[Offer], node: str | None, device: str | None, labels: Mapping[str, str]) -> RoutingError:
    capability = named[0].capability
    if node is not None and node not in {o.node for o in named}:
        nodes = [o.node for o in named]
        return RoutingError(
            f"node {node!r} does not offer {capability}", code="unknown_node", where="node", cure=nearest(node, nodes)
        )
    if device is not None and device not in {o.device for o in named}:
        devices = [o.device for o in named if o.device]
        return RoutingError(
            f"{capability} has no device {device!r}",
            code="unknown_device",
            where="device",
            cure=nearest(device, devices),
        )
    wanted = ", ".join(f"{k}={v}" for k, v in sorted(labels.items()))
    return RoutingError(
        f"no {capability} is labelled {wanted}",
        code="unknown_device",
        where="labels",
        cure="`edgepanda card --all` lists what there is",
    )


def choose(
    task: Task, offers: Sequence[Offer], claims: Mapping[str, Claimant], excluded: Mapping[str, int]
) -> Offer | None:
    """The offer to lease the task to now, or None: it stays queued (a pinned node that is away parks it).

    `excluded` maps nodes that refused this task to the card revision that they had. The node with most free slots
    wins, then the least loaded, then the first by name.
    """

    def able(offer: Offer) -> bool:
        claim = claims.get(offer.node)
        return (
            claim is not None
            and claim.online
            and claim.free > 0
            and offer.capability in claim.capabilities
            and offer.state == "ready"
            and excluded.get(offer.node) != claim.card_revision
        )

    def rank(offer: Offer) -> tuple[int, float, str]:
        claim = claims[offer.node]
        return (-claim.free, claim.load, offer.node)

    able_offers = [o for o in offers if able(o) and _fits(o, task.node, task.device, task.labels)]
    return min(able_offers, key=rank, default=None)
