"""Combine concurrent adds. While one call is in flight, new adds collect and are sent by the next call.

An add waits only while another call is in flight. Each caller waits on a separate future, so cancelling one caller does
not affect the others. A cancelled add may have been stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import IncompatibleQueueError, QueueClosed
from glidemq_async.functions.add import AddReply, AddRequest
from glidemq_async.functions.calling import Wait
from glidemq_async.storage.protocol import FunctionError

MAX_JOBS: Final = 500
"""Maximum number of jobs in one call. A call blocks the server for all clients, so it must stay short."""
MAX_BYTES: Final = 1024 * 1024
"""Size of the payloads in bytes at which a call is full."""


class Added(NamedTuple):
    """The reply for one added job: its id, the outcome, and the server's time in milliseconds."""

    id: str
    outcome: str
    now: int


# No timer waits for more jobs. An add that finds nothing in flight is sent immediately, so a single caller loses no
# time. Adds that come during a call share the next one. The more callers there are, the larger the batches become,
# without a setting.
#
# Each durability has a separate buffer, because `WAIT` holds up a whole call. Plain adds do not wait behind it.
class Adder:
    """The buffer of adds of one queue client and one durability."""

    def __init__(self, client: QueueClient, wait: Wait) -> None:
        self._client = client
        self._wait: Wait = wait
        self._line: deque[tuple[AddRequest, asyncio.Future[Added]]] = deque()
        self._sending = False
        # True if the last call carried several jobs. Their callers have just received their replies and are likely to
        # add again, so the next job waits one iteration of the loop for them instead of being sent alone.
        self._crowded = False
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._sender: asyncio.Task[None] | None = None
        self._closed = False

    async def add(self, job: AddRequest) -> Added:
        """Add one job. A single caller sends it directly, without a second task."""
        # The direct way saves a task and a turn of the event loop for a program that adds one job after another. It
        # must not overtake anyone: it is only taken when nothing is in flight and nothing waits in the buffer.
        # `_sending` is set before the await, so an add that comes during the call goes into the buffer, and `_send_on`
        # sends it afterwards.
        if self._sending or self._crowded or self._closed:
            return await self.submit(job)
        self._sending = True
        self._all_sent.clear()
        try:
            reply = await self._call([job])
        finally:
            self._send_on()
        return _added(reply, 0)

    def submit(self, job: AddRequest) -> asyncio.Future[Added]:
        """Append a job to the buffer. The future gets the outcome, or the exception of the call."""
        if self._closed:
            raise QueueClosed(f"queue {self._client.queue!r} is closed; create a new Queue")
        future: asyncio.Future[Added] = asyncio.get_running_loop().create_future()
        self._line.append((job, future))
        if not self._sending:
            self._send_on()
        return future

    async def close(self) -> None:
        """Refuse further jobs, and wait for the replies of those in the buffer."""
        self._closed = True
        await self._all_sent.wait()

    def _send_on(self) -> None:
        """Start the next call after the previous one has ended, if jobs have collected."""
        # An add that finds `_sending` set relies on another task to send its job. Two rules keep it from waiting for
        # ever. First, every task that sends ends here, even if it is cancelled or its call fails: `add` and `_send_all`
        # call this method in a `finally`. Second, nothing is awaited between the look at `_line` and the change of
        # `_sending`. With an await there, a job could be appended after the look, find `_sending` still set, and have
        # no sender.
        self._sending = bool(self._line)
        if not self._sending:
            self._all_sent.set()
        elif self._sender is None:
            self._all_sent.clear()
            self._sender = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._line:
                await self._send(self._next_batch())
        finally:
            self._sender = None
            self._send_on()

    def _next_batch(self) -> list[tuple[AddRequest, asyncio.Future[Added]]]:
        batch: list[tuple[AddRequest, asyncio.Future[Added]]] = []
        size = 0
        while self._line and len(batch) < MAX_JOBS:
            size += len(self._line[0][0].data)
            if size > MAX_BYTES and batch:
                break  # send a large payload alone, so that only its own caller waits for it
            batch.append(self._line.popleft())
        self._crowded = len(batch) > 1
        return batch

    async def _call(self, jobs: list[AddRequest]) -> AddReply:
        if failpoints.armed:
            failpoints.hit("add.before_send")
        reply = await self._answer(jobs)
        if failpoints.armed:
            failpoints.hit("add.after_reply")
        return reply

    async def _answer(self, jobs: list[AddRequest]) -> AddReply:
        # UNDECLARED means that the queue was obliterated or lost since this client declared its mode. The server
        # refuses such a call before it writes anything, so the same jobs can be sent again as a new call. A job added
        # to a queue without its mode could break the promise of that mode.
        while True:
            functions = self._client.functions
            meant = functions.caller.incarnation
            try:
                return await functions.add.jobs(jobs, self._wait)
            except FunctionError as error:
                if error.code != "UNDECLARED":
                    raise self._client.refused(error) from None
            await self._client.open_again(meant)

    async def _send(self, batch: list[tuple[AddRequest, asyncio.Future[Added]]]) -> None:
        try:
            reply = await self._call([job for job, _ in batch])
        except BaseException as error:
            if isinstance(error, IncompatibleQueueError) and len(batch) > 1:
                # The mode of the queue was set after the jobs were checked. Find the job that does not fit it.
                for item in batch:
                    await self._send([item])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            # A cancellation of the sender (a loop that shuts down). The callers have their error now, and the task must
            # still end as cancelled.
            if not isinstance(error, Exception):
                raise
            return
        for position, (_, future) in enumerate(batch):
            if not future.done():
                future.set_result(_added(reply, position))


def _added(reply: AddReply, position: int) -> Added:
    return Added(reply.ids[position], reply.outcomes.get(position, "added"), reply.now)
