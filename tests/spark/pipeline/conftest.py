"""A server that Spark's tasks can reach, empty for each test."""

from __future__ import annotations

import asyncio

import pytest
from pyspark.sql import SparkSession

from tests.support.stores import RunningStore, RunningStores


@pytest.fixture
def server(spark: SparkSession, stores: RunningStores) -> RunningStore:
    """Only servers that Spark's tasks can reach: memory storage belongs to one process."""
    store = stores.get("unix")
    asyncio.run(store.command("FLUSHALL"))
    return store
