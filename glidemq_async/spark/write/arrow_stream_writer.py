"""The stream writer that takes record batches; its base class came with Spark 4.1."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from glidemq_async.spark.write.columns import Batch, chunks_of
from glidemq_async.spark.write.stream_writer import Epochs

__all__ = ["ArrowStreamWriter"]


class ArrowStreamWriter(Epochs, DataSourceStreamArrowWriter):
    """Takes record batches."""

    def write(self, iterator: Iterator[Batch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self.write_chunks(chunks_of(iterator))
