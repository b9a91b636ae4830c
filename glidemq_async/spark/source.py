"""`format("glidemq")`: the data source that Spark calls. It chooses the reader or writer for the options.

Options are strings with case-insensitive names. The option `kind` selects the table to read: events (the default),
jobs, dlq, queues, schedulers, writes, workers, results, losses or readers.
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
    """Spark data source for jobs, events and queues.

    docs/spark-write.md and docs/spark-read.md describe the options.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "glidemq"

    # Spark passes these arguments by name.
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a DataFrame. Raises ValueError for bad options or columns, and for mode overwrite."""
        from glidemq_async.spark.write.batch_writer import BatchWriter
        from glidemq_async.spark.write.options import WriteOptions

        if overwrite:
            raise ValueError(
                'mode("overwrite") is not supported, because a write never removes jobs; use mode("append"), and call '
                "Queue.drain or Queue.obliterate first to empty the queue"
            )
        return BatchWriter(WriteOptions.parse(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream. Raises ValueError for bad options or columns, and for output mode complete."""
        from glidemq_async.spark.write.options import WriteOptions

        if overwrite:
            raise ValueError(
                'outputMode("complete") would write every job again with each micro-batch; use "append", or "update" '
                "with ids that contain the version of the row"
            )
        options = WriteOptions.parse(self.options)
        if spark_version() >= (4, 1):
            from glidemq_async.spark.write.stream_writer import ArrowStreamWriter

            return ArrowStreamWriter(options, schema)
        from glidemq_async.spark.write.stream_writer import RowStreamWriter

        return RowStreamWriter(options, schema)

    def schema(self) -> StructType:
        """Return the columns of the table that `kind` selects."""
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
