"""An executor that is killed during a write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.writing.conftest import Written

pytestmark = [pytest.mark.only_on("unix"), pytest.mark.slow]


def test_each_row_is_one_job_when_an_executor_is_killed(queue: Written) -> None:
    program = [sys.executable, "-m", "tests.spark.writing.lost_executor", queue.url]
    done = subprocess.run(
        program, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True, timeout=170, check=True
    )
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    report = json.loads(line.removeprefix("REPORT "))
    assert (report["state"], report["inserted"], report["duplicate"]) == ("committed", 200, 0)
    assert report["replayed"] >= 10
    assert queue.counts() == {"waiting": 200}
