"""Registration of the format, and the error if Spark's tasks cannot import the package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from glidemq_async.spark import GlideMQDataSource, enqueue_frame, register
from glidemq_async.spark.driver.python_check import check_interpreter

WORDS = r"cannot import glidemq_async.*PYSPARK_PYTHON.*activate"


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """Return an interpreter without packages, like `python3` without an activated environment."""
    program = tmp_path / "python3"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_the_format_can_be_registered_repeatedly(spark: SparkSession) -> None:
    register(spark)
    register(spark)
    assert GlideMQDataSource.name() == "glidemq"


def test_the_error_names_the_python_of_the_tasks_that_lacks_the_package(
    spark: SparkSession, bare: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", bare)
    with pytest.raises(ImportError, match=f"{bare}.*{WORDS}"):
        register(spark)
    with pytest.raises(ImportError, match=WORDS):
        enqueue_frame(spark.range(1), "orders", url="redis://nowhere.invalid")


def test_python3_of_the_path_is_checked(spark: SparkSession, bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    monkeypatch.setenv("PATH", str(Path(bare).parent), prepend=":")
    with pytest.raises(ImportError, match=bare):
        register(spark)


def session(python: str, master: str = "local[2]", **settings: str) -> Any:
    conf = SparkConf(loadDefaults=False).setAll([*settings.items()])
    context = SimpleNamespace(master=master, pythonExec=python, environment={}, getConf=lambda: conf)
    return cast("Any", SimpleNamespace(_jsparkSession=object(), sparkContext=context))


def test_nothing_is_checked_where_the_driver_cannot_know(bare: str) -> None:
    with pytest.raises(ImportError):
        check_interpreter(session(bare))
    for master in ("spark://host:7077", "local-cluster[1,1,1024]", "yarn"):
        check_interpreter(session(bare, master))
    check_interpreter(session(bare, **{"spark.submit.pyFiles": "glidemq.zip"}))
    check_interpreter(session("a-python-that-is-not-there"))
