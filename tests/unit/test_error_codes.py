"""Every code that the program raises is explained, nothing else is, and the page says the same."""

from __future__ import annotations

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepanda.cli import main
from edgepanda.error_causes import CAUSES
from edgepanda.error_codes import CODES, as_markdown
from edgepanda.errors import EdgePandaError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/errors.md"


_PLACES = {
    "storage_error": 0,
    "_add": 0,
    "NeverBegan": 1,
    "Problem": 0,
    "Verdict": 1,
    "failed": 0,
}  # calls that take a code, and as which argument
_CONFIG = re.compile(r"config_(syntax|type|value|key_\w+)")
_CHOICES = {"contract.py": "Code", "attempt.py": "Why"}  # `Literal` types of codes


def raised() -> set[str]:
    """Codes in the source: `code=...`, `code = ...`, arguments of `_PLACES` (also by the name of a constant), values of
    a table `_CODES`, `Literal` types of `_CHOICES`, and words of the configuration's problems.
    """
    found: set[str] = set()
    for folder in ("edgepanda", "drivers", "services"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name not in ("error_codes.py", "error_causes.py"):
                tree = ast.parse(path.read_text())
                constants, choice = _constants(tree), _CHOICES.get(path.name, "")
                found.update(text for node in ast.walk(tree) for text in _codes(node, constants, choice))
    return found - {""}


def _constants(tree: ast.Module) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }


def _codes(node: ast.AST, constants: dict[str, str], choice: str) -> Iterator[str]:
    match node:
        case ast.keyword(arg="code", value=value) | ast.Assign(targets=[ast.Name(id="code")], value=value):
            yield from _texts(value)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if len(args) > _PLACES.get(
            name, 99
        ):
            argument = args[_PLACES[name]]
            yield from [constants.get(argument.id, "")] if isinstance(argument, ast.Name) else _texts(argument)
        case ast.Assign(targets=[ast.Name(id="_CODES")], value=ast.Dict(values=values)):
            yield from (text for each in values for text in _texts(each))
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(slice=ast.Tuple(elts=texts))):
            yield from (text for each in texts if name == choice for text in _texts(each))
        case ast.Constant(value=str(text)) if _CONFIG.fullmatch(text):
            yield text


def _texts(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, default]):
            yield from _texts(default)
        case ast.BoolOp(values=values):
            yield from (text for each in values for text in _texts(each))
        case ast.Constant(value=str(text)):
            yield text


def test_what_is_raised_is_explained_and_nothing_else() -> None:
    assert raised() == set(CODES)


def test_each_says_what_happened_and_what_to_do() -> None:
    for name, entry in CODES.items():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", name)
        for sentence in (entry.meaning, entry.cure):
            assert sentence.endswith("."), name
            assert "|" not in sentence


def test_each_says_what_usually_brings_it_about() -> None:
    assert set(CAUSES) == set(CODES), "edgepanda/error_causes.py has the causes of each code of error_codes.py"
    for name, causes in CAUSES.items():
        assert causes, name
        for cause in causes:
            assert cause, name
            assert not set(cause) & set("|;\n"), name
            assert not cause.endswith("."), name


def test_an_error_without_a_cure_of_its_own_has_the_usual_one() -> None:
    assert EdgePandaError("no", code="invalid_name", where="x").cure == "use 1 to 32 of a-z, 0-9 and '-'"
    assert EdgePandaError("no", code="invalid_name", where="x", cure="take another").cure == "take another"
    assert EdgePandaError("no", code="of_a_newer_version", where="x").cure == ""


def test_an_error_must_name_its_place() -> None:
    with pytest.raises(TypeError, match="where"):
        EdgePandaError("no")  # type: ignore[call-arg]


def test_the_page_is_made_from_the_table() -> None:
    if os.environ.get("EDGEPANDA_WRITE_DOCS"):
        PAGE.write_text(as_markdown())
    assert PAGE.read_text() == as_markdown()


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "[port_in_use]"]) == 0
    told = capsys.readouterr().out
    entry = CODES["port_in_use"]
    assert [text for text in (entry.meaning, entry.cure, *entry.causes) if text not in told] == []
    assert main(["explain", "Port-In-Use", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"code": "port_in_use", **json.loads(json.dumps(entry._asdict()))}
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in CODES if f" {name} " not in listed] == []


def test_explain_knows_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "port_inuse"]) == 2
    assert "did you mean 'port_in_use'?" in capsys.readouterr().err
    assert main(["explain", "the_key"]) == 2
    assert "did you mean 'operator_key_missing' or 'site_key_missing' or" in capsys.readouterr().err
    assert main(["explain", "zzz"]) == 2
    assert "`edgepanda explain` lists all [usage]" in capsys.readouterr().err
