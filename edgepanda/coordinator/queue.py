"""Queued tasks, grouped by where they can go, so that a look costs the number of groups and not of tasks. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from typing import Literal

from edgepanda.model.task import Task

Group = tuple[str, str | None, str | None, tuple[tuple[str, str], ...]]


def group_of(task: Task) -> Group:
    """Tasks of one group can go to the same offers."""
    return (task.capability, task.device, task.node, tuple(sorted(task.labels.items())))


Taken = Literal["taken", "not_now", "full"]  # "not_now": this one must wait; "full": all of its group must


class Queue:
    """Waiting tasks: highest priority first, then oldest (ids sort by age)."""

    def __init__(self) -> None:
        self._groups: dict[Group, list[tuple[int, str]]] = {}
        self._members: dict[str, Group] = {}
        self._gone: Counter[Group] = Counter()  # entries of tasks that are queued no longer

    def __len__(self) -> int:
        return len(self._members)

    def put(self, task: Task) -> None:
        """Queue it, if it is not queued."""
        if task.id not in self._members:
            group = group_of(task)
            if self._gone[group]:  # one of those entries may be its own
                self._sweep(group)
            self._members[task.id] = group
            heapq.heappush(self._groups.setdefault(group, []), (-task.priority, task.id))

    def drop(self, task_id: str) -> None:
        """It is queued no longer."""
        group = self._members.pop(task_id, None)
        if group is not None:
            self._gone[group] += 1
            if self._gone[group] > len(self._groups[group]) // 2:
                self._sweep(group)

    def serve(self, take: Callable[[str], Taken]) -> None:
        """Offer each group's tasks to `take` in order, until it says that nobody has room for this group.

        Groups are served by their best task, so that a high priority in one is not kept back by another.
        """
        for group in sorted(self._groups, key=lambda g: self._groups[g][:1]):
            self._serve_group(group, take)

    def _serve_group(self, group: Group, take: Callable[[str], Taken]) -> None:
        heap = self._groups.get(group, [])
        kept: list[tuple[int, str]] = []
        offered: set[str] = set()
        answer: Taken = "not_now"
        try:
            while heap and answer != "full":
                entry = heapq.heappop(heap)
                if self._members.pop(entry[1], None) is None:
                    self._gone[group] -= 1
                    continue
                kept.append(entry)  # while it is offered it is not queued, so `take` may drop it, or put it back
                if entry[1] in offered:
                    continue
                offered.add(entry[1])
                answer = take(entry[1])
                if answer == "taken":
                    kept.pop()
        finally:  # whatever `take` raises, nobody is forgotten
            for entry in kept:
                if entry[1] not in self._members:
                    self._members[entry[1]] = group
                    heapq.heappush(self._groups.setdefault(group, []), entry)
            self._tidy(group)

    def _sweep(self, group: Group) -> None:
        heap = self._groups[group]
        heap[:] = [entry for entry in heap if entry[1] in self._members]
        heapq.heapify(heap)
        self._gone.pop(group, None)
        self._tidy(group)

    def _tidy(self, group: Group) -> None:
        if not self._groups.get(group, True):
            del self._groups[group]
            self._gone.pop(group, None)
