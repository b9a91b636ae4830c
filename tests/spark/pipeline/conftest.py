"""A server that Spark's tasks can reach, empty for each test."""

from __future__ import annotations

import asyncio

import pytest
from pyspark.sql import SparkSession

from tests.support.stores import Place, Places


@pytest.fixture
def server(spark: SparkSession, places: Places) -> Place:
    """Only servers that Spark's tasks can reach: memory storage belongs to one process."""
    place = places.get("unix")
    asyncio.run(place.command("FLUSHALL"))
    return place
