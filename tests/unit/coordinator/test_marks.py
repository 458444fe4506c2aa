"""Times of a clock that nobody had set are marked: in the ledger, in views, in what watchers hear."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepanda.cli.out import clock
from edgepanda.coordinator.marks import marked, unmarked
from edgepanda.wire import messages
from tests.rig.desk import at_desk


@pytest.mark.parametrize("trusted", [True, False])
def test_a_mark_leaves_the_data_as_it_was(trusted: bool) -> None:
    assert unmarked(marked({"state": "queued"}, trusted=trusted)) == ({"state": "queued"}, not trusted)


def test_nobody_knows_it_of_a_payload_that_was_dropped() -> None:
    assert unmarked(None) == (None, None)


def test_people_see_it_before_the_time() -> None:
    assert clock(1e9, untrusted=True) == "~" + clock(1e9)


async def test_each_time_has_the_mark_of_its_own_moment(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        desk.synchronised = False
        await desk.submit("task-0001")
        assert (await desk.answer("task.get", id="task-0001"))["untrusted"] == ("created", "updated")
        desk.synchronised = True
        desk.say(messages.Started, "task-0001")
        await desk.settle()
        assert (await desk.answer("task.get", id="task-0001"))["untrusted"] == ("created",)
        page = await desk.answer("task.events", id="task-0001")
        assert [(row["kind"], row["untrusted"]) for row in page["events"]] == [
            ("submitted", True),
            ("leased", True),
            ("started", False),
        ]
        assert [event.untrusted for event in desk.published] == [True, True, False]
        assert not any("untrusted_time" in row["data"] for row in page["events"])
        assert (await desk.answer("task.list"))["tasks"][0]["untrusted"] == ("created",)
        assert desk.ledger.verify().ok


async def test_progress_is_marked_too(tmp_path: Path) -> None:
    with at_desk(tmp_path) as desk:
        desk.joins()
        await desk.submit("task-0001")
        for synchronised in (True, False):
            desk.synchronised = synchronised
            desk.say(messages.Progress, "task-0001", text="half")
        assert [event.untrusted for event in desk.told] == [False, True]
