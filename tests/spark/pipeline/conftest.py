"""A server that Spark's tasks can reach, empty for each test."""

from __future__ import annotations

import asyncio

import pytest
from pyspark.sql import SparkSession

from tests.support.stores import Place, Places


@pytest.fixture
def server(spark: SparkSession, places: Places) -> Place:
    """Spark's tasks need a server: what is in memory is seen by one process alone."""
    place = places.get("unix")
    asyncio.run(place.command("FLUSHALL"))
    return place
