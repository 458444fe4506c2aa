"""How fast one address may try passwords. Pure: the time is given."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

FREE = 10  # tries that one address has at once, right ones given back
EACH = 2.0  # seconds that a further one costs
LONGEST_WAIT = 8.0  # seconds that a client waits at most: ours give up after 15
REMEMBERED = 1024  # addresses; who was not heard of for longest is forgotten


class LoginPace:
    """A bucket of tries for each address, in bounded memory."""

    def __init__(self) -> None:
        self._used_up: OrderedDict[str, float] = OrderedDict()  # when its tries would all be there again

    def take(self, address: str, now: float) -> float | None:
        """Take one try: the seconds to wait before it, or None when too many wait already."""
        who = _network(address)
        full_at = max(self._used_up.get(who, now), now) + EACH
        wait = max(0.0, full_at - now - FREE * EACH)
        if wait > LONGEST_WAIT:
            return None
        self._used_up[who] = full_at
        self._used_up.move_to_end(who)
        if len(self._used_up) > REMEMBERED:
            self._used_up.popitem(last=False)
        return wait

    def give_back(self, address: str) -> None:
        """It was the right password."""
        who = _network(address)
        if who in self._used_up:
            self._used_up[who] -= EACH

    def __len__(self) -> int:
        return len(self._used_up)


def _network(address: str) -> str:
    """An IPv6 machine has 2**64 addresses: its network counts as one."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
