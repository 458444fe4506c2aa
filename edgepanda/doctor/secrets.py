"""The secrets that this machine's configuration and keys hold: what must not be in a report, wherever it stands."""

from __future__ import annotations

import base64
import binascii
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from edgepanda.model.config import Loaded
from edgepanda.redact import is_secret_name


def known_secrets(loaded: Loaded | None, text: str) -> set[str]:
    """All that can be read of them, in each form that they may have in a text. `text`: of the configuration's file."""
    from edgepanda.client import operator_key_path

    found = {*_in_text(text), *_key_forms(operator_key_path())}
    if loaded is not None:
        broker = loaded.config.broker
        found |= {os.environ.get(broker.password_env, "")} if broker.password_env else set()
        for name in (broker.password_file, str(loaded.broker_secret)):
            found |= set(_lines(loaded.path.parent / name)) if name else set()
        for path in _files(loaded.keys_dir):
            found |= {*_key_forms(path), *_lines(path)}
    return found - {""}


def _in_text(text: str) -> Iterator[str]:
    try:
        yield from _in_value(tomllib.loads(text), "")
    except (tomllib.TOMLDecodeError, RecursionError):
        for line in text.splitlines():  # what is no TOML is taken line by line
            try:
                yield from _in_value(tomllib.loads(line), "")
            except (tomllib.TOMLDecodeError, RecursionError):
                continue


def _in_value(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _in_value(item, key if is_secret_name(key) else name)
    elif isinstance(value, list):
        for item in value:
            yield from _in_value(item, key)
    elif isinstance(value, str):
        if is_secret_name(key):
            yield from (value, *value.splitlines())
        yield from _in_url(value)
    elif is_secret_name(key) and not isinstance(value, bool):
        yield str(value)


def _in_url(text: str) -> Iterator[str]:
    try:
        password = urlsplit(text).password if "://" in text else None
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))


def _files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_file()]
    except OSError:
        return []


def _lines(path: Path) -> list[str]:
    """A file's lines, stripped: each line of a key in PEM is a secret."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if not line.startswith("-----")]


def _key_forms(path: Path) -> Iterator[str]:
    """A private key as it stands in its file, and as a program might print it."""
    for line in _lines(path):
        try:
            seed = base64.b64decode(line, validate=True)
        except (ValueError, binascii.Error):
            continue
        if len(seed) == 32:
            for coded in (base64.b64encode(seed), base64.urlsafe_b64encode(seed)):
                yield from (coded.decode(), coded.decode().rstrip("="))
            yield from (seed.hex(), seed.hex().upper(), repr(seed)[2:-1])
