"""What goes through a log, an error or a traceback has no secrets in it, whoever wrote it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgepanda.cli import app
from edgepanda.errors import EdgePandaError

PASSWORD = "-".join(["correct", "horse", "battery"])


def test_a_daemons_log_tells_no_secret() -> None:
    """Neither ours nor a library's, in a message, an argument or a traceback."""
    key = base64.b64encode(os.urandom(32)).decode()
    program = (
        "import logging; from edgepanda.cli.common import Settings; from edgepanda.cli.process import daemon_logging\n"
        "daemon_logging(Settings(None, False, None, True))\n"
        f"logging.getLogger('amqtt').warning('login of %s', {{'user': 'me', 'password': '{PASSWORD}'}})\n"
        f"try: raise OSError('no way to mqtt://me:{PASSWORD}@broker.lan')\n"
        f"except OSError: logging.getLogger('edgepanda').exception('key {key}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert PASSWORD not in done.stderr
    assert key not in done.stderr
    assert "login of {'user': 'me', 'password': '***'}" in done.stderr
    assert "OSError: no way to mqtt://me:***@broker.lan" in done.stderr


@pytest.mark.parametrize("words", [["version"], ["version", "-v"], ["version", "--json"]])
def test_neither_does_an_error_of_the_command(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError(f"password={PASSWORD}")

    monkeypatch.setattr(app.LazyGroup, "main", fail)
    assert app.run(words) == 1
    out, err = capsys.readouterr()
    assert PASSWORD not in out + err
    assert "password=***" in out + err
    assert ("Traceback" in err) == ("-v" in words)


def test_nor_its_details(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        details = {"password": PASSWORD, "urls": [f"mqtt://me:{PASSWORD}@x"]}
        raise EdgePandaError("no", code="usage", where="here", details=details)

    monkeypatch.setattr(app.LazyGroup, "main", fail)
    app.run(["version", "--json"])
    assert json.loads(capsys.readouterr().out)["error"]["details"] == {"password": "***", "urls": ["mqtt://me:***@x"]}


def test_a_private_key_where_a_public_one_belongs_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = base64.b64encode(os.urandom(32)).decode()
    (tmp_path / "edgepanda.toml").write_text(f'[site]\nkey = "{key}"\n')
    app.run(["config", "check", "--config", str(tmp_path / "edgepanda.toml")])
    out, err = capsys.readouterr()
    assert key not in out + err
    assert "site.key" in err
