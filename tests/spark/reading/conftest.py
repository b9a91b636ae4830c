"""A queue that tests fill and Spark reads."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from glidemq_async import Queue
from glidemq_async.spark import register
from tests.spark.reading.streams import Stream
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore, RunningStores


@dataclass
class Source:
    """Reader of one queue."""

    spark: SparkSession
    url: str
    queue: str

    def read(self, kind: str = "events", /, **options: object) -> DataFrame:
        """Read a table of the queue."""
        reader = self.spark.read.format("glidemq").options(url=self.url, kind=kind, subscribe=self.queue)
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def stream(self, folder: Path, **options: object) -> Stream:
        """Return a query of the queue's events that stores its rows."""
        given = {"url": self.url, "subscribe": self.queue, **{name: str(value) for name, value in options.items()}}
        return Stream(self.spark, folder, {key: value for key, value in given.items() if value})


@pytest.fixture
def server(spark: SparkSession, stores: RunningStores) -> RunningStore:
    """A separate server that other processes can reach."""
    register(spark)
    return stores.get("unix")


@pytest.fixture
async def queue(server: RunningStore) -> AsyncIterator[AnyQueue]:
    """A queue on this server."""
    async with Queue[object, object](f"spark-{uuid.uuid4().hex[:8]}", server.url) as opened:
        yield opened
        await opened.obliterate(force=True)


@pytest.fixture
def source(spark: SparkSession, server: RunningStore, queue: AnyQueue) -> Source:
    """The reader of this queue."""
    return Source(spark, server.url, queue.name)
