"""What stands below `watch`, from one event to the next."""

from __future__ import annotations

from typing import Any

from edgepanda.cli.board import MOST_ROWS, Board
from edgepanda.wire.messages import Event

NOTHING: dict[str, Any] = {"needs_person": [], "running": [], "queued": []}


def event(at: float, kind: str, about: str | None = "t1", state: str = "", **data: Any) -> Event:
    more = {"state": state} if state else {}
    return Event(id="e", seq=1, at=at, kind=kind, task=about, attempt=None, data={**data, **more})


def test_a_task_comes_changes_and_goes() -> None:
    board = Board(NOTHING)
    board.take(event(0, "submitted", state="queued", task={"capability": "servo.move", "device": "pan"}))
    assert board.rows(5) == [("t1", "queued", "servo.move pan", "", "5s", "")]
    board.take(event(6, "leased", state="leased", node="desk"))
    board.take(event(7, "started", state="running"))
    board.take(event(8, "progress", fraction=0.5))
    assert board.rows(9) == [("t1", "running", "servo.move pan", "desk", "2s", "50%")]
    board.take(event(9, "lost", state="queued"))
    assert board.rows(9) == [("t1", "queued", "servo.move pan", "", "0s", "")]
    board.take(event(10, "expired", state="expired"))
    board.take(event(11, "epoch", about=None))
    assert board.rows(11) == []


def test_what_is_open_already_is_there_and_people_come_first() -> None:
    row = {"capability": "servo.move", "device": None, "node": "desk", "updated": 1.0}
    running = [{**row, "id": f"r{number:02}", "state": "running"} for number in range(MOST_ROWS + 2)]
    board = Board({**NOTHING, "running": running, "needs_person": [{**row, "id": "p", "state": "uncertain"}]})
    rows = board.rows(61)
    assert rows[0] == ("p", "uncertain", "servo.move", "desk", "1m", "")
    assert (len(rows), rows[-1][1]) == (MOST_ROWS + 1, "and 3 more")
