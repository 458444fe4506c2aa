"""The word that somebody may have meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str], otherwise: str, *, cutoff: float = 0.6) -> str:
    """The cure for an unknown word: the nearest known one, or what else helps. `cutoff`: 1 is the same word."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else otherwise
