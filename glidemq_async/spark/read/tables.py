"""The reader of all tables except events. A row shows the instant at which it was read.

Jobs change their state while a table is read. A job may appear twice, in two states, or be missing if it returns to an
earlier state. `latest` keeps the newest row of each job. For exact numbers read events.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from glidemq_async.client.queue_client import QueueClient
from glidemq_async.spark.connection import connection_to
from glidemq_async.spark.read.event_planner import EventPlanner
from glidemq_async.spark.read.job_rows import Row, dead_letter_rows, job_rows, rows_of
from glidemq_async.spark.read.options import ReadOptions
from glidemq_async.spark.read.queue_rows import OF_QUEUE
from glidemq_async.spark.read.schemas import arrow_schema
from glidemq_async.stored.record import FINAL, STATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.datasource import Filter

_log = logging.getLogger(__name__)

RANKED: Final = frozenset({"failed", "delayed", "prioritized", "key-waiting", "waiting-children", "suspended"})
"""States whose jobs have ranks, so that several tasks can read them in parallel.

Completed jobs have none: the server merges those with and without a record while it lists them.
"""


@dataclass
class TablePartition(InputPartition):
    """The part of one task: jobs or dead letters of one state (a range of ranks), jobs by id, or a small table."""

    queue: str
    state: str = ""
    first: int = 0
    stop: int | None = None
    ids: tuple[str, ...] = ()


class TableReader(DataSourceReader):
    """Reader of the table that `kind` selects."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options: ReadOptions = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the read. Spark calls this once per DataFrame."""
        planner = EventPlanner(self._options)

        async def plan() -> list[InputPartition]:
            names = await planner.queue_names()
            await planner.for_each_queue(names, lambda queue: _warn_if_missing(planner, queue))
            found = await planner.for_each_queue(names, lambda queue: self._parts(planner, queue))
            return [part for parts in found.values() for part in parts]

        return planner.run(plan())

    async def _parts(self, planner: EventPlanner, queue: str) -> list[TablePartition]:
        options = self._options
        if options.kind in OF_QUEUE:
            return [TablePartition(queue)]
        if options.kind == "dlq":
            return [TablePartition(queue, state) for state in ("failed", "moved")]
        if options.ids:
            size = -(-len(options.ids) // options.min_partitions)
            chunks = [options.ids[at : at + size] for at in range(0, len(options.ids), size)]
            return [TablePartition(queue, ids=chunk) for chunk in chunks]
        counts = await planner.functions(queue).reading.count_jobs()
        wanted = sorted(FINAL) if options.kind == "results" else STATES
        states = [state for state in options.states or wanted if counts.get(state) and state in wanted]
        total = sum(counts[state] for state in states)
        return [part for state in states for part in self._ranges(queue, state, counts[state], total)]

    def _ranges(self, queue: str, state: str, count: int, total: int) -> list[TablePartition]:
        parts = max(1, self._options.min_partitions * count // total)
        if parts == 1 or state not in RANKED:
            return [TablePartition(queue, state)]
        # Ranks move while jobs are added and removed, so neighbouring tasks may both see a job, or neither. This is the
        # same inexactness that the table has anyway; see the module's docstring.
        marks = [count * i // parts for i in range(parts)]
        # The last part is open, and reads jobs that were added after the count.
        return [TablePartition(queue, state, *span) for span in zip(marks, [*marks[1:], None], strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition, in a task."""
        if not isinstance(partition, TablePartition):  # Spark's placeholder in an empty plan
            return
        connection = connection_to(self._options.url)
        client = QueueClient(partition.queue, connection.storage, prefix=self._options.prefix, mode=None)
        schema = arrow_schema(self._schema)
        pages = self._pages(client, partition)

        # `read` is a blocking generator and the pages come from an asynchronous one. Each page is one call of the event
        # loop, so that Spark processes a page before the next one is read, and a task never holds more than one page.
        async def next_page() -> list[Row] | None:
            return await anext(pages, None)

        while (rows := connection.run(next_page())) is not None:
            if rows:
                arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    async def _pages(self, client: QueueClient, part: TablePartition) -> AsyncIterator[list[Row]]:
        options = self._options
        if options.kind in OF_QUEUE:
            yield await OF_QUEUE[options.kind](client)
        elif part.ids:
            yield await rows_of(client, options, part.ids)
        else:
            pages = (
                dead_letter_rows(client, options, part.state)
                if options.kind == "dlq"
                else job_rows(client, options, part.state, part.first, part.stop)
            )
            async for page in pages:
                yield page


async def _warn_if_missing(planner: EventPlanner, queue: str) -> None:
    """Log a warning for a missing queue. Its table is empty: the name may be wrong, or the queue is created later."""
    bounds, _ = await planner.locate(queue)
    if not bounds.incarnation and not bounds.total:
        _log.warning("there is no queue %r: its table of kind=%s is empty", queue, planner.options.kind)


class FilteringTableReader(TableReader):
    """Reader with filter pushdown.

    It is a separate class, because Spark fails every read of a reader with the method `pushFilters` while
    spark.sql.python.filterPushdown.enabled is off, which is the default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Execute equality filters on state, name and id, and return the filters that Spark must apply."""
        from pyspark.sql.datasource import EqualTo, In

        for one in filters:
            values: tuple[object, ...] = ()
            if isinstance(one, EqualTo):
                values = (one.value,)
            elif isinstance(one, In):
                values = tuple(one.value)
            texts = tuple(value for value in values if isinstance(value, str))
            if not isinstance(one, EqualTo | In) or not self._narrow(".".join(one.attribute), texts):
                yield one

    def _narrow(self, column: str, values: tuple[str, ...]) -> bool:
        options = self._options
        named = {"state": options.states, "name": options.names, "id": options.ids}
        # A filter may only narrow the selection of an option, so a column with an option is left to Spark.
        if options.kind not in ("jobs", "results") or not values or named.get(column, ("",)):
            return False
        if column == "state":
            self._options = replace(options, states=values)
        elif column == "name":
            self._options = replace(options, names=values)
        else:
            self._options = replace(options, ids=values)
        return True


def latest(frame: DataFrame) -> DataFrame:
    """Return the newest row of each job. In kind=jobs a job may appear twice, because it moves during the read."""
    from pyspark.sql import Window
    from pyspark.sql.functions import col, row_number

    newest = Window.partitionBy("queue", "id").orderBy(col("observed_at").desc(), col("finished_at").desc_nulls_last())
    return frame.withColumn("_rank", row_number().over(newest)).where(col("_rank") == 1).drop("_rank")
