"""`df.write.format("glidemq")`: the bulk write of a DataFrame."""

# pyspark's own annotations are incomplete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from glidemq_async.spark.connection import Connection, connection_to
from glidemq_async.spark.write.columns import Batch, check_types, chunks_of
from glidemq_async.spark.write.commit_protocol import end_write, open_write, write_id_of
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.row_reader import RowReader, check_columns
from glidemq_async.spark.write.task_writer import TaskCommit, write_task

__all__ = ["BatchWriter"]


class BatchWriter(DataSourceArrowWriter):
    """Writer of a DataFrame. Spark creates it when it plans the write, and pickles it for tasks, commit and abort."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_columns(schema.names, options)
        check_types(schema)
        RowReader(options)
        # Spark keeps the processes that plan and commit for a long time. The connection is closed here, so that they
        # hold none during the write.
        #
        # The write is opened here, in the planner, and not by the first task: each plan gets a new token, and opening
        # with it fences the tasks of earlier runs of the same write before a task of this one starts. The call is not
        # retried, so that a wrong address is reported early.
        with closing(Connection(options.url)) as connection:
            opening = open_write(connection, options, write_id_of(options), uuid.uuid4().hex)
            self._plan = connection.run(opening)

    def write(self, iterator: Iterator[Batch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        # Python workers of Spark are reused, so the connection of a task is kept for the next task of this process.
        return write_task(connection_to(self._plan.options.url), self._plan, chunks_of(iterator), partition)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the write. The server refuses all later calls of its tasks."""
        self._end("committed", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort the write and fence tasks that still run. Added jobs stay; a rerun with the same ids adds the rest."""
        # Spark does not wait for its tasks before it calls this. The abort ends the write on the server, so a task that
        # still runs gets WRITEFENCED with its next call.
        self._end("aborted", messages)

    def _end(self, state: Literal["committed", "aborted"], messages: list[WriterCommitMessage | None]) -> None:
        # A message is None for each task that did not end, so an abort counts only finished tasks.
        partitions = len([message for message in messages if isinstance(message, TaskCommit)])
        with closing(Connection(self._plan.options.url)) as connection:
            ending = end_write(connection, self._plan, state, partitions)
            connection.run(ending, retries=self._plan.options.max_retries)
