"""The Spark part of the benchmarks reports when it cannot run."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import main
from benchmarks.spark.setup import Row


def test_without_java_the_benchmark_reports_that_it_did_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["--only", "spark", "--quick"]) == 2
    assert "did NOT run: there is no java" in capsys.readouterr().err


def test_a_row_states_whether_its_target_is_met() -> None:
    assert Row("w", 5, "ms", "<=", 5).met
    assert not Row("w", 5.1, "ms", "<=", 5).met
    assert not Row("w", 5, "rows/s", ">=", 6).met
    assert Row("w", 5, "µs").met
