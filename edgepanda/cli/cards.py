"""The cards of the site's nodes, as the commands need them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from edgepanda.cli import names

if TYPE_CHECKING:
    from edgepanda.client import AsyncClient
    from edgepanda.model.card import Offer


async def fetch_nodes(client: AsyncClient, only: str | None = None) -> list[dict[str, Any]]:
    """The nodes with their cards: all, or one; completion learns them. Raises `EdgePandaError` (`unknown_node`)."""
    wanted = [only] if only is not None else [node["name"] for node in await client.nodes()]
    found = list(await asyncio.gather(*(client.node(name) for name in wanted)))
    names.remember_nodes(client.site, found, all_of_them=only is None)
    return found


async def fetch_offers(client: AsyncClient, only: str | None = None) -> list[Offer]:
    """All that the nodes offer."""
    return [offer for node in await fetch_nodes(client, only) for offer in offers_of(node.get("card"))]


def offers_of(card: dict[str, Any] | None) -> list[Offer]:
    """All that one card offers."""
    import msgspec

    from edgepanda.model.card import Card, offers

    return offers(msgspec.convert(card, Card)) if card else []
