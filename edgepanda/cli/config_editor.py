"""A person's editor on a copy of the configuration, until the copy is right or the person gives up."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from edgepanda.cli.out import hint
from edgepanda.model.config import ConfigError, read_text
from edgepanda.model.config_check import check_text

_EDITORS = ("editor", "nano", "vi")


@contextmanager
def edited(path: Path, text: str) -> Iterator[str]:
    """The text as the person left it, free of errors. The copy is removed, unless something fails: then it is named.

    Raises `ConfigError`: `config_invalid` if the person gives up or nobody is there to be asked; `config_editor`.
    """
    folder = Path(tempfile.mkdtemp(prefix="edgepanda-"))  # only this user may look into it
    copy = folder / path.name
    try:
        copy.write_bytes(text.encode())
        yield _until_right(path, copy, text)
    except BaseException:
        if copy.exists() and copy.read_bytes() != text.encode():
            hint(f"{path} is as it was; what you wrote is in {copy}")
            raise
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _until_right(path: Path, copy: Path, before: str) -> str:
    editor = _editor()
    while True:
        _run([*editor, str(copy)])
        text = read_text(copy)
        _, problems = check_text(text, path)
        if not problems or text == before:
            return text
        if not sys.stdin.isatty():
            raise ConfigError.of(problems)
        for problem in problems:
            hint(f"error: {problem}")
        if not click.confirm("Edit it again?", default=True, err=True):
            raise ConfigError.of(problems)


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if named:
        return shlex.split(named)
    for name in _EDITORS:
        if found := shutil.which(name):
            return [found]
    raise ConfigError(
        "there is no editor", code="config_editor", where="EDITOR", cure="name one: EDITOR=nano edgepanda config edit"
    )


def _run(words: list[str]) -> None:
    try:
        code = subprocess.run(words, check=False).returncode
    except OSError as error:
        raise ConfigError(
            f"cannot start the editor: {error.strerror}",
            code="config_editor",
            where=words[0],
            cure="name another: EDITOR=nano edgepanda config edit",
        ) from error
    if code:
        raise ConfigError(
            f"the editor ended with exit code {code}",
            code="config_editor",
            where=words[0],
            cure="nothing was taken over; do it again",
        )
