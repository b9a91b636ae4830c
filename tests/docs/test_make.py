"""The targets of the Makefile that a newcomer uses first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


@pytest.mark.parametrize(("target", "extras"), [("demo", ["'.[cli]'"]), ("demo-spark", ["'.[cli]'", "'.[cli,spark]'"])])
def test_a_demonstration_installs_only_what_it_needs(tmp_path: Path, target: str, extras: list[str]) -> None:
    steps = _steps(tmp_path, target)
    installs = [step for step in steps if "pip install" in step]
    assert [step.split()[-1] for step in installs] == extras
    assert all(".venv-demo/bin/python" in step for step in installs)
    # A line precedes each installation, and one precedes the demonstration.
    assert sum(step.startswith("echo") for step in steps) == len(extras) + 1


def test_a_demonstration_uses_the_environment_of_development_if_it_exists(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "setup.py"):
        (tmp_path / name).touch()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".installed").touch()
    assert [step for step in _steps(tmp_path, "demo") if not step.startswith("echo")] == [".venv/bin/glidemq demo"]


def _steps(folder: Path, target: str) -> list[str]:
    """Return the commands that make would run in a folder that holds only the files of the build."""
    for name in ("Makefile", "pyproject.toml", "setup.py"):
        if not (folder / name).exists():
            shutil.copy(TOP / name, folder / name)
    # The environment is reduced, because an outer make passes its options in MAKEFLAGS.
    made = subprocess.run(
        ["make", "-n", f"PYTHON={sys.executable}", target],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.strip() for line in made.stdout.splitlines()]
