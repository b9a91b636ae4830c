"""Errors of the pipeline commands before Spark is started."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from glidemq_async import Queue
from glidemq_async.cli.app import build
from glidemq_async.cli.exits import NOT_FOUND, UNAVAILABLE, USAGE, CommandError
from glidemq_async.demo.spark.demonstration import Draw, Outcome, Plan
from glidemq_async.demo.spark.driver import Result
from glidemq_async.demo.spark.files import Figures

pytest.importorskip("pyspark")

from pyspark.errors import PySparkRuntimeError


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that Java exists. No test here starts Spark."""
    monkeypatch.setattr("glidemq_async.spark.requirements.require_java", lambda: None)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """A fake session builder that records calls."""
    made = MagicMock()
    made.appName.return_value = made.config.return_value = made.master.return_value = made
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder", lambda: made)
    return made


def refused(*words: str) -> CommandError:
    failed = CliRunner().invoke(build(), ["pipeline", *words])
    assert isinstance(failed.exception, CommandError), failed.output
    return failed.exception


def test_the_help_of_the_pipeline_lists_its_commands() -> None:
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
def test_wrong_arguments_are_exit_code_2(words: list[str]) -> None:
    assert CliRunner().invoke(build(), ["pipeline", *words]).exit_code == USAGE


def test_an_objective_that_makes_no_sense_is_a_usage_error(tmp_path: Path) -> None:
    error = refused("report", "--lake", str(tmp_path), "--objective", "99")
    assert error.code == USAGE
    assert "for 99 % use 0.99" in str(error)


@pytest.mark.usefixtures("builder")
@pytest.mark.parametrize(("words", "fails"), [([], True), (["--allow-data-loss"], False)])
def test_a_run_may_continue_after_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], fails: bool
) -> None:
    pipeline = MagicMock()
    pipeline.return_value.ingest.return_value = 0
    monkeypatch.setattr("glidemq_async.spark.pipeline.Pipeline", pipeline)
    monkeypatch.setattr("glidemq_async.cli.pipeline.asdict", MagicMock(return_value={}))
    store = tmp_path / "store"
    store.mkdir()
    asyncio.run(add_one(store, "q"))
    given = ["run", "q", "--lake", str(tmp_path / "lake"), "--json", "--url", store.as_uri(), *words]
    done = CliRunner().invoke(build(), ["pipeline", *given])
    assert done.exception is None or "clean" in done.output, done.output
    assert pipeline.return_value.ingest.call_args.kwargs["fail_on_data_loss"] is fails


def test_missing_columns_are_a_usage_error(tmp_path: Path, builder: MagicMock) -> None:
    session = builder.getOrCreate.return_value
    session.read.csv.return_value.columns = ["user"]
    rows = tmp_path / "rows.csv"
    rows.touch()
    words = ["backfill", str(rows), "emails", "--campaign", "c", "--job-name", "n", "--id-column", "usr"]
    error = refused(*words)
    assert error.code == USAGE
    assert "id columns must be some of user, got usr" in str(error)
    session.stop.assert_called_once()


@pytest.mark.parametrize("words", [["report"], ["replay", "q", "--campaign", "c"]])
def test_a_missing_lake_is_exit_code_4_before_spark_starts(
    tmp_path: Path, builder: MagicMock, words: list[str]
) -> None:
    lake = tmp_path / "lake"
    error = refused(*words, "--lake", str(lake))
    assert error.code == NOT_FOUND
    assert f"{lake} has no tables yet; run `glidemq pipeline run`" in str(error)
    builder.getOrCreate.assert_not_called()
    assert not lake.exists()


def test_a_missing_queue_is_exit_code_4_before_spark_starts(tmp_path: Path, builder: MagicMock) -> None:
    lake, store = tmp_path / "lake", tmp_path / "store"
    words = ["run", "emials", "--lake", str(lake), "--url", store.as_uri()]
    assert "there are no queues" in str(refused(*words))
    assert not store.exists()

    store.mkdir()
    asyncio.run(add_one(store, "emails"))
    error = refused(*words)
    assert error.code == NOT_FOUND
    assert "there is no queue 'emials'" in str(error)
    assert "did you mean 'emails'?" in str(error)
    builder.getOrCreate.assert_not_called()
    assert not lake.exists()


def test_a_queue_with_events_in_the_lake_may_be_missing(tmp_path: Path, builder: MagicMock) -> None:
    lake, store = tmp_path / "lake", tmp_path / "store"
    store.mkdir()
    asyncio.run(add_one(store, "orders"))
    lake.mkdir()
    (lake / "CURRENT").write_text(json.dumps({"version": "000001", "audits": [{"queue": "emails"}]}))
    builder.getOrCreate.side_effect = LookupError("as far as Spark")
    words = ["pipeline", "run", "emails", "orders", "--lake", str(lake), "--url", store.as_uri()]
    assert "as far as Spark" in str(CliRunner().invoke(build(), words).exception)


async def add_one(store: Path, name: str) -> None:
    async with Queue[None, None](name, store.as_uri()) as queue:
        await queue.add("first", None)


@pytest.mark.parametrize("home", ["", "/nowhere"])
@pytest.mark.parametrize("command", ["backfill", "demo"])
def test_without_java_the_error_is_one_line(tmp_path: Path, command: str, home: str) -> None:
    rows = tmp_path / "rows.csv"
    rows.touch()
    given = [str(rows), "emails", "--campaign", "c", "--job-name", "n", "--id-column", "u"]
    words = [command, *(given if command == "backfill" else [])]
    program = f"from glidemq_async.cli.app import run; sys.argv = ['glidemq', 'pipeline', *{words!r}]; run()"
    env = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": home}
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=env,
    )
    assert ended.returncode == UNAVAILABLE
    (line,) = ended.stderr.splitlines()
    assert "Spark needs Java 17 or newer" in line
    assert (f"JAVA_HOME={home} has no bin/java" if home else "the PATH has no java") in line


def test_a_java_that_is_too_old_is_reported(tmp_path: Path, builder: MagicMock) -> None:
    rows = tmp_path / "rows.csv"
    rows.touch()
    builder.getOrCreate.side_effect = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    words = ["backfill", str(rows), "emails", "--campaign", "c", "--job-name", "n", "--id-column", "u"]
    error = refused(*words)
    assert error.code == UNAVAILABLE
    assert "17 or newer" in str(error)


@pytest.mark.parametrize(
    "program",
    [
        "from glidemq_async.spark.pipeline import Pipeline",
        "import pyspark_glidemq",
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


def test_the_demonstration_prints_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = Figures(jobs=1, completed=1, failed=0, retries=0)
    result = Result(figures=figures, stalls=0, events=3, clean=True, page=str(tmp_path / "report" / "report.html"))

    async def show(plan: Plan, draw: Draw) -> Outcome:
        return Outcome(result, figures, [], 1.0)

    monkeypatch.setattr("glidemq_async.demo.spark.demonstration.run_demonstration", show)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = CliRunner().invoke(build(), ["pipeline", "demo"])
    assert done.exit_code == 0, done.output
    (made,) = tmp_path.glob("glidemq-spark-*")
    assert f"{made};" in "".join(done.output.splitlines())
