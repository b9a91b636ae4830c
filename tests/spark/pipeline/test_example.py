"""The example runs as a program and prints the expected text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "spark_pipeline.py"


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not beside the tests: they run from a checkout")
def test_the_pipeline_example_prints_its_lines() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "enqueued: 200",
        "each event once: True",
        "invoice completed 90",
        "invoice failed 10",
        "ship completed 100",
        "runs: 227 - p99 known: True",
        "report: report.html",
        "would replay: 10",
        "replayed: completed 10",
    ]
