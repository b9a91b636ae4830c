"""Sender of the jobs of one task to one queue, in small calls and at the pace that the queue allows.

When most jobs exist already, as in a rerun, the sender sends their ids first and then only the missing jobs.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import accumulate
from typing import Final, TypeVar, cast

from glidemq_async.errors import QueueFull
from glidemq_async.functions.calling import Arg
from glidemq_async.functions.writes import MOST_JOBS, Duplicates, WriteReply
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.write.errors import Backpressure, DuplicateJob, WriteFenced, write_error
from glidemq_async.spark.write.options import OnDuplicate
from glidemq_async.spark.write.row_reader import FIELDS, EncodedRows
from glidemq_async.spark.write.write_plan import WritePlan, functions_of
from glidemq_async.storage.protocol import FunctionError

__all__ = ["JobBuffer", "JobSender"]

T = TypeVar("T")

_PROBE_FACTOR: Final = 5
"""A probe costs the server a fifth of an add per row, so it contains five times the rows."""
_DUPLICATES: Final[dict[OnDuplicate, Duplicates]] = {"skip": "remember", "fail": "report", "count-only": "count"}
_PAUSES: Final = (0.02, 0.05, 0.1, 0.25, 0.5)


class JobBuffer:
    """Jobs of one queue that wait to be sent, in the flat form of `WriteCalls.add`."""

    def __init__(self) -> None:
        self.flat: list[Arg] = []
        self.marks: list[bytes] = []
        self.rows = 0
        self.size = 0

    def append(self, encoded: EncodedRows, start: int, most_rows: int, most_bytes: int) -> int:
        """Append rows from position `start` until the buffer is full, at least one, and return their number."""
        room = max(1, most_rows - self.rows)
        sizes = [*accumulate(encoded.sizes[start : start + room], initial=self.size)]
        # At least one row (`lo=1`): a row that is larger than the limit must still be sent, alone.
        rows = min(bisect_left(sizes, most_bytes, lo=1), len(sizes) - 1)
        self.flat += encoded.flat[start * FIELDS : (start + rows) * FIELDS]
        self.rows += rows
        self.size = sizes[rows]
        return rows

    @property
    def may_be_probed(self) -> bool:
        """True if the ids determine the effect of an add.

        With a deduplication an add may replace an existing job.
        """
        return not any(b"dedup" in cast("bytes", extra) for extra in set(self.flat[FIELDS - 1 :: FIELDS]))


class JobSender:
    """Sender of jobs to one queue, for one task of a write."""

    def __init__(self, connection: Connection, plan: WritePlan, queue: str) -> None:
        self._plan, self._options, self._queue = plan, plan.options, queue
        self._functions = functions_of(connection, plan.options, queue)
        # Each call passes the incarnation that the queue had when the write was opened. If the queue is obliterated and
        # created again during the write, the server refuses the call. Without it a late task would add half of its jobs
        # to a new queue that knows nothing of this write.
        self._functions.caller.incarnation = plan.queues[queue]
        self._duplicates: Duplicates = _DUPLICATES[plan.options.on_duplicate]
        self._probing = False

    @property
    def most_rows(self) -> int:
        """Number of rows of the next buffer."""
        size = self._options.batch_size
        return min(MOST_JOBS, _PROBE_FACTOR * size) if self._probing else size

    async def send(self, buffer: JobBuffer) -> Counter[str]:
        """Add the jobs of a buffer, wait as the limits of the write require, and return the counts."""
        counts, flat, marks = Counter(rejected=len(buffer.marks)), buffer.flat, buffer.marks
        # A probe is an extra round trip, so it is worth it only if most jobs exist. The replies of adds and probes
        # switch it on and off. Both paths give the same counts: the server treats a probed row exactly like one that
        # was sent.
        if self._probing and flat and buffer.may_be_probed:
            flat = await self._probe(flat, counts)
        # One buffer becomes several calls of `batch_size` rows, because the server serves no other client during a
        # call.
        # A call of expensive jobs adds only the first ones of its rows.
        step, start = self._options.batch_size * FIELDS, 0
        while start < len(flat):
            reply = await self._add(flat[start : start + step], marks, counts)
            marks = []
            start += reply.considered * FIELDS
            await self._keep_pace(reply)
        if marks:
            await self._add([], marks, counts)
        return counts

    async def _probe(self, flat: list[Arg], counts: Counter[str]) -> list[Arg]:
        """Count the rows whose jobs exist, on the server, and return the other rows."""
        ids = cast("list[str]", flat[::FIELDS])
        plan, functions = self._plan, self._functions
        reply = await self._call_when_not_full(
            lambda: functions.writes.probe(plan.write_id, plan.token, ids, duplicates=self._duplicates)
        )
        counts.update(replayed=reply.replayed, duplicate=reply.duplicate)
        self._probing = _are_most(reply.replayed + reply.duplicate, len(ids))
        # The reply contains positions and not ids, because a chunk may contain an id twice.
        missing: list[Arg] = []
        for at in reply.missing:
            missing += flat[at * FIELDS : (at + 1) * FIELDS]
        return missing

    async def _add(self, flat: list[Arg], marks: list[bytes], counts: Counter[str]) -> WriteReply:
        plan, functions, rate = self._plan, self._functions, self._options.rate
        reply = await self._call_when_not_full(
            lambda: functions.writes.add(
                plan.write_id,
                plan.token,
                flat,
                rate=rate,
                duplicates=self._duplicates,
                marks=marks,
                may_end_early=True,
            )
        )
        counts.update(inserted=reply.inserted, replayed=reply.replayed, duplicate=reply.duplicate)
        if flat and _are_most(reply.replayed + reply.duplicate, reply.considered):
            self._probing = True
        if reply.duplicate and self._options.on_duplicate == "fail":
            raise DuplicateJob(
                f"job {reply.first_duplicate!r} exists already in queue {self._queue!r}, and this write "
                f"({plan.write_id}) did not add it; change the ids, or set onDuplicate=skip to keep such jobs"
            )
        return reply

    async def _call_when_not_full(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call, and repeat it while the server is out of memory."""
        options, full_since = self._options, None
        loop = asyncio.get_running_loop()
        # The server refuses adds while its memory is full (QueueFull), before it changes anything. The call is
        # therefore repeated with a new number: a refused call had no effect, so it cannot take effect twice.
        while True:
            try:
                return await call()
            except QueueFull as error:
                full_since = full_since or loop.time()
                if loop.time() - full_since >= options.backpressure_timeout:
                    raise Backpressure(f"queue {self._queue!r}: {error}") from None
                await asyncio.sleep(_PAUSES[-1])
            except FunctionError as error:
                raise write_error(error, self._queue) from None

    async def _keep_pace(self, reply: WriteReply) -> None:
        if reply.wait:
            await asyncio.sleep(reply.wait / 1000)
        if self._options.max_queue_depth and reply.depth > self._options.max_queue_depth:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        functions, options, waited, pauses = self._functions, self._options, 0.0, iter(_PAUSES)
        pause = next(pauses)
        while (depth := await functions.writes.get_depth()) > options.resume_queue_depth:
            if waited >= options.backpressure_timeout:
                raise Backpressure(
                    f"queue {self._queue!r} has {depth} waiting jobs, and has been above "
                    f"resumeQueueDepth={options.resume_queue_depth} for {waited:.1f} s (backpressureTimeout); check "
                    "that workers run, then run the write again: with the same ids it continues"
                )
            await asyncio.sleep(pause)
            waited, pause = waited + pause, next(pauses, pause)
            await self._check_open()

    async def _check_open(self) -> None:
        """Raise WriteFenced if the write has ended, or another run has taken it over."""
        # A paused task makes no call that the server could refuse. Without this check it would hold its slot in Spark
        # for the entire timeout after its write was aborted or taken over.
        (found,) = await self._functions.writes.get([self._plan.write_id])
        if found.get(b"state") != b"open" or found.get(b"token") != self._plan.token.encode():
            raise WriteFenced(f"write {self._plan.write_id} of queue {self._queue!r} ended while this task was paused")


def _are_most(known: int, rows: int) -> bool:
    """Return True if at least half of the rows exist. Probing saves time from a smaller share on."""
    return 2 * known >= rows
