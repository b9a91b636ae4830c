"""Lists of the jobs of one queue or of all queues, with the number of jobs if the counters of the queues know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from glidemq_async.errors import IncompatibleQueueError
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.jobs.job import Job
from glidemq_async.ops.errors import QueueNotFound
from glidemq_async.ops.part import OpsPart
from glidemq_async.queues.inspection import task_parameters
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.call import TaskParameters
from glidemq_async.stored.record import STATES, State

_COUNTED: Final = frozenset({"state", "queue"})
"""Fields of a filter whose jobs the counters of a queue count."""


@dataclass(frozen=True, slots=True)
class JobSelection:
    """The jobs of a list: those that match a filter, or those with states, a name and data.

    `offset` skips jobs of `states`. A list with a filter, a name or data ignores it, because such a list reads jobs
    until enough of them match.
    """

    wanted: Filter | None
    states: list[State] | None = None
    name: str | None = None
    data: object = None
    newest_first: bool | None = None
    limit: int = 50
    offset: int = 0

    @property
    def is_counted(self) -> bool:
        """True if the counters of a queue contain the number of the jobs."""
        if self.wanted is not None:
            return all(term.field in _COUNTED for term in self.wanted.terms)
        return self.name is None and self.data is None

    @property
    def counted_states(self) -> Sequence[State]:
        """The states that the counters of a queue must add up."""
        return FilterPlan(self.wanted).states if self.wanted is not None else self.states or STATES

    def may_be_in(self, queue: str) -> bool:
        """Return whether a job of this queue can be selected."""
        return self.wanted is None or FilterPlan(self.wanted).may_be_in(queue)


@dataclass(slots=True)
class JobListing:
    """Jobs with their data, each with the parameters of the tasks of its queue.

    `more` is True if further jobs match. `total` is the number of matching jobs, None if the counters do not know it.
    `unreadable` has the reason for each queue that could not be read.
    """

    jobs: list[tuple[Job[Any, Any], TaskParameters]] = field(default_factory=list[tuple[Job[Any, Any], TaskParameters]])
    total: int | None = 0
    more: bool = False
    unreadable: Mapping[str, str] = field(default_factory=dict[str, str])


class Listings(OpsPart):
    """The method of Ops for lists of whole jobs. `find` returns rows in pages of bounded work instead."""

    async def list_jobs(self, selection: JobSelection, queue: str | None = None) -> JobListing:
        """Return the selected jobs of one queue, or of all queues in the order of their names.

        Raises QueueNotFound for a named queue.
        """
        # One more job than the limit, to set `more`.
        asked, found, unreadable = selection.limit + 1, JobListing(), dict[str, str]()
        for name in [queue] if queue is not None else await self.queue_names():
            left = asked - len(found.jobs)
            if queue is None and not (selection.may_be_in(name) and (left or selection.is_counted)):
                continue
            # One queue of another program or layout must not hide the others.
            try:
                await self._add_jobs(found, await self.queue(name), replace(selection, limit=left))
            except (IncompatibleQueueError, QueueNotFound) as error:
                if queue is not None:
                    raise
                unreadable[name] = str(error)
        found.more, found.unreadable = len(found.jobs) == asked, unreadable
        del found.jobs[selection.limit :]
        if not selection.is_counted:
            found.total = None
        return found

    async def _add_jobs(self, found: JobListing, queue: Queue[Any, Any], selection: JobSelection) -> None:
        if selection.is_counted:
            counts = await queue.get_job_counts()
            found.total = (found.total or 0) + sum(counts[state] for state in selection.counted_states)
        if selection.limit:
            tasks = await task_parameters(queue)
            found.jobs += [(job, tasks) for job in await _selected(queue, selection)]


async def _selected(queue: Queue[Any, Any], selection: JobSelection) -> list[Job[Any, Any]]:
    limit, newest_first = selection.limit, selection.newest_first
    if selection.wanted is not None:
        return await queue.find(selection.wanted, limit, newest_first=newest_first)
    if selection.states is not None and selection.name is None and selection.data is None:
        end = selection.offset + limit - 1
        return await queue.get_jobs(selection.states, selection.offset, end, newest_first=newest_first)
    return await queue.search_jobs(selection.states, selection.name, selection.data, limit, newest_first=newest_first)
