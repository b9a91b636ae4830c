"""`format("glidemq")`: the data source that Spark talks to. Which reader or writer does the work is decided here.

Options are case-insensitive texts. `kind` says what is read: events (the default), jobs, dlq, queues, schedulers,
writes, workers, results, losses, readers.
"""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from glidemq_async.spark.requirements import spark_version

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class GlideMQDataSource(DataSource):
    """Jobs, events and queues as Spark tables; see the guide for the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "glidemq"

    # Spark names its arguments.
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes a DataFrame. Raises ValueError for bad options or columns, and for overwriting."""
        from glidemq_async.spark.write.batch_writer import BatchWriter
        from glidemq_async.spark.write.options import WriteOptions

        if overwrite:
            raise ValueError(
                'mode("overwrite") would have to empty the queue, which a write never does: use mode("append"), and '
                "Queue.drain or Queue.obliterate where that is meant"
            )
        return BatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return what writes a stream. Raises ValueError for bad options or columns, and for output mode complete."""
        from glidemq_async.spark.write.options import WriteOptions

        if overwrite:
            raise ValueError(
                'outputMode("complete") would write every job again with each micro-batch: use "append", or "update" '
                "with ids that name the version of a row"
            )
        options = WriteOptions.parse(self.options)
        if spark_version() >= (4, 1):
            from glidemq_async.spark.write.stream_writer import ArrowStreamWriter

            return ArrowStreamWriter(options, schema)
        from glidemq_async.spark.write.stream_writer import RowStreamWriter

        return RowStreamWriter(options, schema)

    def schema(self) -> StructType:
        """Return the columns of what is read."""
        from glidemq_async.spark.read.schemas import schema_of

        return schema_of(self.options.get("kind") or "events")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a table."""
        from glidemq_async.spark.read.options import read_options
        from glidemq_async.spark.read.schemas import check_columns

        options = read_options(self.options, streaming=False)
        check_columns(options.kind, schema)
        if options.kind == "events":
            from glidemq_async.spark.read.event_table import EventTableReader

            return EventTableReader(options, schema)
        from glidemq_async.spark.read.tables import FilteringTableReader, TableReader

        return FilteringTableReader(options, schema) if options.pushdown else TableReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream of events."""
        from glidemq_async.spark.read.options import ADMISSION, read_options
        from glidemq_async.spark.read.schemas import check_columns

        options = read_options(self.options, streaming=True)
        check_columns(options.kind, schema)
        if spark_version() < ADMISSION:
            from glidemq_async.spark.read.event_stream import UnlimitedEventStream

            return UnlimitedEventStream(options, schema)
        from glidemq_async.spark.read.event_stream_limited import LimitedEventStream

        return LimitedEventStream(options, schema)
