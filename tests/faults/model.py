"""What a run of the harness knows, and what must hold of it at the end. Pure: no clock, no files.

It takes down what clients submitted and were answered, and what drivers wrote down themselves when they began; at the
end it gets what the ledger says, and names every broken promise (docs/protocol.md, 'States').
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from dataclasses import dataclass

ENDED = frozenset({"succeeded", "failed", "timed_out", "cancelled", "expired"})
UNCERTAIN = "uncertain"


@dataclass(frozen=True)
class Final:
    """A task as the ledger has it at the end. `shown`: the attempts its evidence names; `replay`: `unsafe` also for
    what a client took for safe, if a node had not said yet that it is.
    """

    state: str
    attempt: int = 0
    code: str = ""
    has_result: bool = False
    shown: tuple[int, ...] = ()
    replay: str = ""


class Model:
    """One run."""

    def __init__(self) -> None:
        self.submitted: dict[str, str] = {}  # replay by task
        self.answered: set[str] = set()
        self.refused: dict[str, str] = {}  # code by task
        self.begun: collections.Counter[tuple[str, int]] = collections.Counter()
        self.final: dict[str, Final] = {}
        self.verified: list[str] | None = None  # problems of the chain; None: never asked
        self.let_out: set[str] = set()  # peers whose removal was answered
        self.peers: set[str] = set()  # those that are let in at the end
        self.released = False  # all stops were released, and that was answered
        self.standing: tuple[str, ...] = ()  # stops in force at the end
        self.unanswered = 0  # requests that nobody answered in all the calm

    def submit(self, task: str, replay: str) -> None:
        """A client asks for it, perhaps again."""
        self.submitted[task] = replay

    def answer(self, task: str) -> None:
        """The coordinator says that it has it."""
        self.answered.add(task)

    def refuse(self, task: str, code: str) -> None:
        """The coordinator says that it will not take it."""
        self.refused[task] = code

    def record(self, lines: Iterable[str]) -> None:
        """What the drivers wrote down: task and attempt in each line."""
        for line in lines:
            words = line.split()
            self.begun[words[0], int(words[1])] += 1

    def end(self, task: str, final: Final) -> None:
        """What the ledger says of it."""
        self.final[task] = final

    def problems(self) -> list[str]:
        """Every broken promise, one line each."""
        found = [line for task in self.submitted for line in self._of(task)]
        strangers = {task for task, _ in self.begun} - set(self.submitted)
        found += [f"{task}: begun, though nobody asked for it" for task in sorted(strangers)]
        if self.verified is None:
            found.append("the chain was never verified")
        else:
            found += [f"the chain: {problem}" for problem in self.verified]
        found += [f"the peer {name} is back after it was removed" for name in sorted(self.let_out & self.peers)]
        if self.unanswered:
            found.append(f"{self.unanswered} requests were never answered")
        if self.released:
            found += [f"the stop {name} stands after all were released" for name in self.standing]
        return found

    def _of(self, task: str) -> Iterable[str]:
        replay, final = self.submitted[task], self.final.get(task)
        begun = {attempt: count for (name, attempt), count in self.begun.items() if name == task}
        times = sum(begun.values())
        if task in self.refused:  # nobody submits here what may be refused
            yield f"{task}: refused ({self.refused[task]}){', and begun' if times else ''}"
            return
        if replay == "unsafe" and times > 1:
            yield f"{task}: unsafe, and begun {times} times (attempts {sorted(begun)})"
        for attempt, count in begun.items():
            if count > 1:
                yield f"{task}: attempt {attempt} begun {count} times"
        if final is None:
            if task in self.answered:
                yield f"{task}: lost; the submit was answered, and the ledger does not know it"
            elif times:
                yield f"{task}: begun, and the ledger does not know it"
            return
        yield from _judged(task, replay, final, begun)

    def counts(self) -> dict[str, int]:
        """For the summary: tasks by their state, begins, begins of what had begun before."""
        states = collections.Counter(final.state for final in self.final.values())
        again = sum(self.begun.values()) - len({task for task, _ in self.begun})
        return {
            "submitted": len(self.submitted),
            **dict(sorted(states.items())),
            "begun": self.begun.total(),
            "again": again,
        }


def _judged(task: str, replay: str, final: Final, begun: dict[int, int]) -> Iterable[str]:
    replay = "unsafe" if "unsafe" in (replay, final.replay) else replay
    if final.state not in ENDED and final.state != UNCERTAIN:
        yield f"{task}: stuck in {final.state} ({replay}, attempt {final.attempt})"
    if final.state == "succeeded" and not begun:
        yield f"{task}: a success of what never began"
    if final.state == "succeeded" and any(attempt not in begun for attempt in final.shown):
        yield f"{task}: its evidence is of attempts {final.shown}, begun were {sorted(begun)}"
    if final.state == "succeeded" and any(attempt != final.attempt for attempt in final.shown):
        yield f"{task}: succeeded as attempt {final.attempt} by the report of attempt {final.shown}"
    if replay == "safe" and final.state == UNCERTAIN:
        yield f"{task}: safe, and uncertain"
    if replay == "unsafe" and begun and final.state in ("expired", "cancelled") and not final.has_result:
        yield f"{task}: {final.state} as if it had never begun, and it had"
    if any(attempt > final.attempt for attempt in begun):
        yield f"{task}: begun as attempt {max(begun)}, the ledger knows {final.attempt}"
