"""The ways in: `install.sh` against a Python and an apt-get that only take notes, and pip's two kinds of install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgepanda import __version__

ROOT = Path(__file__).parents[2]
USAGE, UNAVAILABLE = 2, 69

# Stands in for Python: it makes environments that hold a copy of itself and notes what pip is asked for.
FAKE_PYTHON = """#!/bin/sh
case $* in
    '-c import sys; sys.exit('*) exit 0 ;;
    '-c import sys; print('*) echo 3 13 1 ;;
    '-m venv '*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo venv >>"$NOTES" ;;
    '-m pip install '*)
        echo "pip $*" >>"$NOTES"
        [ ! -e "$NOTES.fail" ] || exit 1
        printf '#!/bin/sh\\necho "edgepanda $*"\\n' >"${0%/*}/edgepanda" && chmod 755 "${0%/*}/edgepanda" ;;
esac
"""
TOOLS = [
    "bash",
    "awk",
    "cat",
    "chmod",
    "cksum",
    "cp",
    "dirname",
    "env",
    "flock",
    "grep",
    "head",
    "ls",
    "mkdir",
    "mv",
    "paste",
    "rm",
    "sh",
    "sort",
    "tr",
    "uname",
]


@dataclass
class Newcomer:
    """A clone, a machine of which only a few programs can be seen, and what the fake ones noted."""

    clone: Path
    programs: Path
    notes: Path

    def add(self, name: str, script: str) -> Path:
        """Puts a program on the machine."""
        path = self.programs / name
        path.write_text(script)
        path.chmod(0o755)
        return path

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `./install.sh` there."""
        return subprocess.run(
            [str(self.clone / "install.sh"), *arguments],
            env={"PATH": str(self.programs), "NOTES": str(self.notes)},
            cwd=self.programs,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def taken(self) -> list[str]:
        """What was noted since the last time."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        self.notes.unlink(missing_ok=True)
        return lines


@pytest.fixture
def bare(tmp_path: Path) -> Newcomer:
    """A machine without Python."""
    clone, programs = tmp_path / "a clone", tmp_path / "bin"
    (clone / "tests").mkdir(parents=True)
    programs.mkdir()
    for name in ("install.sh", "setup.cfg", "tests/run"):
        shutil.copy(ROOT / name, clone / name)
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    return Newcomer(clone, programs, tmp_path / "notes")


@pytest.fixture
def newcomer(bare: Newcomer) -> Newcomer:
    """A machine with Python."""
    bare.add("python3", FAKE_PYTHON)
    return bare


def test_help_and_wrong_usage_touch_nothing(newcomer: Newcomer) -> None:
    told = newcomer.install("--help")
    assert told.returncode == 0
    assert "demo" in told.stdout
    assert "Exit codes" in told.stdout
    parts = newcomer.install("test", "--help")
    assert (parts.returncode, parts.stderr) == (0, "")
    assert "faults" in parts.stdout
    for wrong in ([], ["dmeo"], ["--env"]):
        assert newcomer.install(*wrong).returncode == USAGE
    assert newcomer.taken() == []


def test_says_what_it_installs_then_runs_and_is_silent_the_second_time(newcomer: Newcomer) -> None:
    first = newcomer.install("demo", "--json")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "edgepanda demo --json\n"
    before, _, after = first.stderr.partition("Making the environment")
    assert after
    assert str(newcomer.clone / ".venv") in before
    assert {"amqtt", "gpiozero", "paho-mqtt"} <= set(before.split())
    assert newcomer.taken() == ["venv", "pip " + _pip_arguments("demo")]
    second = newcomer.install("demo")
    assert (second.returncode, second.stdout, second.stderr) == (0, "edgepanda demo\n", "")
    assert newcomer.taken() == []


def _pip_arguments(extra: str) -> str:
    return f"-m pip install -qq --disable-pip-version-check --no-compile --editable .[{extra}]"


def test_up_makes_a_configuration_where_there_is_none(newcomer: Newcomer) -> None:
    first = newcomer.install("up", "--json")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "edgepanda init --yes\nedgepanda up --json\n"
    assert newcomer.taken() == ["venv", "pip " + _pip_arguments("demo,gpio")]
    (newcomer.clone / "edgepanda.toml").touch()
    assert newcomer.install("up").stdout == "edgepanda up\n"
    assert newcomer.install("init", "--node-only").stdout == "edgepanda init --node-only\n"
    assert newcomer.install("demo").stdout == "edgepanda demo\n"
    assert newcomer.taken() == []


def test_changed_requirements_are_installed_into_the_same_environment(newcomer: Newcomer) -> None:
    newcomer.install("demo")
    newcomer.taken()
    with (newcomer.clone / "setup.cfg").open("a") as file:
        file.write("# another line\n")
    assert newcomer.install("demo").returncode == 0
    assert [line.split()[0] for line in newcomer.taken()] == ["pip"]


def test_an_install_that_failed_is_told_and_done_anew(newcomer: Newcomer) -> None:
    trouble = newcomer.notes.with_suffix(".fail")
    trouble.touch()
    failed = newcomer.install("demo")
    assert failed.returncode == UNAVAILABLE
    assert "run this again" in failed.stderr
    trouble.unlink()
    newcomer.taken()
    again = newcomer.install("demo")
    assert again.returncode == 0
    assert "made anew" in again.stderr
    assert [line.split()[0] for line in newcomer.taken()] == ["venv", "pip"]


@pytest.mark.parametrize("damage", ["interpreter gone", "another Python", "clone moved"])
def test_a_broken_environment_is_made_anew(newcomer: Newcomer, damage: str) -> None:
    newcomer.install("demo")
    newcomer.taken()
    if damage == "interpreter gone":
        (newcomer.clone / ".venv/bin/python").unlink()
    elif damage == "another Python":
        inside = newcomer.clone / ".venv/bin/python"
        inside.write_text(FAKE_PYTHON.replace("3 13 1", "3 13 2"))
    else:
        newcomer.clone = newcomer.clone.rename(newcomer.clone.with_name("elsewhere"))
    assert newcomer.install("demo").returncode == 0
    assert [line.split()[0] for line in newcomer.taken()] == ["venv", "pip"]


def test_a_folder_of_somebody_else_is_left_alone(newcomer: Newcomer, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "letter").write_text("dear")
    refused = newcomer.install("--env", str(theirs), "demo")
    assert refused.returncode == USAGE
    assert "--env DIR" in refused.stderr
    assert (theirs / "letter").read_text() == "dear"
    assert newcomer.taken() == []


def test_an_old_python_is_named(newcomer: Newcomer) -> None:
    newcomer.add("python3", '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\n')
    refused = newcomer.install("demo")
    assert refused.returncode == UNAVAILABLE
    assert "3.11 or newer" in refused.stderr
    assert "Python 3.9.2" in refused.stderr


def test_a_system_without_apt_is_told_what_to_install(bare: Newcomer) -> None:
    refused = bare.install("demo")
    assert refused.returncode == UNAVAILABLE
    assert "no apt-get" in refused.stderr
    assert "python3-venv" in refused.stderr


def test_a_user_without_sudo_is_told_the_command(bare: Newcomer) -> None:
    bare.add("apt-get", "#!/bin/sh\necho apt-get >>$NOTES\n")
    bare.add("id", "#!/bin/sh\necho 1000\n")
    refused = bare.install("demo")
    assert refused.returncode == UNAVAILABLE
    assert "As root: apt-get install --no-install-recommends python3-venv" in refused.stderr
    assert bare.taken() == []


def test_a_user_with_sudo_installs_what_is_missing_with_it(bare: Newcomer) -> None:
    """And nothing else of it runs as root."""
    ready = bare.add("python3.ready", FAKE_PYTHON)
    bare.add("id", "#!/bin/sh\necho 1000\n")
    bare.add("sudo", '#!/bin/sh\n[ "$1" != -n ] || exit 0\necho sudo >>$NOTES\nexec "$@"\n')
    bare.add(
        "apt-get", f"#!/bin/sh\necho apt-get $* >>$NOTES\n[ $1 = update ] || cp '{ready}' '{bare.programs}/python3'\n"
    )
    done = bare.install("demo")
    assert done.returncode == 0, done.stderr
    assert done.stderr.index("python3-venv") < done.stderr.index("with sudo")
    notes = bare.taken()
    assert [line.split()[0] for line in notes] == ["sudo", "apt-get", "apt-get", "venv", "pip"]
    assert "--no-install-recommends" in notes[2]
    assert notes[2].endswith(" python3-venv")


# ---- pip, without a network: the package of a copy of this tree, and what it depends on lent by this environment


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed here but EdgePanda itself."""
    folder = tmp_path_factory.mktemp("lent")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("edgepanda", "__editable__")) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.mark.parametrize("kind", ["plain", "editable"])
def test_pip_installs_a_working_command(kind: str, lent: Path, tmp_path: Path) -> None:
    source, fresh = tmp_path / "source", tmp_path / "fresh"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "tests"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", fresh], check=True, timeout=60)
    (site,) = fresh.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{lent}\n")
    what = ["--editable", source] if kind == "editable" else [source]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "--python", fresh / "bin/python", "install", "-q", *offline, *what]
    subprocess.run(pip, check=True, timeout=120)
    where = source if kind == "editable" else site
    program = "import edgepanda.drivers as d, edgepanda.services as s; print(d.__file__, s.__file__, sep='\\n')"
    assert all(line.startswith(str(where)) for line in _output(fresh / "bin/python", "-c", program).splitlines())
    assert __version__ in _output(fresh / "bin/edgepanda", "--version")
    assert not (site / "drivers").exists()
    assert not (site / "services").exists()


def _output(program: Path, *arguments: str) -> str:
    """What it prints, run outside the tree and without this environment's paths."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    run = subprocess.run(
        [program, *arguments], cwd="/", env=clean, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
