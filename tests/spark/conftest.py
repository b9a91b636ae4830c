"""One Spark session for all tests of Spark, and a server that its tasks can reach."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.stores import RunningStore, RunningStores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The rest of the library is tested without these packages too.
collect_ignore_glob = [] if find_spec("pyspark") and find_spec("pyarrow") else ["*"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # Much longer than any test: a test that is interrupted in a call of the JVM breaks all later ones.
            item.add_marker(pytest.mark.timeout(900 if item.get_closest_marker("slow") else 600))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with two cores whose tasks may fail three times."""
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH: install a JRE, version 17 or newer")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        session = (
            SparkSession.Builder()
            .master("local[2,4]")
            .appName("glidemq tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            # The optimizing compiler costs more time than small queries save.
            .config("spark.driver.extraJavaOptions", "-Xss4m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.sql.adaptive.enabled", "false")
            .config("spark.local.dir", folder)
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@pytest.fixture
def store(spark: SparkSession, stores: RunningStores) -> RunningStore:
    """A separate server that other processes can reach."""
    return stores.get("unix")
