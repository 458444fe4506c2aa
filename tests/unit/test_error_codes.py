"""Every code that the program raises is explained, nothing else is, and the page says the same."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepanda.cli import main
from edgepanda.error_codes import CODES, as_markdown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/errors.md"


def raised() -> set[str]:
    """Codes in the source: `code=...`, `code = ...`, the first argument of `storage_error`, and `config_...` words."""
    found: set[str] = set()
    for folder in ("edgepanda", "drivers", "services"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name != "error_codes.py":
                found.update(text for node in ast.walk(ast.parse(path.read_text())) for text in _codes(node))
    return found - {""}


def _codes(node: ast.AST) -> Iterator[str]:
    given = isinstance(node, ast.keyword) and node.arg == "code"
    assigned = isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "code" for t in node.targets)
    if given or assigned:
        yield from _texts(node.value)  # type: ignore[attr-defined]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "storage_error":
        yield from _texts(node.args[0])
    elif isinstance(node, ast.Constant) and re.fullmatch(r"config_(syntax|type|value|key_\w+)", str(node.value)):
        yield str(node.value)


def _texts(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value


def test_what_is_raised_is_explained_and_nothing_else() -> None:
    assert raised() == set(CODES)


def test_each_says_what_happened_and_what_to_do() -> None:
    for name, entry in CODES.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        for sentence in entry:
            assert sentence.endswith("."), name
            assert "|" not in sentence


def test_the_page_is_made_from_the_table() -> None:
    if os.environ.get("EDGEPANDA_WRITE_DOCS"):
        PAGE.write_text(as_markdown())
    assert PAGE.read_text() == as_markdown()


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "[port_in_use]"]) == 0
    assert CODES["port_in_use"].cure in capsys.readouterr().out
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in CODES if f" {name} " not in listed] == []


def test_explain_knows_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "port_inuse"]) == 2
    assert "did you mean 'port_in_use'?" in capsys.readouterr().err
