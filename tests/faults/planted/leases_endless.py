"""Leases never end."""

from edgepanda.coordinator.leases import Leases

Leases.tick = lambda self: None  # type: ignore[method-assign]
Leases.restarted = lambda self, node, held: None  # type: ignore[method-assign]
