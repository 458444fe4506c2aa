"""The newest lines in memory: bounded, numbered, without secrets, and paged for whoever asks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator

import pytest

from edgepanda.node import logs
from edgepanda.node.logs import ABOUT, LogRing
from edgepanda.wire.clock import boottime
from edgepanda.wire.requests import LogPage, Logs

log = logging.getLogger("edgepanda.test_logs")


@pytest.fixture
def ring() -> Iterator[LogRing]:
    ring = LogRing()
    ring.start = 3
    log.addHandler(ring)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    yield ring
    log.removeHandler(ring)


def texts(page: LogPage) -> list[str]:
    return [line.text for line in page.lines]


def read_all(ring: LogRing, asked: Logs) -> list[LogPage]:
    pages = [ring.page("desk", asked)]
    while pages[-1].more:
        pages.append(ring.page("desk", Logs(after=pages[-1].next, start=pages[-1].start)))
    return pages


def test_a_line_has_number_time_level_logger_and_whose_attempt_it_is(ring: LogRing) -> None:
    token = ABOUT.set(("task-0001", 2, "pan"))
    log.warning("too %s", "warm")
    ABOUT.reset(token)
    log.info("fine")
    first, second = ring.page("desk", Logs()).lines
    assert (first.seq, first.level, first.logger, first.text) == (1, "warning", log.name, "too warm")
    assert (first.task, first.attempt, first.device) == ("task-0001", 2, "pan")
    assert abs(first.at - time.time()) < 60
    assert (second.seq, second.task, second.attempt) == (2, "", None)


def test_secrets_are_gone_before_a_line_is_kept(ring: LogRing) -> None:
    log.info("connecting to mqtt://me:hunter2@broker")
    try:
        raise ValueError("password=hunter3")
    except ValueError:
        log.exception("no")
    assert not [kept for *_, kept in ring._kept if b"hunter" in kept]
    assert "ValueError" in texts(ring.page("desk", Logs()))[1]


def test_what_is_kept_is_bounded_in_lines_and_bytes_and_a_line_too(ring: LogRing) -> None:
    for number in range(logs.MOST_LINES + 20):
        log.info("line %d", number)
    page = read_all(ring, Logs(lines=10_000))
    assert sum(len(each.lines) for each in page) == logs.MOST_LINES
    for _ in range(200):
        log.info("%s", "\x01" * 5_000)
    assert ring._bytes <= logs.MOST_BYTES
    assert ring._bytes == sum(len(kept) for *_, kept in ring._kept)
    assert {len(text) for each in read_all(ring, Logs(lines=10_000)) for text in texts(each)} == {logs.LONGEST_TEXT}


def test_a_page_is_bounded_and_the_next_one_goes_on(ring: LogRing) -> None:
    for number in range(450):
        log.info("%d %s", number, "x" * 100)
    pages = read_all(ring, Logs(lines=420))
    assert len(pages) > 2
    assert all(len(page.lines) <= logs.PAGE_LINES for page in pages)
    assert [line.seq for page in pages for line in page.lines] == list(range(31, 451))
    assert not any(page.missed for page in pages)


def test_the_newest_lines_or_none(ring: LogRing) -> None:
    for number in range(5):
        log.info("%d", number)
    assert texts(ring.page("desk", Logs(lines=2))) == ["3", "4"]
    page = ring.page("desk", Logs(lines=0))
    assert (texts(page), page.next, page.more) == ([], 5, False)


def test_level_time_and_task_narrow(ring: LogRing, monkeypatch: pytest.MonkeyPatch) -> None:
    log.debug("small")
    log.error("declined task-0001.1: no")
    ABOUT_before = ABOUT.set(("task-0001", 1, "pan"))
    log.info("moving")
    ABOUT.reset(ABOUT_before)
    assert texts(ring.page("desk", Logs(level="warning"))) == ["declined task-0001.1: no"]
    assert texts(ring.page("desk", Logs(task="task-0001"))) == ["declined task-0001.1: no", "moving"]
    assert len(ring.page("desk", Logs(since=60.0)).lines) == 3
    with monkeypatch.context() as jump:
        jump.setattr(time, "time", lambda: 0.0)
        assert len(ring.page("desk", Logs(since=60.0)).lines) == 3
    now = boottime()
    monkeypatch.setattr(logs, "boottime", lambda: now + 120.0)
    assert texts(ring.page("desk", Logs(since=60.0))) == []


def test_what_is_kept_no_longer_is_counted(ring: LogRing) -> None:
    for number in range(logs.MOST_LINES + 100):
        log.info("%d", number)
    page = ring.page("desk", Logs(after=40, start=3))
    assert (page.missed, page.lines[0].seq) == (60, 101)
    assert ring.page("desk", Logs(after=logs.MOST_LINES + 100, start=3)).missed == 0


def test_after_another_start_all_of_this_one_is_told(ring: LogRing) -> None:
    log.info("one")
    page = ring.page("desk", Logs(after=4_000, start=2))
    assert (texts(page), page.start, page.missed) == (["one"], 3, 0)


async def test_an_answer_is_held_back_until_there_is_a_line(ring: LogRing) -> None:
    log.info("old")
    asked = asyncio.create_task(ring.answer("desk", Logs(after=1, start=3, wait=20.0)))
    await asyncio.sleep(0)
    assert not asked.done()
    log.info("new")
    log.info("and newer")
    assert texts(await asked) == ["new", "and newer"]
    assert not ring._waiting


async def test_a_line_that_does_not_suit_wakes_nobody_for_good(ring: LogRing) -> None:
    asked = asyncio.create_task(ring.answer("desk", Logs(after=0, start=3, wait=20.0, level="error")))
    await asyncio.sleep(0)
    log.info("small")
    await asyncio.to_thread(log.error, "large, from another thread")
    page = await asked
    assert (texts(page), page.next) == (["large, from another thread"], 2)


async def test_waiting_ends_with_an_empty_page_that_goes_on(ring: LogRing) -> None:
    log.info("small")
    page = await ring.answer("desk", Logs(after=0, start=3, wait=0.05, level="error"))
    assert (page.lines, page.next, page.more) == ((), 1, False)
    waiting = asyncio.create_task(ring.answer("desk", Logs(after=1, start=3, wait=20.0)))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert not ring._waiting
