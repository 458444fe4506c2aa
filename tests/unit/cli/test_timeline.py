"""Pictures of tasks, letter by letter."""

from __future__ import annotations

from typing import Any

import pytest

from edgepanda.cli.timeline import exactly, picture


def event(at: float, kind: str, state: str | None = None, attempt: int | None = None, **data: Any) -> dict[str, Any]:
    if state:
        data["state"] = state
    return {"seq": 1, "at": 100.0 + at, "kind": kind, "task": "t", "attempt": attempt, "data": data}


LONG = [
    event(0, "submitted", "queued"),
    event(1, "leased", "leased", 1, node="desk"),
    event(1.2, "permitted", "running", 1),
    event(3, "progress", None, 1, fraction=0.5),
    event(4, "lost", "queued", 1),
    event(5, "leased", "leased", 2, node="attic"),
    event(5.1, "started", "running", 2),
    event(8, "finished", "waiting_review", 2),
    event(10, "review_accepted", "succeeded"),
]


def drawn(text: str) -> list[str]:
    return text.strip("\n").splitlines()


def test_two_attempts_a_review_and_the_end() -> None:
    assert picture(LONG, now=200, width=72) == drawn("""
                 0                       5s                    10s
                 ┴───────────────────────┴─────────────────────┴
queued           ·····              ·····                            2s
attempt 1 desk        ░█████████████                                 3s
attempt 2 attic                          ██████████████              3s
waiting_review                                         ▒▒▒▒▒▒▒▒▒     2s
marks                  P       o    L
· waits  ░ leased  █ runs  ▒ needs a person  P permit  o progress
L lease lost
succeeded after 10s
""")


def test_the_same_in_plain_letters() -> None:
    lines = picture(LONG, now=200, width=72, unicode=False)
    assert lines == drawn("""
                 0                       5s                    10s
                 +-----------------------+---------------------+
queued           .....              .....                            2s
attempt 1 desk        -#############                                 3s
attempt 2 attic                          ##############              3s
waiting_review                                         ?????????     2s
marks                  P       o    L
. waits  - leased  # runs  ? needs a person  P permit  o progress
L lease lost
succeeded after 10s
""")
    assert all(line.isascii() for line in lines)


def test_what_goes_on_is_drawn_until_now() -> None:
    assert picture(LONG[:2], now=104, width=50, unicode=False) == drawn("""
                0            2s          4s
                +------------+-----------+
queued          ......                         1s
attempt 1 desk        --------------------     3s
. waits  - leased
leased since 3s
""")


def test_what_a_node_did_alone() -> None:
    told = [event(0, "direct", None, 0, node="desk"), event(0, "finished", "succeeded", 0)]
    assert picture(told, now=104, width=40, unicode=False) == drawn("""
             0                  1ms
             +------------------+
direct desk  #                       0ms
# runs
succeeded after 1ms
""")


@pytest.mark.parametrize("width", [50, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_bar_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    many = [event(0, "submitted", "queued")]
    for number in range(1, 40):
        many.append(event(number * 3600, "leased", "leased", number, node="n1"))
        many.append(event(number * 3600 + 60, "declined", "queued", number, node="n1"))
    assert max(len(line) for line in picture(LONG, now=200, width=width, unicode=unicode)) <= width
    lines = picture([*many, event(200_000, "expired", "expired")], now=300_000, width=width, unicode=unicode)
    assert max(len(line) for line in lines) <= width
    assert len(lines) < 22
    assert any("27 more attempts" in line for line in lines)
    assert lines[-1] == "expired after 2d"


def test_a_moment_is_a_picture_too() -> None:
    assert picture([event(0, "submitted", "queued")], now=100.0, width=50)[-1] == "queued since 0ms"
    assert picture([], now=0) == ["nothing is known of it"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0042, "4ms"), (1.5, "1.5s"), (2, "2s"), (12.3, "12s"), (150, "2m30s"), (11_100, "3h05m"), (172_800, "2d")],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert exactly(seconds) == text
