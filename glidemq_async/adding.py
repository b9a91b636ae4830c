"""Concurrent adds ride together: one call is in flight, what arrives meanwhile goes in the next one.

Nothing waits when the line is idle. Each caller waits on a future of its own, so cancelling one caller does not
touch the others; a cancelled add may have happened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from glidemq_async import failpoints
from glidemq_async.errors import QueueClosed
from glidemq_async.functions.callers import AddRequest, Functions, Wait

MAX_JOBS: Final = 500
MAX_BYTES: Final = 1024 * 1024


class Added(NamedTuple):
    """The id of a job, what came of adding it, and the server's time in milliseconds."""

    id: str
    outcome: str
    now: int


class Adder:
    """The line of adds of one queue client and one durability."""

    def __init__(self, functions: Functions, wait: Wait) -> None:
        self._functions = functions
        self._wait: Wait = wait
        self._line: deque[tuple[AddRequest, asyncio.Future[Added]]] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._closed = False

    def submit(self, job: AddRequest) -> asyncio.Future[Added]:
        """Put a job in line; the future is resolved with its outcome or fails with what the call raised."""
        if self._closed:
            raise QueueClosed("asked to add a job, found the queue closed: open it again before adding")
        future: asyncio.Future[Added] = asyncio.get_running_loop().create_future()
        self._line.append((job, future))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return future

    async def close(self) -> None:
        """Send what is in line, then refuse more."""
        self._closed = True
        if self._sender is not None:
            await asyncio.wait([self._sender])

    async def _send_all(self) -> None:
        try:
            while self._line:
                await self._send(self._next_batch())
        finally:
            self._sender = None

    def _next_batch(self) -> list[tuple[AddRequest, asyncio.Future[Added]]]:
        batch: list[tuple[AddRequest, asyncio.Future[Added]]] = []
        size = 0
        while self._line and len(batch) < MAX_JOBS and size < MAX_BYTES:
            item = self._line.popleft()
            size += len(item[0].data)
            batch.append(item)
        return batch

    async def _send(self, batch: list[tuple[AddRequest, asyncio.Future[Added]]]) -> None:
        try:
            if failpoints.armed:
                failpoints.hit("add.before_send")
            reply = await self._functions.add_jobs([job for job, _ in batch], self._wait)
            if failpoints.armed:
                failpoints.hit("add.after_reply")
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for position, (_, future) in enumerate(batch):
            if not future.done():
                outcome = reply.outcomes.get(position, "added")
                future.set_result(Added(reply.ids[position], outcome, reply.now))
