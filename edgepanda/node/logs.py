"""The node's newest log lines, kept in memory for those who ask; secrets are taken out before a line is kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

import msgspec

from edgepanda.redact import redact
from edgepanda.wire.clock import boottime
from edgepanda.wire.requests import LONGEST_LOG_WAIT, LogLine, LogPage, Logs

MOST_LINES = 500  # that are kept
MOST_BYTES = 96 * 1024  # of the lines that are kept
LONGEST_TEXT = 2_000  # characters of one line; a traceback is one line
PAGE_BYTES = 32 * 1024  # of one answer
PAGE_LINES = 200
GATHER = 0.1  # seconds that an answer which was held back waits for more lines

About = tuple[str, int, str]  # task, attempt, device
ABOUT: ContextVar[About | None] = ContextVar("about", default=None)  # whose attempt the running code works at

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LogLine).decode


class _Kept(NamedTuple):
    seq: int
    level: int
    moment: float  # seconds of the boot's clock: the time of day in the line may have been set since
    line: bytes


class LogRing(logging.Handler):
    """Keeps what is logged. `start` tells this run of the process from others: numbers begin anew with each."""

    def __init__(self) -> None:
        super().__init__()
        self.start = 0
        self._kept: deque[_Kept] = deque()
        self._bytes = 0
        self._newest = 0
        self._waiting: set[asyncio.Event] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; the oldest make room for it."""
        try:
            text = redact(self.format(record))[:LONGEST_TEXT]
            task, attempt, device = ABOUT.get() or ("", None, "")
            level = record.levelname.lower()
            seq = self._newest + 1
            kept = _encode(LogLine(seq, round(record.created, 3), level, record.name, text, task, attempt, device))
        except Exception:
            self.handleError(record)
            return
        self._newest = seq
        self._kept.append(_Kept(seq, record.levelno, boottime(), kept))
        self._bytes += len(kept)
        while len(self._kept) > MOST_LINES or self._bytes > MOST_BYTES:
            self._bytes -= len(self._kept.popleft().line)
        if self._waiting and self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for waiting in self._waiting:
            waiting.set()

    async def answer(self, node: str, asked: Logs) -> LogPage:
        """The page that is asked for; where nothing is there yet, held back until there is, or `wait` is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + min(asked.wait, LONGEST_LOG_WAIT)
        with self._listening() as news:
            while True:
                news.clear()
                page = self.page(node, asked)
                if page.lines or page.missed or page.more or loop.time() >= end:
                    return page
                asked = msgspec.structs.replace(asked, after=page.next, start=page.start)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(end - loop.time()):
                        await news.wait()
                        await asyncio.sleep(GATHER)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[asyncio.Event]:
        self._loop = asyncio.get_running_loop()
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            yield news
        finally:
            self._waiting.discard(news)

    def page(self, node: str, asked: Logs) -> LogPage:
        """The page as it is now."""
        self.acquire()  # another thread may log meanwhile
        try:
            kept, newest = list(self._kept), self._newest
        finally:
            self.release()
        after = asked.after if asked.after is None or asked.start == self.start else 0
        oldest = kept[0].seq if kept else newest + 1
        lines = [line for line in _suiting(kept, asked) if after is None or line.seq > after]
        if after is None:
            lines = lines[max(0, len(lines) - asked.lines) :]
        shown = _fitting(lines)
        more = len(shown) < len(lines)
        return LogPage(
            node=node,
            start=self.start,
            lines=tuple(shown),
            next=shown[-1].seq if more else newest,
            more=more,
            missed=max(0, oldest - 1 - after) if after is not None else 0,
        )


def _suiting(kept: list[_Kept], asked: Logs) -> Iterator[LogLine]:
    lowest = logging.getLevelNamesMapping()[asked.level.upper()]
    earliest = boottime() - asked.since if asked.since is not None else 0.0
    for each in kept:
        if (
            each.moment >= earliest
            and each.level >= lowest
            and not (asked.task and asked.task.encode() not in each.line)
        ):
            yield _decode(each.line)


def _fitting(lines: list[LogLine]) -> list[LogLine]:
    size = 0
    for count, line in enumerate(lines[:PAGE_LINES]):
        size += len(_encode(line))
        if count and size > PAGE_BYTES:
            return lines[:count]
    return lines[:PAGE_LINES]
