"""The wheel: what is in it, and that it works outside the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from edgepanda import __version__

ROOT = Path(__file__).parents[2]
FOLDERS = {"edgepanda": "edgepanda", "drivers": "edgepanda/drivers", "services": "edgepanda/services"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built without a network, of a copy: a build leaves files behind and picks up old ones."""
    source, target = tmp_path_factory.mktemp("source") / "tree", tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "tests"))
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    build = [sys.executable, "-m", "pip", "wheel", "-q", *offline, "-w", target, source]
    subprocess.run(build, check=True, timeout=120)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    """The files in the wheel."""
    return zipfile.ZipFile(wheel).namelist()


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """The wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        return Parser().parsestr(archive.read(f"{_info()}/METADATA").decode())


def _info() -> str:
    return f"edgepanda-{__version__}.dist-info"


def test_nothing_but_edgepanda_at_the_top_of_site_packages(names: list[str]) -> None:
    assert {name.split("/")[0] for name in names} == {"edgepanda", _info()}


def test_every_module_of_the_tree_is_in_the_wheel_and_no_other(names: list[str]) -> None:
    """A package that `packages` in setup.cfg does not list would be missing without a word."""
    expected = {
        f"{package}/{path.relative_to(ROOT / folder)}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name for name in names if name.endswith(".py")} == expected


def test_types_and_licence_are_in_the_wheel(names: list[str]) -> None:
    assert "edgepanda/py.typed" in names
    assert [name for name in names if name.startswith(_info()) and name.endswith("/LICENSE")]


def test_metadata_names_what_is_needed(metadata: Message) -> None:
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert {"broker", "demo", "gpio", "test"} <= set(metadata.get_all("Provides-Extra", []))
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {line.split(">")[0].split("<")[0].strip() for line in needed} >= {"click", "msgspec", "paho-mqtt", "tinydb"}


def test_every_module_imports_from_the_wheel_outside_the_tree(wheel: Path, names: list[str], tmp_path: Path) -> None:
    """All but the command's own start, which would run it; the environment lends only what the package depends on."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.endswith(".py") and not name.endswith("__main__.py")
    )
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[2:]:\n"
        "    module = importlib.import_module(name)\n"
        "    assert module.__file__.startswith(sys.argv[1]), (name, module.__file__)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, site, *modules],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert {"edgepanda.drivers", "edgepanda.services"} <= set(modules)
