"""What the commands of the pipeline refuse before Spark is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from glidemq_async.cli.app import build
from glidemq_async.cli.exits import USAGE, CommandError

pytest.importorskip("pyspark")


def test_the_group_names_its_commands() -> None:
    shown = CliRunner().invoke(build(), ["pipeline", "--help"])
    assert shown.exit_code == 0
    for command in ("run", "report", "replay", "backfill", "demo"):
        assert f" {command} " in shown.output


@pytest.mark.parametrize(
    "words",
    [
        ["run", "emails"],
        ["replay", "emails", "--lake", "x"],
        ["replay", "emails", "--lake", "x", "--campaign", "c", "--since", "2026-01-01"],
        ["replay", "emails", "--lake", "x", "--campaign", "c", "--until", "soon"],
        ["replay", "emails", "--lake", "x", "--campaign", "a:b"],
        ["backfill", "/nowhere/rows.parquet", "emails", "--campaign", "c", "--job-name", "n", "--id-column", "u"],
    ],
)
def test_what_was_typed_wrongly_is_exit_code_2(words: list[str]) -> None:
    assert CliRunner().invoke(build(), ["pipeline", *words]).exit_code == USAGE


def test_an_objective_that_makes_no_sense_is_a_usage_error(tmp_path: Path) -> None:
    failed = CliRunner().invoke(build(), ["pipeline", "report", "--lake", str(tmp_path), "--objective", "99"])
    assert isinstance(failed.exception, CommandError)
    assert failed.exception.code == USAGE
    assert "0.99 is 99 %" in str(failed.exception)


@pytest.mark.parametrize(("words", "fails"), [([], True), (["--allow-data-loss"], False)])
def test_a_run_may_go_on_after_a_loss(monkeypatch: pytest.MonkeyPatch, words: list[str], fails: bool) -> None:
    pipeline = MagicMock()
    pipeline.return_value.ingest.return_value = 0
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder", MagicMock())
    monkeypatch.setattr("glidemq_async.spark.pipeline.Pipeline", pipeline)
    monkeypatch.setattr("glidemq_async.cli.pipeline.asdict", MagicMock(return_value={}))
    done = CliRunner().invoke(build(), ["pipeline", "run", "q", "--lake", "x", "--json", "--url", "file:///x", *words])
    assert done.exception is None or "clean" in done.output, done.output
    assert pipeline.return_value.ingest.call_args.kwargs["fail_on_data_loss"] is fails


def test_what_the_rows_do_not_have_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = MagicMock()
    builder.appName.return_value = builder.config.return_value = builder.master.return_value = builder
    session = builder.getOrCreate.return_value
    session.read.csv.return_value.columns = ["user"]
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder", lambda: builder)
    rows = tmp_path / "rows.csv"
    rows.touch()
    words = ["backfill", str(rows), "emails", "--campaign", "c", "--job-name", "n", "--id-column", "usr"]
    failed = CliRunner().invoke(build(), ["pipeline", *words])
    assert isinstance(failed.exception, CommandError)
    assert failed.exception.code == USAGE
    assert "id columns must be some of user, got usr" in str(failed.exception)
    session.stop.assert_called_once()


@pytest.mark.parametrize(
    "program",
    [
        "from glidemq_async.spark.pipeline import Pipeline",
        "pipeline report --lake x",
        "pipeline replay q --lake x --campaign c",
        "pipeline backfill . q --campaign c --job-name n --id-column i",
    ],
)
def test_without_pyspark_the_error_names_what_to_install(program: str) -> None:
    if program.startswith("pipeline"):
        program = f"from glidemq_async.cli.app import run; sys.argv = ['glidemq', *{program.split()}]; run()"
    hidden = f"import sys; sys.modules['pyspark'] = None; {program}"
    ended = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "pip install 'glidemq-async[spark]'" in ended.stderr.splitlines()[-1]
