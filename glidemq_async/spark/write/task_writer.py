"""One task of a write: send its rows to the queues in batches, at the pace that the queues and the options allow.

A task may run twice, even at the same time, or after the end of its write. The server counts each row once and refuses
late calls; see commit_protocol.py.
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
    """The commit message of a task. Its counts are for cross-checks only; reports contain the counts of the server."""

    write_id: str
    token: str
    partition: int
    counts: dict[str, int]


def write_task(
    connection: Connection, plan: WritePlan, chunks: Iterable[tuple[Columns, int]], partition: int
) -> TaskCommit:
    """Write the rows of one task. Raises the exceptions of `errors.py`, StorageUnavailable, and errors of the queue."""
    work = TaskWriter(connection, plan, partition).write(chunks)
    return connection.run(work, retries=plan.options.max_retries)


class TaskWriter:
    """Writer of the rows of one task, in the event loop of a connection."""

    def __init__(self, connection: Connection, plan: WritePlan, partition: int) -> None:
        self._plan, self._options, self._partition = plan, plan.options, partition
        self._senders = {queue: JobSender(connection, plan, queue) for queue in plan.queues}
        self._buffers = {queue: JobBuffer() for queue in plan.queues}
        self._in_flight: deque[asyncio.Task[None]] = deque()
        self._counts: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        self._sink: InvalidRowSink | None = None
        if plan.options.on_invalid == "dlq":
            self._sink = InvalidRowSink(connection, plan.options, plan.write_id)

    async def write(self, chunks: Iterable[tuple[Columns, int]]) -> TaskCommit:
        """Write all rows."""
        reader = RowReader(self._options)
        try:
            for columns, count in chunks:
                for encoded in reader.read(columns, count):
                    await self._take(encoded)
            await self._finish()
        finally:
            # After an error no call may stay in flight: the connection is reused by the next task of this process.
            for task in self._in_flight:
                task.cancel()
            await asyncio.gather(*self._in_flight, return_exceptions=True)
        return TaskCommit(self._plan.write_id, self._plan.token, self._partition, dict(self._counts))

    async def _finish(self) -> None:
        """Send the rest of each buffer, and wait for all calls."""
        for queue, buffer in self._buffers.items():
            if buffer.rows:
                await self._send(queue)
        while self._in_flight:
            await self._in_flight.popleft()

    async def _take(self, encoded: EncodedRows | InvalidRow) -> None:
        if isinstance(encoded, InvalidRow):
            await self._handle_invalid(encoded)
        elif encoded.queue in self._buffers:
            await self._add_rows(encoded)
        else:  # the write is committed in this queue already
            self._counts["replayed"] += len(encoded.sizes)

    async def _add_rows(self, encoded: EncodedRows) -> None:
        added, most_bytes = 0, self._options.max_batch_bytes
        while added < len(encoded.sizes):
            buffer, most_rows = self._buffers[encoded.queue], self._senders[encoded.queue].most_rows
            added += buffer.append(encoded, added, most_rows, most_bytes)
            if buffer.rows >= most_rows or buffer.size >= most_bytes:
                await self._send(encoded.queue)

    async def _handle_invalid(self, row: InvalidRow) -> None:
        if self._options.on_invalid == "fail":
            raise RowRefused(
                f"{row.label} is not a valid job: {row.reason}; correct it, or set onInvalid=drop (count it) or "
                "onInvalid=dlq (add it to the dead-letter queue)"
            )
        # The mark identifies the row for the ledger, so a retried task counts it once. Equal rows of one partition are
        # numbered, because each of them counts.
        self._seen[row.digest] += 1
        mark = f"{self._partition}/{row.digest}/{self._seen[row.digest]}"
        if self._sink is not None:
            await self._sink.keep(row, mark)
        await self._add_mark(mark)

    async def _add_mark(self, mark: str) -> None:
        queue = next(iter(self._buffers), None)
        if queue is not None:
            # Marks and ids share the ledger. Ids contain no control characters, so a mark never equals an id.
            buffer = self._buffers[queue]
            buffer.marks.append(b"\x1f" + mark.encode())
            buffer.rows += 1
            if buffer.rows >= self._options.batch_size:
                await self._send(queue)

    async def _send(self, queue: str) -> None:
        """Start to send the buffer of a queue. Wait first while `pipelineDepth` calls are in flight."""
        # The loop runs only while this coroutine awaits, because reading rows blocks it. So several calls are kept in
        # flight: the server works on them while the next rows are read. The order of calls to one queue does not
        # matter, since the ledger counts each row once.
        buffer, self._buffers[queue] = self._buffers[queue], JobBuffer()
        while len(self._in_flight) >= self._options.pipeline_depth:
            await self._in_flight.popleft()
        self._in_flight.append(asyncio.create_task(self._send_buffer(queue, buffer)))
        await asyncio.sleep(0)  # the call is sent before the next rows are read, which blocks the loop

    async def _send_buffer(self, queue: str, buffer: JobBuffer) -> None:
        self._counts.update(await self._senders[queue].send(buffer))
