"""The queue of waiting tasks: order, groups, and that nobody is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepanda.coordinator.queue import Queue, Taken, group_of
from edgepanda.model.task import Task


def task(number: int, priority: int = 0, capability: str = "a.b") -> Task:
    return Task(id=f"task-{number:04}", capability=capability, priority=priority)


def served(queue: Queue, room: int = 1_000) -> list[str]:
    taken: list[str] = []

    def take(task_id: str) -> Taken:
        if len(taken) == room:
            return "full"
        taken.append(task_id)
        return "taken"

    queue.serve(take)
    return taken


def test_priority_goes_before_age_and_the_best_group_first() -> None:
    queue = Queue()
    for waiting in (task(2), task(1), task(3, priority=5), task(0, priority=9, capability="c.d")):
        queue.put(waiting)
    assert served(queue) == ["task-0000", "task-0003", "task-0001", "task-0002"]
    assert len(queue) == 0


def test_full_ends_its_group_and_not_now_only_its_task() -> None:
    queue = Queue()
    for number in range(3):
        queue.put(task(number))
    queue.put(task(9, capability="c.d"))
    asked: list[str] = []

    def take(task_id: str) -> Taken:
        asked.append(task_id)
        return "not_now" if task_id == "task-0000" else "full" if task_id == "task-0001" else "taken"

    queue.serve(take)
    assert asked == ["task-0000", "task-0001", "task-0009"]
    assert served(queue) == ["task-0000", "task-0001", "task-0002"]


def test_what_take_raises_forgets_nobody() -> None:
    queue = Queue()
    for number in range(3):
        queue.put(task(number))

    def take(task_id: str) -> Taken:
        if task_id == "task-0001":
            raise RuntimeError
        return "not_now"

    with pytest.raises(RuntimeError):
        queue.serve(take)
    assert served(queue) == ["task-0000", "task-0001", "task-0002"]


def test_a_task_may_be_dropped_and_put_again_while_it_is_offered() -> None:
    queue = Queue()
    queue.put(task(1))

    def take(_: str) -> Taken:
        queue.drop("task-0001")
        queue.put(task(1))
        return "taken"

    queue.serve(take)
    assert (len(queue), served(queue)) == (1, ["task-0001"])


def test_dropped_tasks_leave_nothing_behind_a_task_that_waits() -> None:
    queue = Queue()
    queue.put(task(0))
    for number in range(1, 1_000):
        queue.put(task(number))
        queue.drop(f"task-{number:04}")
    assert len(queue._groups[group_of(task(0))]) < 4


@given(st.lists(st.tuples(st.sampled_from(["put", "drop", "serve"]), st.integers(0, 9)), max_size=60))
def test_the_queue_holds_what_was_put_and_neither_dropped_nor_taken(steps: list[tuple[str, int]]) -> None:
    queue, expected = Queue(), set()
    for step, number in steps:
        name = f"task-{number:04}"
        if step == "put":
            queue.put(task(number, priority=number % 3, capability=("a.b", "c.d")[number % 2]))
            expected.add(name)
        elif step == "drop":
            queue.drop(name)
            expected.discard(name)
        else:
            expected -= set(served(queue, room=number))
        assert len(queue) == len(expected)
    assert sorted(served(queue)) == sorted(expected)
