"""The rows of one task for one queue: in calls that others can live beside, at the pace that the queue allows.

Where jobs are found to exist, as in a rerun, the server is asked for their ids first and gets only what it lacks.
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
from glidemq_async.functions.write_calls import MOST_JOBS, Duplicates, WriteReply
from glidemq_async.spark.connection import Connection
from glidemq_async.spark.write.errors import Backpressure, DuplicateJob, WriteFenced, told
from glidemq_async.spark.write.options import OnDuplicate
from glidemq_async.spark.write.row_reader import FIELDS, EncodedRows
from glidemq_async.spark.write.write_plan import WritePlan, functions_of
from glidemq_async.storage.protocol import FunctionError

__all__ = ["JobBuffer", "JobSender"]

T = TypeVar("T")

#: A probe of so many times the rows takes the server no longer than adding them.
_PROBED: Final = 5
_DUPLICATES: Final[dict[OnDuplicate, Duplicates]] = {"skip": "remember", "fail": "tell", "count-only": "count"}
_PAUSES: Final = (0.02, 0.05, 0.1, 0.25, 0.5)


class JobBuffer:
    """Jobs of one queue that have not been sent, flat as `add_to_write` takes them."""

    def __init__(self) -> None:
        self.flat: list[Arg] = []
        self.marks: list[bytes] = []
        self.rows = 0
        self.size = 0

    def take(self, run: EncodedRows, start: int, most_rows: int, most_bytes: int) -> int:
        """Take rows of a run from `start` on until one makes the buffer full, at least one; returns how many."""
        room = max(1, most_rows - self.rows)
        sizes = [*accumulate(run.sizes[start : start + room], initial=self.size)]
        rows = min(bisect_left(sizes, most_bytes, lo=1), len(sizes) - 1)
        self.flat += run.flat[start * FIELDS : (start + rows) * FIELDS]
        self.rows += rows
        self.size = sizes[rows]
        return rows

    @property
    def may_be_probed(self) -> bool:
        """Whether the ids tell what an add would do: one with a deduplication may replace the job of its own id."""
        return not any(b"dedup" in cast("bytes", extra) for extra in set(self.flat[FIELDS - 1 :: FIELDS]))


class JobSender:
    """Adds jobs to one queue, for one task of a write."""

    def __init__(self, connection: Connection, plan: WritePlan, queue: str) -> None:
        self._plan, self._options, self._queue = plan, plan.options, queue
        self._functions = functions_of(connection, plan.options, queue)
        self._functions.incarnation = plan.queues[queue]
        self._duplicates: Duplicates = _DUPLICATES[plan.options.on_duplicate]
        self._probing = False

    @property
    def most_rows(self) -> int:
        """How many rows the next buffer should hold."""
        size = self._options.batch_size
        return min(MOST_JOBS, _PROBED * size) if self._probing else size

    async def send(self, buffer: JobBuffer) -> Counter[str]:
        """Add the jobs of a buffer, and return how many rows were what. Waits for the pace that is to be kept."""
        counts, flat, marks = Counter(rejected=len(buffer.marks)), buffer.flat, buffer.marks
        if self._probing and flat and buffer.may_be_probed:
            flat = await self._probe(flat, counts)
        step = self._options.batch_size * FIELDS
        for start in range(0, len(flat), step):
            reply = await self._add(flat[start : start + step], marks, counts)
            marks = []
            await self._keep_pace(reply)
        if marks:
            await self._add([], marks, counts)
        return counts

    async def _probe(self, flat: list[Arg], counts: Counter[str]) -> list[Arg]:
        """Let the server count the rows whose ids it knows; returns the others."""
        ids = cast("list[str]", flat[::FIELDS])
        plan, functions = self._plan, self._functions
        reply = await self._answered(
            lambda: functions.probe_write(plan.write_id, plan.token, ids, duplicates=self._duplicates)
        )
        counts.update(replayed=reply.replayed, duplicate=reply.duplicate)
        self._probing = _are_most(reply.replayed + reply.duplicate, len(ids))
        missing: list[Arg] = []
        for at in reply.missing:
            missing += flat[at * FIELDS : (at + 1) * FIELDS]
        return missing

    async def _add(self, flat: list[Arg], marks: list[bytes], counts: Counter[str]) -> WriteReply:
        plan, functions, rate = self._plan, self._functions, self._options.rate
        reply = await self._answered(
            lambda: functions.add_to_write(
                plan.write_id, plan.token, flat, rate=rate, duplicates=self._duplicates, marks=marks
            )
        )
        counts.update(inserted=reply.inserted, replayed=reply.replayed, duplicate=reply.duplicate)
        if flat and _are_most(reply.replayed + reply.duplicate, len(flat) // FIELDS):
            self._probing = True
        if reply.duplicate and self._options.on_duplicate == "fail":
            raise DuplicateJob(
                f"job {reply.first_duplicate!r} stands in queue {self._queue!r} already, it is none of this write "
                f"({plan.write_id}); onDuplicate=skip leaves such jobs as they are"
            )
        return reply

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call; while the server is out of memory, again."""
        options, full_since = self._options, None
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await call()
            except QueueFull as error:
                full_since = full_since or loop.time()
                if loop.time() - full_since >= options.backpressure_timeout:
                    raise Backpressure(f"queue {self._queue!r}: {error}") from None
                await asyncio.sleep(_PAUSES[-1])
            except FunctionError as error:
                raise told(error, self._queue) from None

    async def _keep_pace(self, reply: WriteReply) -> None:
        if reply.wait:
            await asyncio.sleep(reply.wait / 1000)
        if self._options.max_queue_depth and reply.depth > self._options.max_queue_depth:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        functions, options, waited, pauses = self._functions, self._options, 0.0, iter(_PAUSES)
        pause = next(pauses)
        while (depth := await functions.get_depth()) > options.resume_queue_depth:
            if waited >= options.backpressure_timeout:
                raise Backpressure(
                    f"{depth} jobs wait in queue {self._queue!r}, more than resumeQueueDepth="
                    f"{options.resume_queue_depth}, for {waited:.1f} s (backpressureTimeout): are workers running? "
                    "A rerun with the same ids goes on from here"
                )
            await asyncio.sleep(pause)
            waited, pause = waited + pause, next(pauses, pause)
            (found,) = await functions.get_writes([self._plan.write_id])
            if found.get(b"state") != b"open" or found.get(b"token") != self._plan.token.encode():
                raise WriteFenced(f"write {self._plan.write_id} of queue {self._queue!r} ended while this task waited")


def _are_most(known: int, rows: int) -> bool:
    """Whether to ask for ids first: it pays well before half of the rows are known."""
    return 2 * known >= rows
