"""What one task of a write does: jobs in batches to the queues, at the pace that the queue and the user allow.

The server tells what has come before (functions/writes.lua), so a task may run again, beside itself, or too late.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from glidemq_async.spark.connection import Connection
from glidemq_async.spark.write.columns import Columns
from glidemq_async.spark.write.errors import RowRefused
from glidemq_async.spark.write.invalid_rows import InvalidRowSink
from glidemq_async.spark.write.job_sender import JobBuffer, JobSender
from glidemq_async.spark.write.row_reader import EncodedRows, InvalidRow, RowReader
from glidemq_async.spark.write.write_plan import WritePlan

__all__ = ["TaskCommit", "TaskWriter", "write_task"]


@dataclass
class TaskCommit(WriterCommitMessage):
    """What a task did, for cross-checks: the numbers that count are the server's."""

    write_id: str
    token: str
    partition: int
    counts: dict[str, int]


def write_task(
    connection: Connection, plan: WritePlan, chunks: Iterable[tuple[Columns, int]], partition: int
) -> TaskCommit:
    """Write the rows of one task. Raises what `write_errors` has, StorageUnavailable and what the queue refuses."""
    work = TaskWriter(connection, plan, partition).write(chunks)
    return connection.run(work, retries=plan.options.max_retries)


class TaskWriter:
    """Writes the rows of one task, in the event loop of a connection."""

    def __init__(self, connection: Connection, plan: WritePlan, partition: int) -> None:
        self._plan, self._options, self._partition = plan, plan.options, partition
        self._senders = {queue: JobSender(connection, plan, queue) for queue in plan.queues}
        self._buffers = {queue: JobBuffer() for queue in plan.queues}
        self._flying: deque[asyncio.Task[None]] = deque()
        self._counts: Counter[str] = Counter()
        self._met: Counter[str] = Counter()
        self._sink: InvalidRowSink | None = None
        if plan.options.on_invalid == "dlq":
            self._sink = InvalidRowSink(connection, plan.options, plan.write_id)

    async def write(self, chunks: Iterable[tuple[Columns, int]]) -> TaskCommit:
        """Write all rows."""
        reader = RowReader(self._options)
        try:
            for columns, count in chunks:
                for run in reader.read(columns, count):
                    if isinstance(run, InvalidRow):
                        await self._refuse(run)
                    elif run.queue in self._buffers:
                        await self._take(run)
                    else:  # this queue has the whole write already
                        self._counts["replayed"] += len(run.sizes)
            for queue, buffer in self._buffers.items():
                if buffer.rows:
                    await self._send(queue)
            while self._flying:
                await self._flying.popleft()
        finally:
            for task in self._flying:
                task.cancel()
            await asyncio.gather(*self._flying, return_exceptions=True)
        return TaskCommit(self._plan.write_id, self._plan.token, self._partition, dict(self._counts))

    async def _take(self, run: EncodedRows) -> None:
        taken, most_bytes = 0, self._options.max_batch_bytes
        while taken < len(run.sizes):
            buffer, most_rows = self._buffers[run.queue], self._senders[run.queue].most_rows
            taken += buffer.take(run, taken, most_rows, most_bytes)
            if buffer.rows >= most_rows or buffer.size >= most_bytes:
                await self._send(run.queue)

    async def _refuse(self, row: InvalidRow) -> None:
        if self._options.on_invalid == "fail":
            raise RowRefused(
                f"{row.told} is no job: {row.reason}; correct it, or set onInvalid=drop (counted) or "
                "onInvalid=dlq (kept in the dead-letter queue)"
            )
        self._met[row.digest] += 1
        mark = f"{self._partition}/{row.digest}/{self._met[row.digest]}"
        if self._sink is not None:
            await self._sink.keep(row, mark)
        queue = next(iter(self._buffers), None)
        if queue is not None:
            # A control character, so that no id is like it.
            buffer = self._buffers[queue]
            buffer.marks.append(b"\x1f" + mark.encode())
            buffer.rows += 1
            if buffer.rows >= self._options.batch_size:
                await self._send(queue)

    async def _send(self, queue: str) -> None:
        """Hand a buffer over; waits while as many calls are in flight as may be."""
        buffer, self._buffers[queue] = self._buffers[queue], JobBuffer()
        while len(self._flying) >= self._options.pipeline_depth:
            await self._flying.popleft()
        self._flying.append(asyncio.create_task(self._deliver(queue, buffer)))
        await asyncio.sleep(0)  # it goes out before the next rows are read, which blocks

    async def _deliver(self, queue: str, buffer: JobBuffer) -> None:
        self._counts.update(await self._senders[queue].send(buffer))
