"""All checks at once: what hangs, what fails, what says too little, and what is secret."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from edgepanda.doctor import configuration, examine
from edgepanda.doctor.finding import Finding, fault, of_error
from edgepanda.doctor.patient import Patient, tool
from edgepanda.doctor.report import gather
from edgepanda.doctor.secrets import known_secrets
from edgepanda.errors import EdgePandaError


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "edgepanda.toml"
    path.write_text('[devices.pan]\ndriver = "servo"\ntoken = "Plain-Word-77"\n')
    return str(path)


async def hang(_patient: Patient) -> list[Finding]:
    await asyncio.Event().wait()
    return []


async def fail(_patient: Patient) -> list[Finding]:
    raise ZeroDivisionError("with Plain-Word-77")


async def little(_patient: Patient) -> list[Finding]:
    return [of_error(EdgePandaError("Plain-Word-77", code="of_a_newer_version", where=""))]


async def fine(_patient: Patient) -> list[Finding]:
    return [fault(code="x", where="there", found="found", cure="do")]


async def test_one_check_does_not_spoil_the_others(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "CHECKS", {"a": hang, "b": fail, "c": little, "d": fine})
    waiting: list[set[str]] = []
    found = await examine.examine(config, within=0.2, progress=lambda areas: waiting.append(set(areas)))
    by_area = {each.area: each for each in found.findings}
    assert list(by_area) == ["configuration", "a", "b", "c", "d"]
    assert (by_area["a"].level, by_area["a"].code) == ("warning", "doctor_late")
    assert (by_area["b"].level, by_area["b"].code) == ("warning", "doctor_failed")
    assert by_area["b"].found == "the check itself failed: ZeroDivisionError: with ***"
    assert (by_area["c"].where, by_area["c"].found) == ("c", "***")
    assert by_area["c"].cure == "`edgepanda explain of_a_newer_version`"
    assert by_area["d"].level == "fault"
    assert (waiting[0], waiting[-1]) == ({"a", "b", "c", "d"}, set())


async def test_a_disk_that_hangs_holds_nobody_up(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the configuration is, nor where the keys are; and no report is made without knowing the keys."""
    never = threading.Event()
    monkeypatch.setattr(examine, "CHECKS", {"d": fine})
    monkeypatch.setattr(examine, "MANNERS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(configuration, "read", lambda _given: never.wait())
        found = await examine.examine(config, within=0.1)
        assert [each.code for each in found.findings] == ["doctor_late", "x"]
    monkeypatch.setattr(examine, "known_secrets", lambda *_: never.wait())
    found = await examine.examine(config, within=5.0)
    assert found.known is None
    with pytest.raises(EdgePandaError, match="could not be taken out"):
        await gather(found, {}, within=1.0)
    never.set()


async def test_a_program_that_hangs_is_killed_and_one_that_is_missing_is_no_error() -> None:
    assert await tool("sleep", "60", within=0.05) is None
    assert await tool("no-such-program", within=1.0) is None
    assert await tool("false", within=5.0) is None
    assert await tool("echo", "here", within=5.0) == "here\n"


def test_secrets_of_a_text_that_is_no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPANDA_KEY", str(tmp_path / "none"))
    text = '[[[\npassword = "one-two"\nurl = "mqtt://me:thr%40ee@x"\npin = 7\ntokens = 3\nsecret = [1234, "five"]\n'
    assert known_secrets(None, text) == {"one-two", "thr%40ee", "thr@ee", "1234", "five"}
    assert known_secrets(None, "") == set()
