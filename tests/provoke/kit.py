"""Errors that are brought about on purpose: a registry from each code to what provokes it, and what each error owes to
the person who meets it: a stable code, the place, the next step, no traceback.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgepanda.cli import main
from edgepanda.cli.exits import USAGE, exit_code
from edgepanda.error_codes import CODES, usual_cure
from edgepanda.errors import EdgePandaError


class Words(list[str]):
    """A command line that ends with the error."""


@dataclass
class Here:
    """Where an error is provoked: an empty folder, which is the present one and the home."""

    folder: Path
    patch: pytest.MonkeyPatch
    _capture: pytest.CaptureFixture[str]
    _log: pytest.LogCaptureFixture

    def config(self, text: str) -> str:
        """The path of a configuration with this text."""
        path = self.folder / "edgepanda.toml"
        path.write_text(text)
        return str(path)

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output, errors of a command within this process."""
        self._capture.readouterr()
        code = main(list(words))
        return code, *self._capture.readouterr()

    def logged(self) -> str:
        """What was logged."""
        return self._log.text


Outcome = EdgePandaError | Words | str | None
Provocation = Callable[[Here], Outcome | Awaitable[Outcome]]
PROVOKED: dict[str, Provocation] = {}


def provokes(code: str, *, registry: dict[str, Any] = PROVOKED) -> Callable[[Any], Any]:
    """Register what brings `code` about. It raises or returns the error, or gives the command that ends with it, or a
    text that tells of it (a log, a list of faults).
    """

    def register(function: Any) -> Any:
        assert code not in registry, code
        registry[code] = function
        return function

    return register


def check_provoked(code: str, here: Here) -> None:
    """Provoke it, and check what is told."""
    try:
        outcome = PROVOKED[code](here)
        if inspect.iscoroutine(outcome):
            outcome = asyncio.run(outcome)
    except EdgePandaError as error:
        outcome = error
    if isinstance(outcome, EdgePandaError):
        check_error(code, outcome)
    elif isinstance(outcome, Words):
        check_command(code, *here.run(*outcome))
        check_document(code, *here.run(*outcome, "--json"))
    else:
        assert isinstance(outcome, str), f"{code} was not provoked"
        check_text(code, outcome)


def check_error(code: str, error: EdgePandaError) -> None:
    """What is raised or travels."""
    assert error.code == code, error
    assert error.message
    assert error.where, error
    assert error.cure or not usual_cure(code), error
    assert "Traceback" not in str(error)
    assert EdgePandaError.from_dict(error.as_dict()).as_dict() == error.as_dict()
    assert json.dumps(error.as_dict())


def check_text(code: str, text: str) -> None:
    """A line among others: `message (where); cure [code]`, or a fault in a list."""
    (line, *_) = [line for line in text.splitlines() if f"[{code}]" in line] or [""]
    assert line, f"[{code}] is not in {text!r}"
    assert usual_cure(code) in line or "; " in line, line
    assert "Traceback" not in text


def check_command(code: str, ended: int, out: str, err: str) -> None:
    """What a person sees: one line for each thing that is wrong."""
    assert "Traceback" not in out + err
    lines = [line for line in err.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line)]  # a process logs, too
    assert all(re.fullmatch(r"error: .+ \[[a-z_]+\]", line) for line in lines), err
    (line, *_) = [line for line in lines if line.endswith(f"[{code}]")] or [""]
    assert line, f"[{code}] is not in {err!r}"
    assert re.search(r"\(.+\).*; .+ \[", line) or re.search(r":\d+.*; .+ \[", line), line
    assert ended == (USAGE if code.startswith("config_") else exit_code(EdgePandaError("", code=code, where="")))


def check_document(code: str, ended: int, out: str, err: str) -> None:
    """The same for a program."""
    assert "error: " not in err
    error = json.loads(out.splitlines()[-1])["error"]
    problems = error.get("details", {}).get("problems", [])
    assert code in (error["code"], *(problem["code"] for problem in problems)), out
    assert error["message"]
    assert error["where"]
    assert error["cure"]
    assert ended == exit_code(EdgePandaError.from_dict(error))


def unprovoked(*registries: dict[str, Any]) -> set[str]:
    """Codes of the table that nothing brings about."""
    return set(CODES) - {code for registry in registries for code in registry}
