"""Request and reply: a job that is added for a caller that waits for its result."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple, TypeAlias

from glidemq_async.client.ended import Ended
from glidemq_async.client.result_listener import ResultListener
from glidemq_async.client.waiter import Waiter
from glidemq_async.jobs.job import Job
from glidemq_async.options.stored_options import ReplyTo
from glidemq_async.queues.add_buffer import Added

STORED: Final = frozenset({"added", "held"})
"""The outcomes of an add that stored a job. A held job starts when another job has ended, see Deduplication."""


class AwaitedReply(NamedTuple):
    """A request for the reply to an add, from a caller that may leave during the add."""

    channel: str
    ttl_ms: int | None
    sent: list[asyncio.Future[Added]]
    """Receives the future of the add, which the cancellation of the caller does not reach; see `add_apart`."""

    @property
    def to(self) -> ReplyTo:
        """The part of the request that the server reads."""
        return ReplyTo(self.channel, self.ttl_ms)


AddJob: TypeAlias = Callable[[AwaitedReply], Coroutine[Any, Any, Job[Any, Any]]]
"""Adds the job, and asks for a message to this caller when it ends."""
LATE_MS: Final = 50
"""A job that the server expires at most this long before the deadline has expired because of the deadline."""


class _Placed(NamedTuple):
    job: Job[Any, Any]
    waiter: Waiter
    asked: bool
    """The job is new, and the server knows that this client waits for it."""


# The caller may leave at any moment, because it is cancelled or because its time is over. A job that was added for it
# then has no purpose. The moments differ in what is known:
#
# 1. Before the add. Nothing is stored, and nothing is to be done.
# 2. During the add. The server may store the job, and its id is unknown until the reply. The add therefore goes through
#    the buffer of adds, whose calls the cancellation of a caller does not reach. The job is revoked after the reply.
# 3. While the job waits or runs: it is revoked. The call runs in the background, because a cancelled task must not be
#    delayed. `close` of the queue waits for the call.
# 4. After the end of the job. Its message and the timeout may arrive in the same turn of the event loop. The caller
#    then gets the result although its time is over.
# 5. The process dies, or loses its connection for good. Then no process can revoke the job. The add has sent the time
#    for which the caller waits (`ReplyTo.ttl_ms`). A job that has not started within this time expires.
#
# An add that finds an existing job did not create it, so its caller never revokes it. A job also continues if other
# clients wait for it, because their adds were duplicates of this one. `abandonJob` decides this on the server.
class AwaitedAdd:
    """One add and the wait for its result. `deadline` is the loop time at which the caller leaves.

    `tied` means that the job is revoked when the caller leaves, and expires at the deadline unless it has started.
    """

    def __init__(self, results: ResultListener, add: AddJob, *, deadline: float | None, tied: bool) -> None:
        self._results = results
        self._add = add
        self._deadline = deadline
        self._tied = tied
        self._placed: _Placed | None = None

    async def run(self, job_id: str | None) -> tuple[Job[Any, Any], Ended]:
        """Add the job, and wait for its end. `job_id` is the id that the user has chosen.

        Raises TimeoutError if it expired at the deadline, JobNotFound, and the errors of the add.
        """
        results = self._results
        # The order matters. The subscription is confirmed before the add, so that the end of a fast job reaches this
        # client as a message and not only at the next look at the record.
        if not results.subscribed:
            await results.listen()
        if job_id is not None:
            await results.confirm_before(job_id)
        if (left := self._left()) == 0:
            raise TimeoutError
        job, waiter, asked = await self._place(job_id, left if self._tied else None)
        ended = await results.wait(job.id, waiter, asked=asked)
        if self._is_too_late(ended):
            raise TimeoutError
        return job, ended

    def arrived(self) -> tuple[Job[Any, Any], Ended] | None:
        """Return the job and its end if that arrived in the moment in which the caller left."""
        if self._placed is None or not self._placed.waiter.done():
            return None
        ended = self._placed.waiter.result()
        return None if ended is None or self._is_too_late(ended) else (self._placed.job, ended)

    async def _place(self, job_id: str | None, ttl_ms: int | None) -> _Placed:
        # `expect` comes before the add, because the end may arrive before the id is known. `arrived` is in a `finally`:
        # an add that fails must not keep the early replies of others in memory.
        results = self._results
        sent: list[asyncio.Future[Added]] = []
        results.expect(job_id)
        try:
            job = await self._add(AwaitedReply(results.channel, ttl_ms, sent))
        except asyncio.CancelledError:
            if sent:
                results.in_background(self._leave(sent[0]))
            raise
        else:
            asked = job.outcome == "added"
            self._placed = _Placed(job, results.watch(job.id, asked=asked, tied=asked and self._tied), asked)
            return self._placed
        finally:
            results.arrived()

    async def _leave(self, sent: asyncio.Future[Added]) -> None:
        """Cancel the wait for a job when the reply to its add has arrived."""
        added = await asyncio.shield(sent)  # it may be the task of the call, which has to end
        if not added.errors:
            asked = added.outcomes.get(0, "added") in STORED
            waiter = self._results.watch(added.ids[0], asked=asked, tied=asked and self._tied)
            self._results.leave(added.ids[0], waiter)

    def _left(self) -> int | None:
        """Return the milliseconds until the deadline, rounded up; None without a deadline."""
        if self._deadline is None:
            return None
        return max(0, math.ceil((self._deadline - asyncio.get_running_loop().time()) * 1000))

    def _is_too_late(self, ended: Ended) -> bool:
        """Return whether the job has expired because its caller would have left."""
        # The clocks of the server and of this process may differ by some milliseconds, so the server may be the first
        # that finds the time over. The caller gets the same error in both cases. A shorter `ttl` of the user is another
        # case: the job expires before the deadline, and the caller gets JobFailed.
        is_expired = ended.state == "failed" and not ended.payload and ended.reason == "expired"
        return self._tied and is_expired and (left := self._left()) is not None and left <= LATE_MS
