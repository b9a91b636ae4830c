"""Tasks of a micro-batch that begin after a newer run of the query has begun."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from glidemq_async import Queue
from glidemq_async.spark import connection as connections
from glidemq_async.spark.connection import connection_to
from glidemq_async.spark.write.errors import WriteFenced
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.stream_writer import RowStreamWriter
from tests.support.stores import RunningStore

pytestmark = pytest.mark.only_on("unix")

SCHEMA = StructType([StructField("id", StringType()), StructField("name", StringType())])


class Context:
    """A fake task context."""

    def __init__(self, run: str) -> None:
        self._properties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7", "spark.jobGroup.id": run}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._properties.get(name)

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0


@pytest.fixture
def url(store: RunningStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server. Its data is removed and all connections are closed afterwards."""
    monkeypatch.setattr(connections, "_connections", {})
    yield store.url
    connection_to(store.url).close()
    asyncio.run(_flush(store))


async def _flush(store: RunningStore) -> None:
    await store.command("FLUSHALL")


def begin(monkeypatch: pytest.MonkeyPatch, run: str, writer: RowStreamWriter, *ids: str) -> Any:
    """Begin a task of a run, with connections of a new process."""
    monkeypatch.setattr(TaskContext, "get", lambda: Context(run))
    there: RowStreamWriter = pickle.loads(pickle.dumps(writer))
    return there.write(iter([(id_, "n") for id_ in ids]))


def test_a_late_task_of_an_older_run_cannot_take_the_write_over(
    url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = WriteOptions.parse({"url": url, "queue": name})
    older, newer = RowStreamWriter(options, SCHEMA), RowStreamWriter(options, SCHEMA)
    begin(monkeypatch, "older", older, "a")
    first = begin(monkeypatch, "newer", newer, "a", "b")
    with pytest.raises(WriteFenced, match="newer run"):
        begin(monkeypatch, "older", older, "c")
    second = begin(monkeypatch, "newer", newer, "d")
    newer.commit([first, second], 7)

    async def ids() -> set[str]:
        async with Queue[Any, Any](name, url) as queue:
            return {job.id for job in await queue.get_jobs("waiting")}

    assert asyncio.run(ids()) == {"a", "b", "d"}
