"""Waits for the results of jobs: one reply channel per client and queue, with the job records as fallback.

A published reply can be lost. So each waiter also reads the record when the subscription is established, and every few
seconds (more often without a subscription). The server keeps the record until the channel confirms the reply. One call
confirms all replies of `CONFIRM_SECONDS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

from glidemq_async._internal.background_tasks import BackgroundTasks
from glidemq_async.client.ended import Ended
from glidemq_async.client.growing_collection import GrowingCollection
from glidemq_async.client.job_collection import Deliver, JobCollection
from glidemq_async.client.waiter import Waiter
from glidemq_async.errors import JobNotFound, QueueClosed
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Record
from glidemq_async.functions.job_waiters import MOST_IDS
from glidemq_async.storage import Storage, Subscription

RECHECK_SECONDS: Final = 5.0
"""Interval at which a waiter reads the record, in case a message was lost."""
FIRST_LOOK_SECONDS: Final = 0.05
"""Without a subscription: pause before the first read of the record. Each further pause is 1.5 times as long."""
SLOWEST_LOOK_SECONDS: Final = 1.0
"""Without a subscription: longest pause between two reads of the record."""
GOODBYE_SECONDS: Final = 1.0
"""Time limit for cancelling the remaining waits on the server when the queue closes."""
CONFIRM_SECONDS: Final = 0.05
"""Time for which confirmations are collected for one call."""
CONFIRM_MAX: Final = 500
"""Maximum number of confirmations in one call. When it is reached, they are sent immediately."""
CALLER_LEFT: Final = "its caller stopped waiting"
"""The reason of the revocation of a job whose caller was cancelled or ran out of time."""
_EARLY: Final = 1_000
"""Maximum number of replies kept for adds in flight. Dropped ones are read from the record."""

_log = logging.getLogger(__name__)


def _ended_of(state: str, record: Record) -> Ended:
    payload = record.get(b"result" if state == "completed" else b"error", b"")
    return Ended(state, payload, record.get(b"reason", b"").decode(errors="replace"))


# Every message may be lost, and a job may end before its waiter exists. Four rules ensure that each waiter still
# receives the end of its job:
#
# 1. Each waiter reads the record when the server confirms the subscription, because earlier messages were lost. It
#    reads the record again every few seconds. Messages only make the reply faster.
# 2. The reading call registers the channel for the job and returns its state, in one step on the server. The job cannot
#    end between the two.
# 3. add_and_wait registers with the add itself. The job may have ended before the reply to the add arrives, so ends of
#    unknown jobs are kept in `_early` while such an add is in flight.
# 4. The retention policy may allow no record after the end. The server therefore holds the record until this client
#    confirms the reply, at most a minute (`held` in functions/finish.lua).
#
# A new job may use a confirmed id again. `expect` and `confirm_before` ensure that its waiter does not receive
# the end of the old job.
class ResultListener:
    """All tasks of one client that wait for results of one queue."""

    def __init__(self, storage: Storage, functions: Functions, name: str) -> None:
        self._storage = storage
        self.functions = functions
        self.channel = name
        self._waiters: dict[str, set[Waiter]] = {}
        # Waiters whose job was added for them, and is revoked when they leave.
        self._tied: set[Waiter] = set()
        self.collections: set[JobCollection] = set()
        """The waits for many jobs together; see job_collection.py."""
        # Replies that arrived before their waiter, because add_and_wait learns the job's id only from the reply to the
        # add. They are kept only while such an add is in flight.
        self._early: OrderedDict[str, Ended | None] = OrderedDict()
        self._expected = 0
        self._subscription: Subscription | None = None
        self._subscribing = asyncio.Lock()
        self._answered = asyncio.Event()
        self.subscribed = False
        """True while messages arrive."""
        # The calls in the background may fail, because waiters also read the record.
        self._background = BackgroundTasks(_note_failure)
        # Jobs whose message had no payload, so that their records must be read.
        self._unread: list[str] = []
        # Jobs whose reply has arrived and is not confirmed yet, and the timer for the confirmation.
        self._received: list[str] = []
        self._confirming: asyncio.TimerHandle | None = None
        # The confirmations that are on their way, and the jobs of each.
        self._confirmations: dict[asyncio.Task[None], list[str]] = {}
        self._is_closed = False

    async def listen(self) -> None:
        """Subscribe if necessary, and wait until the server confirms or refuses the subscription.

        A refused subscription is not an error; waiters then poll the record.
        """
        was_closed = self._is_closed
        if self._subscription is None:
            async with self._subscribing:
                if self._subscription is None:
                    self._subscription = await self._storage.subscribe(
                        self.functions.caller.base,
                        f"{self.functions.caller.base}:reply:{self.channel}",
                        self._on_message,
                        self._on_change,
                    )
        await self._answered.wait()
        if self._is_closed and not was_closed:
            raise QueueClosed("the queue was closed while it subscribed to the results of its jobs")

    async def close(self) -> None:
        """Stop listening. Tasks that still wait get QueueClosed."""
        if self._subscription is not None:
            await self._subscription.close()
            self._subscription = None
        waited, self._waiters = self._waiters, {}
        for job_id, waiters in waited.items():
            self._deregister(job_id, tied=not waiters.isdisjoint(self._tied))
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(
                        QueueClosed(
                            f"the queue was closed while waiting for the result of job {job_id!r}; close it after the "
                            "results have arrived"
                        )
                    )
        for collection in tuple(self.collections):
            collection.fail(QueueClosed("the queue was closed while waiting for the results of a batch"))
        self._confirm()
        self._is_closed = True
        self._answered.set()
        await self._background.wait(GOODBYE_SECONDS)

    def collect_added(self, deliver: Deliver, *, tied: bool) -> GrowingCollection:
        """Return a wait for jobs that the caller adds one after the other. `deliver` receives each end once."""
        return GrowingCollection(self, deliver, tied=tied)

    def collect(self, job_ids: Iterable[str], deliver: Deliver) -> JobCollection:
        """Return a wait for the ends of many jobs. `deliver` receives each of them once."""
        return JobCollection(self, job_ids, deliver)

    def leave_all(self, job_ids: Sequence[str]) -> None:
        """Cancel the registrations of these jobs in the background, unless another waiter needs them."""
        left = [job_id for job_id in job_ids if not self._is_awaited(job_id)]
        if left:
            self._background.start(self.functions.job_waiters.remove_many(left, self.channel))

    def abandon_all(self, job_ids: Sequence[str]) -> None:
        """Revoke these jobs in the background, because their caller has left, unless another waiter needs them."""
        left = [job_id for job_id in job_ids if not self._is_awaited(job_id)]
        if left:
            self._background.start(self._abandon(left))

    async def _abandon(self, job_ids: Sequence[str]) -> None:
        calls = [self.functions.jobs.abandon(job_id, self.channel, CALLER_LEFT) for job_id in job_ids]
        await asyncio.gather(*calls, return_exceptions=True)

    def _is_awaited(self, job_id: str) -> bool:
        return job_id in self._waiters or any(job_id in collection for collection in self.collections)

    def expect(self, job_id: str | None) -> None:
        """Note that an add with a reply is in flight.

        Discard an earlier reply for its id, which belongs to another job.
        """
        self._expected += 1
        if job_id is not None:
            self._early.pop(job_id, None)

    async def confirm_before(self, job_id: str) -> None:
        """Confirm a reply before its id is used again. Otherwise the old record would make the new job a duplicate."""
        sent = self._confirmation() if job_id in self._received else None
        # The timer may have sent the confirmation, and the add could overtake it.
        for sending, received in tuple(self._confirmations.items()):
            if job_id in received:
                await asyncio.wait([sending])
                if sending.cancelled():
                    await self.functions.job_waiters.confirm(self.channel, [job_id])
                elif sending is sent:
                    sending.result()

    def arrived(self) -> None:
        """Note that the add has its reply, and that the waiter of its job is registered."""
        self._expected -= 1
        if not self._expected:
            self._early.clear()

    def watch(self, job_id: str, *, asked: bool, tied: bool = False) -> Waiter:
        """Register a waiter for a job, to be passed to `wait`.

        `asked` means that the add has named our reply channel. `tied` means that the job was added for this waiter. It
        is revoked if the waiter leaves first and no other client waits for it.
        """
        waiter = Waiter()
        if asked and job_id in self._early:
            waiter.set_result(self._early.pop(job_id))
        self._waiters.setdefault(job_id, set()).add(waiter)
        if tied:
            self._tied.add(waiter)
        return waiter

    async def wait(self, job_id: str, waiter: Waiter, *, asked: bool) -> Ended:
        """Wait until the job of a waiter has ended. Raises JobNotFound, QueueClosed."""
        try:
            # The server does not know this waiter yet. The first look registers its channel, or finds that the job has
            # ended.
            if not asked:
                await self._look(job_id)
            pause = FIRST_LOOK_SECONDS
            while not waiter.done():
                await waiter.wait(RECHECK_SECONDS if self.subscribed else pause)
                pause = min(pause * 1.5, SLOWEST_LOOK_SECONDS)
                if not waiter.done():
                    await self._look(job_id)
            return self._found(job_id, waiter.result())
        finally:
            self.leave(job_id, waiter)

    def leave(self, job_id: str, waiter: Waiter) -> None:
        """Remove a waiter. If it was the last one of its job, cancel its registration, and revoke a job tied to it.

        Makes its call in the background, because the caller may be cancelled.
        """
        waiters = self._waiters.get(job_id, set())
        waiters.discard(waiter)
        if not waiters:
            self._waiters.pop(job_id, None)
        # A job whose end has arrived needs neither. If another waiter of this client is left, the job has to continue
        # for it, also if that waiter leaves later.
        if not self._is_awaited(job_id) and not waiter.done():
            self._deregister(job_id, tied=waiter in self._tied)
        self._tied.discard(waiter)

    def _deregister(self, job_id: str, *, tied: bool) -> None:
        """Cancel the registration of a job without waiters, and revoke the job if it is tied to its waiter."""
        if tied:
            self._background.start(self.functions.jobs.abandon(job_id, self.channel, CALLER_LEFT))
        else:
            # The server need not publish the result. If this call fails, it publishes a result that no client reads.
            self._background.start(self.functions.job_waiters.remove(job_id, self.channel))

    def in_background(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a call whose caller has left. `close` waits for it for a second."""
        self._background.start(work)

    async def _look(self, job_id: str) -> None:
        state, record = await self.functions.job_waiters.add(job_id, self.channel)
        if state == "missing":
            self._resolve(job_id, None)
        elif state != "waiting":
            self.receive(job_id, _ended_of(state, record))

    def receive(self, job_id: str, ended: Ended) -> None:
        """Pass a reply to its waiters, and schedule its confirmation."""
        self._note_received(job_id)
        self._resolve(job_id, ended)

    def _note_received(self, job_id: str) -> None:
        """Schedule the confirmation of a reply."""
        if self._is_closed:
            # A read that was in flight has found the end. A timer could start its call while the event loop closes.
            return
        self._received.append(job_id)
        if len(self._received) >= CONFIRM_MAX:
            self._confirm()
        elif self._confirming is None:
            self._confirming = asyncio.get_running_loop().call_later(CONFIRM_SECONDS, self._confirm)

    def _confirm(self) -> None:
        if self._confirming is not None:
            self._confirming.cancel()
            self._confirming = None
        if self._received:
            # If this call fails, the server keeps the records a minute longer.
            self._confirmation()

    def _confirmation(self) -> asyncio.Task[None]:
        """Return the task of the call that confirms all replies that have arrived. They count as sent from now on."""
        received, self._received = self._received, []
        sending = self._background.start(self.functions.job_waiters.confirm(self.channel, received))
        self._confirmations[sending] = received
        # Not in the coroutine, which never runs if its task is cancelled before its first step.
        sending.add_done_callback(self._confirmations.pop)
        return sending

    @staticmethod
    def _found(job_id: str, ended: Ended | None) -> Ended:
        if ended is None:
            raise JobNotFound(
                f"no result of job {job_id!r}: there is no such job. It was removed, or its retention has expired; "
                "keep results longer with keep_completed or result_ttl, or use add_and_wait, which waits from the start"
            )
        return ended

    def _resolve(self, job_id: str, ended: Ended | None, *, in_callback: bool = False) -> None:
        """Pass the end of a job to its waiters. `in_callback`: no task is running, so the waiters may continue now."""
        for collection in tuple(self.collections):
            collection.note(job_id, ended)
        waiters = self._waiters.get(job_id)
        if waiters is None:
            if self._expected:
                self._early[job_id] = ended
                if len(self._early) > _EARLY:
                    self._early.popitem(last=False)
            return
        # A waiter that continues in this loop leaves the set.
        for waiter in tuple(waiters):
            if not waiter.done():
                if in_callback:
                    waiter.resume(ended)
                else:
                    waiter.set_result(ended)

    def _on_message(self, message: bytes) -> None:
        # "<state>[?] <id length> <id><payload>". "?": the payload is too large for a message, so read the record.
        head, length, rest = message.split(b" ", 2)
        size = int(length)
        job_id = rest[:size].decode()
        state = head.decode()
        if state == "removed":
            self._resolve(job_id, None)
        # A failure without an error of a handler (expired, revoked, stalled) has an empty payload. Its reason is only
        # in the record.
        elif state.endswith("?") or (state == "failed" and len(rest) == size):
            self._look_soon(job_id)
        else:
            # The confirmation comes first, because the waiter may add a job with the same id; see `confirm_before`.
            self._note_received(job_id)
            self._resolve(job_id, Ended(state, rest[size:], ""), in_callback=True)

    def _on_change(self, subscribed: bool) -> None:
        self.subscribed = subscribed
        self._answered.set()
        # Messages that were published while the connection was down are lost.
        if subscribed:
            for job_id in self._waiters:
                self._look_soon(job_id)
            for collection in self.collections:
                collection.restart()

    def _look_soon(self, job_id: str) -> None:
        """Read the end of a job in the background. Jobs whose turn comes at the same time share calls."""
        self._unread.append(job_id)
        if len(self._unread) == 1:
            self._background.start(self._look_at_unread())

    async def _look_at_unread(self) -> None:
        while self._unread:
            # The list is emptied before the call, so that a job whose message arrives during it is read again.
            job_ids, self._unread = self._unread, []
            while job_ids:
                ends = await self.functions.job_waiters.add_many(job_ids[:MOST_IDS], self.channel)
                for job_id, end in zip(job_ids, ends, strict=False):
                    if end.state == "missing":
                        self._resolve(job_id, None)
                    elif end.state != "waiting":
                        self.receive(job_id, Ended(*end))
                del job_ids[: len(ends)]


def _note_failure(error: BaseException) -> None:
    _log.debug("a background call of the result listener failed: %s", error)
