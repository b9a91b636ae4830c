"""kind=events as a table: the stored events of queues, or a range of them."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from glidemq_async.spark.read.event_partition import read_events
from glidemq_async.spark.read.event_planner import EventPlanner
from glidemq_async.spark.read.offsets import Position, Span
from glidemq_async.spark.read.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class EventTableReader(DataSourceReader):
    """Reader of a range of events. The range is fixed when Spark plans the read."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Plan the read. Spark calls this once per DataFrame, so all its actions read the same range."""
        planner = EventPlanner(self._options)
        return [*planner.run(self._plan(planner))]

    async def _plan(self, planner: EventPlanner) -> list[InputPartition]:
        queues = await planner.queue_names()
        await planner.check_known(queues)
        starts = await planner.positions(queues, self._options.starting, "earliest")
        ends = await planner.positions(queues, self._options.ending, "latest")
        spans: list[Span] = []
        for queue in queues:
            _, begin, losses = await planner.resume_position(queue, starts[queue])
            await planner.note(losses)
            if _is_before(begin, ends[queue]):
                spans.append(Span(queue, begin, ends[queue]))
        return [*await planner.partitions(spans)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition, in a task."""
        return read_events(partition, self._options, self._schema)


def _is_before(begin: Position, end: Position) -> bool:
    return begin.incarnation == end.incarnation and begin.n < end.n
