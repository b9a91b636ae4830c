"""Waits for the ends of jobs that one caller adds one after the other. Each add registers the caller for its job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from typing_extensions import override

from glidemq_async.client.ended import Ended
from glidemq_async.client.job_collection import Deliver, JobCollection, ReplyChannel


# Each add names the reply channel, so no further call registers a job. A job may end before the reply to its add
# arrives, when its id is not known here yet. So the ends of unknown jobs are kept while an add is in flight.
class GrowingCollection(JobCollection):
    """The jobs that a caller adds and waits for. `run` returns after `complete` and the last end.

    With `tied` the jobs that have not ended are revoked when `run` is cancelled.
    """

    def __init__(self, replies: ReplyChannel, deliver: Deliver, *, tied: bool) -> None:
        super().__init__(replies, (), deliver)
        self._tied = tied
        self._adding = 0
        self._early: dict[str, Ended | None] = {}
        self._is_complete = False

    def begin_add(self) -> None:
        """Note that an add is in flight. `end_add` must follow."""
        self._adding += 1

    def end_add(self, jobs: Iterable[tuple[str, bool]]) -> None:
        """Note the jobs of an add: each id, and whether the server knows that this client waits for it."""
        for job_id, is_known in jobs:
            if job_id in self._early:
                self._deliver(job_id, self._early.pop(job_id))
                continue
            self._open[job_id] = is_known
            self._line.append(job_id)
            if not is_known:
                self.restart()
        self._adding -= 1
        if not self._adding:
            self._early.clear()

    def complete(self) -> None:
        """Note that no further job will be added."""
        self._is_complete = True
        self._changed.set()

    @override
    def note(self, job_id: str, ended: Ended | None) -> None:
        if job_id in self._open:
            super().note(job_id, ended)
        elif self._adding:
            self._early[job_id] = ended

    @override
    async def _follow(self) -> None:
        while self._open or not self._is_complete:
            await self._wait()
            self._changed.clear()
            if self._error is not None:
                raise self._error
            if self._must_restart:
                await self._look_at_all()
            elif self._open:
                await self._look_at(self._next_page())

    @override
    def _leave(self, job_ids: Sequence[str]) -> None:
        if self._tied:
            self._replies.abandon_all(job_ids)
        else:
            self._replies.leave_all(job_ids)
