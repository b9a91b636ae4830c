"""Separate programs: the example of the driver side, and a program whose JVM dies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "spark_driver.py"


def run(program: Path) -> list[str]:
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    command = [sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not beside the tests: they run from a checkout")
def test_the_driver_example_prints_its_lines() -> None:
    assert run(EXAMPLE) == [
        "the batch: 42",
        "the query: AnalysisException, in 1 run",
        "the sleeper: revoked, in 1 run",
    ]


@pytest.mark.slow
def test_a_worker_whose_jvm_is_killed_stops_with_an_error() -> None:
    stopped, state, reason = run(HERE / "jvm_dies.py")
    assert stopped == "the worker stopped: Spark application 'pyspark-shell' cannot run any more jobs"
    assert state == "waiting 1"
    assert reason.startswith("ExecutorError: Spark application")
