"""`tests/run`: every part runs, the first failure decides, the closing line adds up. Its programs only take notes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Stands in for Python: pytest says what the file named after the part holds ('tests failures exit-code'; none: 3 0 0).
FAKE_PYTHON = f"""#!/bin/sh
case $* in
    '- '*) exec {sys.executable} "$@" ;;
    '-m pytest'*) ;;
    *) exit 0 ;;
esac
echo "$*" >>"$NOTES"
for word; do case $word in --junitxml=*) report=${{word#--junitxml=}} ;; esac; done
[ -n "$report" ] || exit 0
part=$(basename "$report" .xml)
set -- $(cat "$NOTES.$part" 2>/dev/null || echo 3 0 0)
echo "<testsuites><testsuite tests='$1' failures='$2' errors='0' skipped='1'/></testsuites>" >"$report"
exit $3
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with nothing but the runner, and the programs that it calls."""
    (tmp_path / "tree/tests").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "tests/run", tmp_path / "tree/tests/run")
    for name, script in {"python": FAKE_PYTHON, "ruff": "#!/bin/sh\n", "shellcheck": "#!/bin/sh\n"}.items():
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path / "tree"


def _run(tree: Path, *arguments: str, **results: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines printed, and the pytest calls; `results` gives 'tests failures exit-code' by part."""
    notes = tree.parent / "notes"
    for part, result in results.items():
        notes.with_suffix(f".{part}").write_text(result)
    environment = {**os.environ, "PATH": f"{tree.parent / 'bin'}:{os.environ['PATH']}", "NOTES": str(notes)}
    run = subprocess.run(
        [tree / "tests/run", *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return run.returncode, run.stdout.splitlines(), notes.read_text().splitlines() if notes.exists() else []


def test_all_parts_run_and_add_up(tree: Path) -> None:
    code, lines, calls = _run(tree)
    assert code == 0
    assert [call.rsplit(" ", 1)[1] for call in calls] == ["tests/contract", "tests/e2e", "tests/faults"]
    assert [line.split()[:2] for line in lines[-6:-1]] == [
        [part, "passed"] for part in ("lint", "types", "unit", "e2e", "faults")
    ]
    assert lines[-1] == "6 passed, 0 failed, 3 skipped"


def test_the_first_failure_decides_and_the_rest_still_runs(tree: Path) -> None:
    code, lines, calls = _run(tree, "unit", "e2e", "faults", unit="4 2 1", e2e="9 0 3")
    assert code == 1
    assert len(calls) == 3
    assert lines[-1] == "11 passed, 2 failed, 3 skipped"


def test_a_part_without_tests_has_failed(tree: Path) -> None:
    code, lines, _ = _run(tree, "faults", faults="0 0 5")
    assert code == 5
    assert "tests/run: faults ran no test" in lines


def test_a_finding_of_the_linter_is_a_failure(tree: Path) -> None:
    (tree.parent / "bin/ruff").write_text("#!/bin/sh\nexit 1\n")
    code, lines, _ = _run(tree, "lint")
    assert code == 1
    assert lines[-1].startswith("lint        FAILED (1)")


def test_arguments_go_to_pytest(tree: Path) -> None:
    assert _run(tree, "--", "tests/unit/test_run.py", "-k", "go")[2] == ["-m pytest tests/unit/test_run.py -k go"]
    assert _run(tree, "e2e", "--", "-x")[2][-1].endswith(" tests/e2e -x")


def test_an_unknown_part_is_refused(tree: Path) -> None:
    assert _run(tree, "untis") == (2, [], [])
