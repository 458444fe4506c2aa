"""Finds the one driver class: a name in this package, or the path of a Python file."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

from edgepanda.drivers.base import Driver
from edgepanda.drivers.contract import DriverError


def load(driver: str) -> type[Driver]:
    """The driver class of `servo` (built in) or `./my_driver.py` (a file with one `Driver` subclass).

    Raises:
        DriverError: `unavailable`: not found, not importable, or not exactly one class.
    """
    module = _from_file(Path(driver)) if driver.endswith(".py") else _built_in(driver)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Driver) and value.__module__ == module.__name__
    ]
    if len(found) != 1 or not found[0].name:
        raise DriverError(
            f"{len(found)} driver classes found",
            code="unavailable",
            where=driver,
            cure="a driver is one subclass of edgepanda.drivers.base.Driver with a `name`",
        )
    return found[0]


def _built_in(name: str) -> ModuleType:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise DriverError(f"{name!r} is no name of a driver", code="unavailable", where=name)
    try:
        return importlib.import_module(f"edgepanda.drivers.{name}")
    except ImportError as error:
        raise DriverError(
            f"the driver cannot be imported: {error}",
            code="unavailable",
            where=name,
            cure="a built-in driver goes by its name, one of your own by the path of its .py file",
        ) from error


def _from_file(path: Path) -> ModuleType:
    name = f"edgepanda_driver_{re.sub(r'[^a-z0-9]', '_', path.stem.lower())}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise DriverError("no such file", code="unavailable", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise DriverError(
            f"the file cannot be loaded: {type(error).__name__}: {error}", code="unavailable", where=str(path)
        ) from error
    return module
