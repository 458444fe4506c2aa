"""Queued tasks, grouped by where they can go, so that a look costs the number of groups and not of tasks. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
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
        self._members: set[str] = set()

    def __len__(self) -> int:
        return len(self._members)

    def put(self, task: Task) -> None:
        """Queue it, if it is not queued."""
        if task.id not in self._members:
            self._members.add(task.id)
            heapq.heappush(self._groups.setdefault(group_of(task), []), (-task.priority, task.id))

    def drop(self, task_id: str) -> None:
        """It is queued no longer."""
        self._members.discard(task_id)

    def serve(self, take: Callable[[str], Taken]) -> None:
        """Offer each group's tasks to `take` in order, until it says that nobody has room for this group.

        Groups are served by their best task, so that a high priority in one is not kept back by another.
        """
        for group in sorted(self._groups, key=lambda g: self._groups[g][:1]):
            heap = self._groups[group]
            kept: list[tuple[int, str]] = []
            for entry in self._waiting(heap):
                answer = take(entry[1])
                if answer == "taken":
                    self._members.discard(entry[1])
                else:
                    kept.append(entry)
                if answer == "full":
                    break
            for entry in kept:
                heapq.heappush(heap, entry)
            if not heap:
                del self._groups[group]

    def _waiting(self, heap: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
        while heap:
            entry = heapq.heappop(heap)
            if entry[1] in self._members:
                yield entry
