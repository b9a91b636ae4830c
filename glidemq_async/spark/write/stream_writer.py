"""`stream.writeStream.format("glidemq")`: each micro-batch is a separate write.

The query and the number of the batch name the write, so a micro-batch that Spark runs again is the same write. Spark
creates one writer for each micro-batch, and another one in another process to commit it. The two share no state: the
write id and the token travel in the tasks' messages.
"""

# pyspark's own annotations are incomplete, and pyarrow has none.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from glidemq_async.spark.connection import Connection, connection_to
from glidemq_async.spark.requirements import spark_version
from glidemq_async.spark.write.columns import Batch, Columns, check_types, chunks_of, columns_of_rows
from glidemq_async.spark.write.commit_protocol import abort_labelled, end_write, label_of, open_write, order_run
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.row_reader import RowReader, check_columns
from glidemq_async.spark.write.task_writer import TaskCommit, write_task
from glidemq_async.spark.write.write_plan import WritePlan

__all__ = ["MicroBatchWriter", "RowStreamWriter"]

T = TypeVar("T")

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_RUN: Final = "spark.jobGroup.id"
"""Spark runs all jobs of one run of a query in a job group whose id is the run's id."""
_CHUNK_ROWS: Final = 1000


class MicroBatchWriter:
    """Base of the writers of a micro-batch: `RowStreamWriter` and `ArrowStreamWriter`."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        for name, value in (("txnAppId", options.txn_app_id), ("writeId", options.write_id)):
            if value:
                raise ValueError(
                    f"{name} is an option of batch writes; remove it: the query and the micro-batch name a stream's "
                    "writes"
                )
        check_columns(schema.names, options)
        check_types(schema)
        RowReader(options)
        self._options, self._schema = options, schema
        # In the driver, before Spark creates the tasks of this micro-batch. Tasks of an earlier run of the query may
        # still be alive; with their lower order they cannot open the write again. See commit_protocol.py.
        self._orders = self._run(lambda connection: order_run(connection, options))

    def _run(self, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
        connection = connection_to(self._options.url)
        return connection.run(work(connection), retries=self._options.max_retries)

    def write_chunks(self, chunks: Iterable[tuple[Columns, int]]) -> WriterCommitMessage:
        """Write the rows of one task."""
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("the rows of a stream can only be written inside a Spark task")
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if not query or not batch:
            raise RuntimeError(f"this version of Spark does not set {_QUERY} and {_BATCH} for tasks; use foreachBatch")
        # The token is the run's id, so all tasks of one run open the same write with the same token and no message
        # between them. A restarted query is another run and fences the tasks of this one.
        options, orders, token = self._options, self._orders, context.getLocalProperty(_RUN) or query
        label = label_of(options.checkpoint, int(batch))
        plan = self._run(lambda connection: open_write(connection, options, f"{query}@{batch}", token, label, orders))
        return write_task(connection_to(options.url), plan, chunks, context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Commit the write of a micro-batch."""
        written = [message for message in messages if isinstance(message, TaskCommit)]
        if written:
            self._end("committed", written)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort the write of a micro-batch and fence tasks that still run. Its next run adds the missing rows."""
        written = [message for message in messages if isinstance(message, TaskCommit)]
        if written:
            self._end("aborted", written)
        elif label := label_of(self._options.checkpoint, batchId):
            # No task has ended, so no message contains the write's id, and Spark passes no query id here. The
            # label derives from the checkpoint and the batch number, which this process knows.
            self._run(lambda connection: abort_labelled(connection, self._options, label))

    def _end(self, state: Literal["committed", "aborted"], written: list[TaskCommit]) -> None:
        one = written[0]  # all tasks of the run have the same id and token
        plan = WritePlan(self._options, one.write_id, one.token, dict.fromkeys(self._options.queues, ""))
        self._run(lambda connection: end_write(connection, plan, state, len(written)))


class RowStreamWriter(MicroBatchWriter, DataSourceStreamWriter):
    """Stream writer that gets single rows. Spark 4.0 offers no other one."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self.write_chunks(self._chunks(iterator))

    def _chunks(self, rows: Iterator[Any]) -> Iterator[tuple[Columns, int]]:
        while some := list(islice(rows, _CHUNK_ROWS)):
            yield columns_of_rows(some, self._schema), len(some)


if spark_version() >= (4, 1):
    # The base class exists since Spark 4.1.
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    class ArrowStreamWriter(MicroBatchWriter, DataSourceStreamArrowWriter):
        """Stream writer that gets record batches."""

        def write(self, iterator: Iterator[Batch]) -> WriterCommitMessage:
            """Write the rows of one task."""
            return self.write_chunks(chunks_of(iterator))
