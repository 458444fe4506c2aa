"""How fast one address may try passwords. Pure: the time is given."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

FREE = 10  # wrong tries that one address has at once
EACH = 2.0  # seconds that a further one costs
LONGEST_WAIT = 8.0  # seconds that a client waits at most: ours give up after 15
REMEMBERED = 1024  # addresses; who was not heard of for longest is forgotten


class LoginPace:
    """A bucket of wrong tries for each address, in bounded memory. Right ones cost nothing."""

    def __init__(self) -> None:
        self._full_again: OrderedDict[str, float] = OrderedDict()  # when all of its tries would be there

    def wait(self, address: str, now: float) -> float:
        """The seconds until this address may try."""
        return max(0.0, self._full_again.get(_network(address), now) + EACH - FREE * EACH - now)

    def wrong(self, address: str, now: float) -> None:
        """It has tried, and was wrong."""
        who = _network(address)
        self._full_again[who] = max(self._full_again.get(who, now), now) + EACH
        self._full_again.move_to_end(who)
        if len(self._full_again) > REMEMBERED:
            self._full_again.popitem(last=False)

    def __len__(self) -> int:
        return len(self._full_again)


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
