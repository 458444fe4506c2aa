"""`do`: one thing, now; on this machine's own node also without broker and coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgepanda.cli.arguments import check_usable, find_offer, parse_args
from edgepanda.cli.cards import fetch_nodes, offers_of
from edgepanda.cli.common import Settings, command, label_option, node_option, quiet
from edgepanda.cli.exits import FAILED, OK, task_code
from edgepanda.cli.follow import Followed, View, detaching, follow, live_view, show_result
from edgepanda.cli.local import LocalNode
from edgepanda.cli.out import coloured, emit, fields, hint, plain, say
from edgepanda.errors import EdgePandaError

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.model.card import Offer
    from edgepanda.wire.requests import TaskView

ASIDE = 3.0  # seconds for the coordinator's first answer, when this machine's node could do it alone
_AWAY = frozenset({"broker_unreachable", "broker_refused", "broker_tls", "no_answer", "operator_key_missing"})


class _Try:
    """One `do`: what has been published so far decides whether the local socket may take it over."""

    def __init__(
        self, settings: Settings, target: str, words: tuple[str, ...], labels: dict[str, str], task_id: str
    ) -> None:
        self.settings, self.target, self.words, self.labels, self.id = settings, target, words, labels, task_id
        self.task = Followed(task_id)
        self.published = False

    def suiting(self, offers: Sequence[Offer]) -> list[Offer]:
        """Those with the wanted labels."""
        return [o for o in offers if all(o.labels.get(key) == value for key, value in self.labels.items())]


def _on(node: str | None, target: str) -> str:
    """The target, with the node that --node names in front."""
    if node is None or target.startswith(f"{node}/"):
        return target
    if "/" in target:
        raise click.UsageError(f"--node {node} and {target} name two nodes")
    return f"{node}/{target}"


@command(
    "do",
    timeout_help="How long to wait for the end (default: until Ctrl-C).",
    context_settings={"ignore_unknown_options": True},
    examples="""
    edgepanda do pan.move 30
    edgepanda do pan.move angle=-30 speed=20
    edgepanda do desk/pan.read
    edgepanda do camera.capture --label room=lab
    edgepanda do build.heavy target=all
    """,
)
@click.argument("target")
@click.argument("words", nargs=-1, metavar="[VALUE | NAME=VALUE]...")
@node_option("This node only; the same as NODE/ in front of the target.")
@label_option("Nodes or devices with this label.")
def do_command(
    settings: Settings, target: str, words: tuple[str, ...], node: str | None, labels: dict[str, str]
) -> int:
    """Do one thing now and show value and evidence.

    TARGET is DEVICE.ACTION or a capability, with NODE/ in front where two nodes have one of that name; `edgepanda card
    --all` lists them. Plain values fill the arguments in their order, the required ones first.

    A device of this machine's own node also works when broker or coordinator are away: then the node does it alone,
    and the ledger hears of it later.
    """
    from edgepanda.model.ids import new_id

    quiet(settings)
    attempt = _Try(settings, _on(node, target), words, labels, new_id())
    with detaching(attempt.task, settings.json):
        try:
            view = asyncio.run(_at_site(attempt))
        except EdgePandaError as error:
            if error.code not in _AWAY:
                raise
            return asyncio.run(_locally(attempt, error))
    if settings.json:
        emit(view)
    else:
        show_result(view, output=not attempt.task.output_shown)
    return task_code(view)


async def _at_site(attempt: _Try) -> TaskView:
    from edgepanda.client import ANSWER_WITHIN, AsyncClient

    settings = attempt.settings
    local = LocalNode.of(settings.load())
    within = min(settings.timeout or ANSWER_WITHIN, ASIDE if local.present else ANSWER_WITHIN)
    async with AsyncClient.from_config(settings.config, answer_within=within, watch=True) as client:
        node = attempt.target.rpartition("/")[0] or None
        nodes = await fetch_nodes(client, node)
        offers = attempt.suiting([offer for each in nodes for offer in offers_of(each.get("card"))])
        offer = find_offer(offers, attempt.target)
        check_usable(offers, offer)
        check_stops(nodes, offer)
        args = parse_args(attempt.words, offer.action)
        with live_view(settings.json, f"{attempt.target} ...") as view:
            return await follow(client, attempt.task, view, _run(client, attempt, offer, args))


def check_stops(nodes: Sequence[dict[str, Any]], offer: Offer) -> None:
    """Whether an emergency stop forbids it: then it is not submitted. Raises `EdgePandaError` (`stopped`). Pure."""
    stops = next((node.get("stops") for node in nodes if node["name"] == offer.node), None)
    if stops and offer.action.tier > 0:
        reason = f": {stops[-1]['reason']}" if stops[-1].get("reason") else ""
        raise EdgePandaError(
            f"an emergency stop is in force there, by {stops[-1].get('by') or 'somebody'}{reason}",
            code="stopped",
            where=offer.node,
            cure="`edgepanda release` ends it, once it is safe",
        )


async def _run(client: AsyncClient, attempt: _Try, offer: Offer, args: dict[str, Any]) -> TaskView:
    where: dict[str, Any] = {"capability": offer.capability, "labels": attempt.labels}
    if offer.device is not None:
        where |= {"device": offer.device, "node": offer.node}
    elif "/" in attempt.target:
        where |= {"node": offer.node}
    attempt.published = True
    return await client.run(args=args, id=attempt.id, timeout=attempt.settings.timeout, **where)


async def _locally(attempt: _Try, error: EdgePandaError) -> int:
    """The same through the node's socket. Raises the site's error where that may not or cannot be."""
    local = LocalNode.of(attempt.settings.load())
    card = await local.card()
    mine = attempt.suiting(offers_of(card))
    node = str(card["node"]) if card else ""
    before, _, name = attempt.target.rpartition("/")
    if not mine or before not in ("", node):
        raise error
    offer = find_offer(mine, f"{node}/{name}")
    args = parse_args(attempt.words, offer.action)
    if attempt.published and offer.action.replay == "unsafe":
        raise EdgePandaError(
            f"no answer came, and {attempt.target} is not safe to do twice",
            code=error.code,
            where=error.where,
            cure=f"the task {attempt.id} may run: `edgepanda show {attempt.id}` tells once the coordinator is back",
        )
    if not attempt.settings.json:
        hint(f"{error.message} ({error.where}): this machine's node {node} does it alone; the ledger hears of it later")
    with live_view(attempt.settings.json, f"{attempt.target} on {node} ...") as view:
        result = await _call(local, attempt, offer, args, view)
    return _show_local(attempt, offer, result)


async def _call(local: LocalNode, attempt: _Try, offer: Offer, args: dict[str, Any], view: View) -> dict[str, Any]:
    params: dict[str, Any] = {"device": offer.device or offer.capability, "args": args, "id": attempt.id}
    params["action"] = offer.action_name
    if attempt.settings.timeout is not None:
        params["timeout"] = attempt.settings.timeout
    view.status(f"{attempt.target} on {offer.node}, directly")
    answer: dict[str, Any] = await local.request("do", params)
    return dict(answer["result"])


def _show_local(attempt: _Try, offer: Offer, result: dict[str, Any]) -> int:
    from edgepanda.model.task import Finished

    finished = msgspec.convert(result, Finished)
    if attempt.settings.json:
        facts = {"id": attempt.id, "state": finished.outcome, "capability": offer.capability, "device": offer.device}
        emit({**facts, "node": offer.node, "door": "local", "attempt": 0, "ended": True, "result": result})
    else:
        say(f"{coloured(finished.outcome)}  {offer.capability} {offer.device or ''} on {offer.node}, directly")
        fields(
            [
                ("code", finished.code),
                ("said", finished.narrative or finished.message),
                ("value", "" if finished.value is None else plain(finished.value)),
                ("evidence", "\n".join(plain(item) for item in finished.evidence)),
            ]
        )
        for line in finished.output:
            say(f"  | {line}")
    return OK if finished.outcome == "succeeded" else FAILED
