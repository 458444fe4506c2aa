"""Somebody who does what a document says, word for word, on machines of `tests.rig.machine`."""

from __future__ import annotations

import time
from pathlib import Path

from tests.rig.guide import Step, copied, cron_command, line_pattern, matches
from tests.rig.machine import Machine, Terminal
from tests.rig.running import Running

READY = "ready: ..."
LOOK_EVERY = 0.5  # seconds


class Reader:
    """Has a terminal at each machine, and one for each command that goes on."""

    def __init__(self, machines: dict[str, Machine]) -> None:
        self._machines = machines
        self._terminals: dict[str, Terminal] = {}
        self._going: dict[tuple[str, str], Running] = {}  # by machine and command
        self._printed: list[str] = []  # by any machine, on any terminal that is done with its command
        self._at_boot: dict[str, list[Step]] = {}

    def take(self, step: Step) -> None:
        """Do one step. Raises AssertionError with the place in the document and what was printed."""
        machine = self._machines[step.machine]
        if step.kind == "sh":
            self._type(step, machine)
        elif step.kind == "copied":
            text = copied(step.text, self._printed)
            assert text is not None, f"{step.where}: {step.text}\nis nowhere in:\n" + "\n".join(self._printed)
            self._type(step._replace(text=text), machine)
        elif step.kind == "stays":
            self._leave_going(step, machine)
        elif step.kind == "soon":
            self._try_until_it_works(step, machine)
        elif step.kind == "cron":
            self._as_cron(step, machine)
        elif step.kind == "python":
            self._run(step, machine, ["python3", "-c", step.text], machine.clone)
        elif step.kind == "ctrl-c":
            self._end_all(step.machine)
        elif step.kind == "power-cut":
            self._cut_power(machine)

    def leave(self) -> None:
        """Ctrl-C for all that goes on; each must end well."""
        for name in self._machines:
            self._end_all(name)

    def _end_all(self, machine: str) -> None:
        for name, text in [key for key in reversed(self._going) if key[0] == machine]:
            running = self._going.pop((name, text))
            code = self._machines[name].interrupt(running)
            assert code == 0, f"{text} ended with {code} after Ctrl-C:\n{running.text}"

    def _type(self, step: Step, machine: Machine) -> None:
        if step.machine not in self._terminals:
            self._terminals[step.machine] = machine.terminal()
        code, text = self._terminals[step.machine].type(step.text)
        self._printed += text.splitlines()
        assert code == step.code, f"{step.where}: {step.text}\nended with {code}, not {step.code}:\n{text}"
        if step.shown is not None:
            assert matches(step.shown, text), f"{step.where}: {step.text}\nshows:\n{text}\n-- and not:\n{step.shown}"

    def _leave_going(self, step: Step, machine: Machine) -> None:
        before = self._going.pop((step.machine, step.text), None)
        if before is not None:
            assert machine.interrupt(before) == 0, before.text
        running = machine.start(["bash", "--norc", "--noprofile", "-c", step.text])
        self._going[step.machine, step.text] = running
        seen = 0
        for line in (step.shown or READY).splitlines():
            if line.strip() != "...":
                found = running.wait_for(line_pattern(line), after=seen, within=machine.patience)
                seen = running.lines.index(found, seen) + 1

    def _try_until_it_works(self, step: Step, machine: Machine) -> None:
        terminal, until = machine.terminal(), time.monotonic() + machine.patience
        while (done := terminal.type(step.text)).code != step.code:
            assert time.monotonic() < until, f"{step.where}: {step.text}\ngoes on failing:\n{done.text}"
            time.sleep(LOOK_EVERY)

    def _as_cron(self, step: Step, machine: Machine) -> None:
        if step.text.startswith("@reboot"):
            self._at_boot.setdefault(machine.name, []).append(step)
            return
        for _ in range(2):
            self._run(step, machine, _cron_words(step, machine), machine.home)

    def _run(self, step: Step, machine: Machine, words: list[str], where: Path) -> None:
        running = machine.start(words, where=where)
        code = running.process.wait(machine.patience)
        running.end()
        assert code == step.code, f"{step.where}: {step.text}\nended with {code}:\n{running.text}"

    def _cut_power(self, machine: Machine) -> None:
        machine.cut_power()
        self._terminals.pop(machine.name, None)
        self._going = {key: running for key, running in self._going.items() if key[0] != machine.name}
        machine.boot()
        for step in self._at_boot.get(machine.name, []):
            machine.start(_cron_words(step, machine), where=machine.home)  # it goes on until the machine is off


def _cron_words(step: Step, machine: Machine) -> list[str]:
    """With cron's environment: its own PATH, to be run in the home folder."""
    clean = [
        "env",
        "-i",
        f"HOME={machine.inside(machine.home)}",
        "LOGNAME=panda",
        "PATH=/usr/bin:/bin",
        "SHELL=/bin/sh",
    ]
    return [*clean, "sh", "-c", cron_command(step.text)]
