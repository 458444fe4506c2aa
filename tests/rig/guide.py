"""A document as steps that a test can take: its commands, machine by machine, and what it says that they show.

Blocks are read by the words after their fence:

- `sh`: commands, one after the other, in the machine's first terminal. `sh pi2`: on that machine (else `pi1`).
- `sh stays`: one command that goes on, in a terminal of its own. The same command again: first Ctrl-C for the former.
- `sh soon`: commands that are tried until they succeed, as somebody looks again who was told to wait.
- `sh copied`: a line that some machine has printed, as somebody copies it; `...` stands for what differs at each site.
- `sh install`: for the installer's own tests, which run it in containers.
- `sh exits=4`: its last command ends with this code (else all with 0).
- `text` right after `sh`: what its last command prints; `...` stands for anything. After `sh stays`: lines that come.
- `cron`: lines of a crontab; the command of each is run as cron runs it, twice; one of `@reboot` at the next boot.
- `python`: a program, run by the interpreter of the environment.

`<!-- after PAGE -->`: the page begins where that one ends. `<!-- power-cut pi1 -->`: the plug is pulled and
plugged in again. `<!-- ctrl-c pi1 -->`: all that goes on there is ended with Ctrl-C.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FIRST = "pi1"
_BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$|^<!-- ([a-z-]+) ([^\n]+?) -->$", re.MULTILINE | re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")
_KINDS = ("sh", "cron", "python")
_PROGRAM = re.compile(r"(?:\S*/)?edgepanda ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")


class Step(NamedTuple):
    """A command as it stands in the document, or a stage direction.

    `kind`: `sh`, `stays`, `soon`, `copied`, `install`, `cron`, `python`, `power-cut` or `ctrl-c`. `shown`: what it
    prints, as the document says. `where`: file and line.
    """

    kind: str
    text: str
    machine: str
    where: str
    code: int = 0
    shown: str | None = None


class Guide(NamedTuple):
    """A document's steps, the pages that it begins after, and blocks that nothing runs or compares."""

    path: Path
    steps: list[Step]
    after: list[str]
    idle: list[str]

    def commands(self) -> list[str]:
        """What a person types, in order; a comment is none."""
        return [step.text for step in self.steps if step.kind in ("sh", "stays", "soon", "copied")]


def read(path: Path) -> Guide:
    """The steps of a document. Raises ValueError for a block or a stage direction that is not known here."""
    return parse(path.read_text(), path)


def parse(text: str, path: Path) -> Guide:
    """The same for a text; the path only tells where. Pure."""
    guide = Guide(path, [], [], [])
    before = -1  # where the last block of commands ended
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        where = f"{path.name}:{line}"
        if found[3]:
            _direction(guide, found[3], found[4], where)
            continue
        kind, *words = found[1].split() or [""]
        if kind == "text" and before >= 0 and not text[before : found.start()].strip():
            guide.steps[-1] = guide.steps[-1]._replace(shown=found[2].rstrip("\n"))
        elif kind in _KINDS:
            guide.steps.extend(_steps(kind, words, found[2], path.name, line))
        elif kind == "text":
            guide.idle.append(found[2])
        else:
            raise ValueError(f"{where}: a block of '{found[1]}' is not run by anything")
        before = found.end() if kind == "sh" else -1
    return guide


def _direction(guide: Guide, what: str, whom: str, where: str) -> None:
    if what == "after":
        guide.after.append(whom)
    elif what in ("power-cut", "ctrl-c"):
        guide.steps.append(Step(what, "", whom, where))
    else:
        raise ValueError(f"{where}: nobody knows what to do for '{what}'")


def _steps(kind: str, words: list[str], text: str, name: str, line: int) -> list[Step]:
    code, machine = 0, FIRST
    for word in words:
        if word.startswith("exits="):
            code = int(word.removeprefix("exits="))
        elif word in ("stays", "soon", "copied", "install"):
            kind = word
        elif re.fullmatch(r"pi\d", word):
            machine = word
        else:
            raise ValueError(f"{name}:{line}: '{word}' is not known here")
    if kind == "python":
        return [Step(kind, text, machine, f"{name}:{line}")]
    steps = [Step(kind, command, machine, f"{name}:{line + at}") for at, command in split(text)]
    steps[-1] = steps[-1]._replace(code=code)
    return steps


def split(text: str) -> list[tuple[int, str]]:
    """The commands of a block with their lines (1 is the first): comments left out, here-documents and lines that end
    with a backslash kept together. Pure."""
    commands: list[tuple[int, str]] = []
    held: list[str] = []
    until = ""
    for at, line in enumerate(text.splitlines(), 1):
        if not held and (not line.strip() or line.startswith("#")):
            continue
        held.append(line)
        if until:
            until = "" if line == until else until
        elif opened := _HEREDOC.search(line):
            until = opened[1]
        if not until and not line.endswith("\\"):
            commands.append((at - len(held) + 1, "\n".join(held)))
            held = []
    if held:
        raise ValueError(f"this command has no end: {held[0]}")
    return commands


def cron_command(line: str) -> str:
    """What cron gives to the shell: without the time, with `\\%` as `%`. Pure."""
    fields = 1 if line.startswith("@") else 5
    return line.split(None, fields)[fields].replace(r"\%", "%")


def matches(shown: str, printed: str) -> bool:
    """Whether a text looks as a document shows it; `...` stands for anything, also for several lines. Pure."""
    pattern = ".*".join(re.escape(part.strip("\n")) for part in shown.split("..."))
    return re.fullmatch(pattern, printed.strip("\n"), re.DOTALL) is not None


def line_pattern(line: str) -> str:
    """A regular expression for one shown line. Pure."""
    return "^" + ".*".join(re.escape(part) for part in line.split("...")) + "$"


def until(guide: Guide, command: str) -> list[Step]:
    """The steps up to the first whose text holds the command. Pure."""
    (last, *_) = (at for at, step in enumerate(guide.steps) if command in step.text)
    return guide.steps[: last + 1]


def copied(text: str, printed: list[str]) -> str | None:
    """What somebody types who copies the newest printed line that looks like `text`, whatever the program is called
    there; None if nobody has printed one. Pure.
    """
    program, _, rest = text.partition(" ")
    for line in reversed(printed):
        _, _, words = line.strip().partition(" ")
        if re.search(line_pattern(rest), words):
            return f"{program} {words}"
    return None


def called(text: str) -> set[tuple[str, str]]:
    """Commands of EdgePanda in a text: the command and the word after it (or ''). Pure."""
    return {(found[1], found[2] or "") for found in _PROGRAM.finditer(text)}


def mentioned(text: str) -> set[tuple[str, str]]:
    """Commands of EdgePanda that the prose names in backquotes. Pure."""
    prose = _BLOCK.sub("", text)
    spans = re.findall(r"`([^`\n]+)`", prose)
    return {pair for span in spans for pair in called(span)}
