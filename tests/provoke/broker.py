"""What only `edgepanda broker` says: of a broker that was tried, and of the embedded one's users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgepanda.model.broker_needs import Observed, judge
from edgepanda.services.broker_users import add_user, remove_user
from tests.provoke.kit import Here, provokes

NOW = 1_800_000_000.0
SEEN: dict[str, dict[str, Any]] = {
    "broker_topics": {"topics": False},
    "broker_no_qos": {"qos": False},
    "broker_no_retain": {"retained": False},
    "broker_no_wildcard": {"retained_wildcard": False},
    "broker_no_clear": {"retained_cleared": False},
    "broker_small_messages": {"largest": 16384},
    "broker_leaks": {"retained_leaks": True},
    "broker_wide_filters": {"past_acl": True},
    "broker_no_will": {"will": False},
    "broker_no_keepalive": {"keepalive": False},
    "broker_no_takeover": {"takeover": False},
    "broker_stranger": {"stranger": True},
    "broker_anonymous": {"anonymous": True},
    "broker_plaintext": {"tls": False},
    "broker_certificate_ends": {"certificate_until": NOW + 86_400},
    "broker_unanswered": {"unanswered": ("will",)},
}


def _provoke(code: str) -> Callable[[Here], str]:
    def tell(_: Here) -> str:
        seen = Observed(
            **{"address": "mqtts://broker.lan:8883", "host": "broker.lan", "tls": True, "user": "me"} | SEEN[code]
        )
        (finding,) = judge(seen, NOW)
        return f"{finding.meaning} ({seen.address}); {finding.cure} [{finding.code}]"

    return tell


for _code in SEEN:
    provokes(_code)(_provoke(_code))


@provokes("broker_user_exists")
def broker_user_exists(here: Here) -> None:
    for _ in range(2):
        add_user(here.folder / "users.toml", "shed", "long enough")


@provokes("broker_user_unknown")
def broker_user_unknown(here: Here) -> None:
    remove_user(Path(here.folder / "users.toml"), "shed")


@provokes("invalid_password")
def invalid_password(here: Here) -> None:
    add_user(here.folder / "users.toml", "shed", "short")
