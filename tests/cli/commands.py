"""Runs `glidemq` as a user does: in a separate process with its output in pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "glidemq_async.cli"]


def environment(temporary: Path) -> dict[str, str]:
    """Return this process's environment with a private directory for temporary files."""
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(temporary), "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100"}


def glidemq(*arguments: str, temporary: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env=environment(temporary),
    )


def make_tree(root: Path, files: int, *, functions: int = 60) -> None:
    """Write a tree of Python files with this many functions each, and one file that does not parse."""
    body = "".join(
        f"def function_{n}(a, b):\n"
        "    for item in a:\n"
        "        if item and b:\n"
        "            yield [x for x in item if x]\n"
        "        elif b or item:\n"
        "            yield {'a': (1, 2, 3), 'b': item.one.two(b, c=4)}\n"
        for n in range(functions)
    )
    for n in range(files):
        directory = root / f"package_{n % 5}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"module_{n}.py").write_text(f"import os, sys\n\n{body}")
    (root / "broken.py").write_text("def broken(:\n")
    # The demonstration ignores these.
    for hidden in ("site-packages", ".cache"):
        (root / hidden).mkdir()
        (root / hidden / "other.py").write_text("pass\n")
