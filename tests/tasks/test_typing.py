"""The types that users see, with two type checkers: correct code passes, and each error is found on its line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

# Not a module, so that the checks of the project itself ignore it.
PROGRAM = Path(__file__).with_name("typed_program.txt")
ROOT = Path(__file__).parents[2]
MARK = "# wrong"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    copied = tmp_path / "typed_program.py"
    copied.write_text(PROGRAM.read_text())
    return copied


def wanted() -> set[int]:
    """Return the lines on which a checker has to find an error."""
    lines = PROGRAM.read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith(MARK)}


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def test_the_typed_program_contains_errors() -> None:
    assert len(wanted()) >= 8


@pytest.mark.timeout(180)
def test_mypy_finds_exactly_the_errors(program: Path) -> None:
    pytest.importorskip("mypy")
    output = run("mypy", "--no-error-summary", "--no-pretty", str(program))
    found = {int(line) for line in re.findall(rf"{program.name}:(\d+): error", output)}
    assert found == wanted(), output


@pytest.mark.timeout(180)
def test_pyright_finds_exactly_the_errors(program: Path) -> None:
    pytest.importorskip("basedpyright")
    report = json.loads(run("basedpyright", "--outputjson", str(program)))
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["range"]["start"]["line"] + 1 for one in errors} == wanted(), errors
