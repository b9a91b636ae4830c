"""An idle worker whose calls a test makes one by one, and to which adds push jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from glidemq_async.functions.outcomes import Completed
from glidemq_async.functions.push import JobsPushed
from glidemq_async.functions.settle import SettleReply
from glidemq_async.functions.wakeup import Message, read_message
from glidemq_async.storage import Storage
from tests.support.fake_worker import NOTHING, FakeWorker, Lease, run_of, with_runs
from tests.support.helpers import AnyQueue, soon
from tests.support.stores import RunningStore


class IdleWorker(FakeWorker):
    """A worker that listens on its channel."""

    def __init__(self, queue: AnyQueue, store: RunningStore) -> None:
        super().__init__(queue, store)
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()

    async def wait(
        self, slots: int = 1, *, accepts_pushes: bool = True, has_push: bool = False, lock_ms: int = 30_000
    ) -> SettleReply:
        """Claim, and wait for more jobs with the slots that remain."""
        self._last = self._functions.settle.request(
            self.channel,
            self.name,
            slots,
            lock_ms,
            subscribed=True,
            accepts_pushes=accepts_pushes,
            has_push=has_push,
        )
        return await self._functions.settle.send(self._last)

    async def settle_and_wait(
        self,
        lease: Lease,
        *,
        slots: int = 1,
        accepts_pushes: bool = True,
        has_push: bool = False,
        verify: bool = False,
        incarnation: str | None = None,
    ) -> SettleReply:
        """Complete a run, and claim or wait with these slots.

        incarnation: the identity of the queue that the worker has opened, if it is not the present one.
        """
        request = self._functions.settle.request(
            self.channel,
            self.name,
            slots,
            30_000,
            subscribed=True,
            verify=verify,
            accepts_pushes=accepts_pushes,
            has_push=has_push,
            ran_ms=(7, 0),
        )
        request.incarnation = incarnation or request.incarnation
        self._last = with_runs(request, [run_of(lease, Completed(NOTHING))])
        return await self._functions.settle.send(self._last)

    async def pushed(self) -> JobsPushed:
        """Return the next message, which is a push."""
        message = await self.message()
        assert isinstance(message, JobsPushed), message
        return message

    async def message(self) -> Message | None:
        """Return the next message."""
        return await soon(self._messages.get())

    @asynccontextmanager
    async def listening(self, node: Storage | None = None) -> AsyncGenerator[None]:
        """Listen on the channel of this worker. node: where, if that is not the queue's server."""
        link = asyncio.Event()
        subscription = await (node or self._storage).subscribe(
            self.base,
            f"{self.base}:wake:{self.name}",
            lambda message: self._messages.put_nowait(read_message(message)),
            lambda up: link.set() if up else None,
        )
        try:
            await soon(link.wait())
            yield
        finally:
            await subscription.close()


def leases_in(pushed: JobsPushed) -> list[Lease]:
    """Return the leases of pushed jobs."""
    return [
        Lease(job.id, job.entry, job.fence, job.name, pushed.claimed_at if job.is_plain else "") for job in pushed.jobs
    ]
