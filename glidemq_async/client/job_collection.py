"""Waits for the ends of many jobs of one queue with few calls, for batches of jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from glidemq_async.client.ended import Ended
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.job_waiters import MOST_IDS, JobEnd

RECHECK_SECONDS: Final = 5.0
"""Interval at which one page of the open jobs is read again, in case a message was lost."""
FIRST_LOOK_SECONDS: Final = 0.05
"""Without a subscription: pause before the next page is read. Each further pause is 1.5 times as long."""
SLOWEST_LOOK_SECONDS: Final = 1.0
"""Without a subscription: longest pause between two pages. A page with ends makes the pause short again."""

Deliver: TypeAlias = Callable[[str, Ended | None], None]
"""Receives the id of a job and its end, or None if the job does not exist."""


class ReplyChannel(Protocol):
    """The part of the result listener that a collection needs."""

    channel: str
    functions: Functions
    collections: set[JobCollection]

    @property
    def subscribed(self) -> bool:
        """True while messages arrive."""
        ...

    async def listen(self) -> None:
        """Subscribe if necessary."""
        ...

    def receive(self, job_id: str, ended: Ended) -> None:
        """Pass a reply to its waiters, and confirm it."""
        ...

    def leave_all(self, job_ids: Sequence[str]) -> None:
        """Cancel the registrations of these jobs, unless another waiter needs them."""
        ...

    def abandon_all(self, job_ids: Sequence[str]) -> None:
        """Revoke these jobs, unless another waiter needs them."""
        ...


# A batch may have 100,000 jobs. So a collection has no task, future or timer for a job, and no call for one either:
#
# 1. `awaitJobs` registers the reply channel for as many jobs as the server looks at in 2 ms. A job that has ended
#    before the call is in its reply, so its end is not missed. The calls follow each other, so that the server serves
#    other clients between them.
# 2. The ends of the other jobs arrive as messages, as for a single waiter.
# 3. A lost connection loses messages. Then the collection looks at all open jobs again. While the subscription holds,
#    it looks at one page every few seconds.
class JobCollection:
    """The jobs of one client whose ends one caller waits for. `run` returns after the last end."""

    def __init__(self, replies: ReplyChannel, job_ids: Iterable[str], deliver: Deliver) -> None:
        self._replies = replies
        # The value is True once the server knows that the channel waits for the job.
        self._open = dict.fromkeys(job_ids, False)
        self._deliver = deliver
        self._asked: Sequence[str] = ()
        self._line = deque(self._open)
        self._pause = FIRST_LOOK_SECONDS
        self._changed = asyncio.Event()
        self._must_restart = False
        self._error: Exception | None = None

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._open

    def note(self, job_id: str, ended: Ended | None) -> None:
        """Deliver the end of a job if it is open."""
        if self._open.pop(job_id, None) is not None:
            self._deliver(job_id, ended)
            if not self._open:
                self._changed.set()

    def restart(self) -> None:
        """Look at all open jobs again, because messages were lost."""
        self._must_restart = True
        self._changed.set()

    def fail(self, error: Exception) -> None:
        """Make `run` raise this error unless all jobs have ended."""
        self._error = error
        self._changed.set()

    async def run(self) -> None:
        """Wait until all jobs have ended. Raises StorageUnavailable, and QueueClosed."""
        replies = self._replies
        await replies.listen()
        replies.collections.add(self)
        try:
            await self._follow()
        finally:
            replies.collections.discard(self)
            # The server may have registered the jobs of a call whose reply was abandoned with this task.
            asked = frozenset(self._asked)
            self._leave([job_id for job_id, is_known in self._open.items() if is_known or job_id in asked])

    def _leave(self, job_ids: Sequence[str]) -> None:
        self._replies.leave_all(job_ids)

    async def _follow(self) -> None:
        await self._look_at_all()
        while self._open:
            await self._wait()
            if self._open and self._error is not None:
                raise self._error
            if self._must_restart:
                await self._look_at_all()
            elif self._open:
                await self._look_at(self._next_page())

    async def _wait(self) -> None:
        """Wait until all jobs have ended, the connection was lost, or the next page is due."""
        seconds = RECHECK_SECONDS if self._replies.subscribed else self._pause
        self._pause = min(self._pause * 1.5, SLOWEST_LOOK_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    async def _look_at_all(self) -> None:
        """Look at each open job once."""
        self._must_restart = False
        self._changed.clear()
        self._line = deque(self._open)
        for _ in range(0, len(self._line), MOST_IDS):
            await self._look_at(self._next_page())

    def _next_page(self) -> list[str]:
        """Return the next open jobs, in turn."""
        page: list[str] = []
        for _ in range(len(self._line)):
            job_id = self._line.popleft()
            if job_id in self._open:
                page.append(job_id)
            if len(page) == MOST_IDS:
                break
        self._line.extend(page)
        return page

    async def _look_at(self, page: Sequence[str]) -> None:
        """Register the channel for these jobs, and deliver the ended ones."""
        done = 0
        while done < len(page):
            self._asked = page[done:]
            ends = await self._replies.functions.job_waiters.add_many(self._asked, self._replies.channel)
            for job_id, end in zip(self._asked, ends, strict=False):
                self._note_look(job_id, end)
            self._asked = ()
            done += len(ends)

    def _note_look(self, job_id: str, end: JobEnd) -> None:
        is_known = self._open.get(job_id)
        if end.state == "waiting":
            # A job may have ended while the reply was on its way. Such a job is not open any more.
            if is_known is False:
                self._open[job_id] = True
            return
        self._pause = FIRST_LOOK_SECONDS
        if end.state == "missing":
            self.note(job_id, None)
        elif is_known:
            # The server holds the record of a job whose end it has announced to this channel, until it is confirmed.
            self._replies.receive(job_id, Ended(*end))
        else:
            self.note(job_id, Ended(*end))
