"""Find the jobs of a queue with a filter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms
from glidemq_async.filters.fields import Present
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.jobs.job import Job
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.inspection import PAGE, Inspection, task_parameters
from glidemq_async.stored.call import TaskParameters
from glidemq_async.stored.record import State


class JobSearch(Inspection[Data, Result]):
    """The methods of Queue that select jobs with a filter."""

    async def find(
        self, wanted: str | Filter, limit: int = 100, *, newest_first: bool | None = None
    ) -> list[Job[Data, Result]]:
        """Return up to `limit` jobs that match a filter, state by state. `newest_first` is as for `get_jobs`.

        The filter is a text such as `state:failed name:resize error:"TimeoutError" added:>1h data.to:ada@x`, or a
        Filter; docs/finding.md describes it. Ages are measured by the server's clock. A job with a payload that
        cannot be decoded matches no term about this payload.

        The search reads the jobs of the states that the filter allows, in bounded steps, until `limit` jobs match. A
        filter with an id reads one job. Jobs that change their state during the search may be missed; none is returned
        twice. Raises FilterError for a bad filter, and ValueError for a negative limit.
        """
        found: dict[str, Job[Data, Result]] = {}
        whole_number("limit", limit, least=0)
        checked = _checked(wanted)
        if limit:
            async with aclosing(self._find(checked, newest_first)) as jobs:
                async for job in jobs:
                    found.setdefault(job.id, job)
                    if len(found) == limit:
                        break
        return list(found.values())

    async def iter_find(
        self, wanted: str | Filter, *, newest_first: bool | None = None
    ) -> AsyncIterator[Job[Data, Result]]:
        """Iterate over all jobs that match a filter, in the order of `find`.

        Jobs that change their state during the iteration may be missed or come twice. Raises FilterError.
        """
        async with aclosing(self._find(_checked(wanted), newest_first)) as jobs:
            async for job in jobs:
                yield job

    async def _find(self, wanted: Filter, newest_first: bool | None) -> AsyncGenerator[Job[Data, Result]]:
        await self.connect()
        plan = FilterPlan(wanted)
        present = await present_of(self, plan)
        async for ids in self._candidates(plan, newest_first):
            async for job in self._matching(ids, plan, present):
                yield job

    async def _candidates(self, plan: FilterPlan, newest_first: bool | None) -> AsyncIterator[list[str]]:
        if plan.only_id is not None:
            yield [plan.only_id]
            return
        for state in plan.states:
            async for ids in self._pages(state, newest_first, plan.only_name):
                yield ids

    async def _matching(self, ids: list[str], plan: FilterPlan, present: Present) -> AsyncIterator[Job[Data, Result]]:
        # The record is read after the list, so a job may have changed its state. The filter sees the present state.
        if plan.reads_payloads and plan.has_small_terms:
            ids = [job.id for job in await self._read(ids, with_data=False) if plan.fits(job, present)]
        async for job in self._each(ids):
            if plan.matches(job, present):
                yield job


async def describe_tasks(queue: JobSearch[Data, Result], tasks: TaskParameters) -> None:
    """Store the names of the parameters of tasks, so that `find` and other tools can name the arguments of jobs."""
    await queue.connect()
    await queue._client.functions.known_tasks.describe(tasks)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def use_tasks(queue: JobSearch[Any, Any], tasks: Callable[[], TaskParameters]) -> None:
    """Register the tasks of an app with a queue, for the case that no worker of the app has ever run."""
    queue._own_tasks = tasks  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


async def page_of(
    queue: JobSearch[Any, Any], state: State, cursor: str, plan: FilterPlan
) -> tuple[str, list[str], int]:
    """Return the next cursor, the ids of one page of a state in the order of `find`, and the number searched."""
    functions = queue._client.functions  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if plan.only_name is None:
        following, ids = await functions.reading.list_jobs(state, cursor, PAGE)
        return following, ids, len(ids)
    return await functions.searching.find(state, cursor, PAGE, plan.only_name)


async def matching(
    queue: JobSearch[Any, Any], ids: Sequence[str], plan: FilterPlan, present: Present
) -> list[Job[Any, Any]]:
    """Return the jobs with these ids that match a filter."""
    found = queue._matching(list(ids), plan, present)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return [job async for job in found]


async def present_of(queue: JobSearch[Any, Any], plan: FilterPlan) -> Present:
    """Return the facts about a queue that a filter uses besides its jobs."""
    now = from_ms(await queue._client.functions.reading.now())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return Present(now, await tasks_of(queue, plan))


async def tasks_of(queue: JobSearch[Any, Any], plan: FilterPlan) -> TaskParameters:
    """Return the names of the parameters of the tasks if a filter needs them, otherwise none."""
    return await task_parameters(queue) if plan.reads_payloads else {}


def _checked(wanted: str | Filter) -> Filter:
    return wanted if isinstance(wanted, Filter) else Filter(wanted)
