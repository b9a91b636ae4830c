"""Storage of invalid rows as jobs in the queue's dead-letter queue (`onInvalid=dlq`)."""

from __future__ import annotations

from hashlib import blake2b

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.write.options import WriteOptions
from glidemq_async.spark.write.row_reader import InvalidRow
from glidemq_async.spark.write.write_plan import functions_of
from glidemq_async.stored.names import MAX_ID_BYTES

__all__ = ["INVALID_ROW", "InvalidRowSink"]

INVALID_ROW = "invalid-row"
"""The name of these jobs."""
_MAX_ROW_LENGTH = 10_000


class InvalidRowSink:
    """Adds a job for each invalid row. Its id derives from the row, so a retried task adds it once."""

    def __init__(self, connection: Connection, options: WriteOptions, write_id: str) -> None:
        self._connection, self._options, self._write_id = connection, options, write_id
        self._functions: Functions | None = None

    async def keep(self, row: InvalidRow, mark: str) -> None:
        """Add the row, with the reason why it is invalid."""
        if self._functions is None:
            source = functions_of(self._connection, self._options, self._options.queues[0])
            target = await source.dead_letters.get_queue()
            self._functions = functions_of(self._connection, self._options, target)
            await self._functions.queue.open(None)
        data = {
            "queue": self._options.queues[0],
            "reason": row.reason,
            "row": row.shown[:_MAX_ROW_LENGTH],
            "write_id": self._write_id,
        }
        request = AddRequest(_job_id(self._write_id, mark), INVALID_ROW, MsgpackSerializer().dumps(data), b"", b"")
        await self._functions.add.jobs([request])


def _job_id(write_id: str, mark: str) -> str:
    # The id of the write is a part of it, so the same bad row in another write is reported again.
    found = f"{write_id}/{mark}"
    if len(found.encode()) <= MAX_ID_BYTES:
        return found
    return f"{blake2b(write_id.encode(), digest_size=16).hexdigest()}/{mark}"
