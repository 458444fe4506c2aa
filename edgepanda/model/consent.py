"""What tier 2 needs."""

from __future__ import annotations

from edgepanda.errors import EdgePandaError


def consent_required(capability: str) -> EdgePandaError:
    """Tier 2 is refused on every lane until consent exists."""
    return EdgePandaError(
        f"{capability} cannot be undone and needs a person's consent",
        code="consent_required",
        where="capability",
        cure="consent does not exist yet in this version: such an action is refused on every lane",
    )
