"""The list of jobs that `glidemq jobs` and `glidemq find` print: of one queue, or of every queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import typer

from glidemq_async.cli import documents, output, targets
from glidemq_async.errors import IncompatibleQueueError
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.queues.inspection import task_parameters
from glidemq_async.stored.record import STATES

if TYPE_CHECKING:
    from glidemq_async.cli.output import Document
    from glidemq_async.cli.targets import Store
    from glidemq_async.jobs.job import Job
    from glidemq_async.queues.queue import Queue
    from glidemq_async.stored.record import State

_COUNTED: Final = frozenset({"state", "queue"})
"""Fields of a filter whose jobs the counters of a queue count."""


@dataclass(frozen=True, slots=True)
class JobSelection:
    """The jobs that a list contains: a filter, or states, a name and data."""

    wanted: Filter | None
    states: list[State] | None
    name: str | None
    data: object
    newest_first: bool | None
    limit: int
    offset: int = 0

    @property
    def is_counted(self) -> bool:
        """True if the counters of a queue give the number of the jobs."""
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


async def list_jobs(store: Store, queue: str | None, selection: JobSelection) -> Document:
    """Return the selected jobs of a queue, or of every queue. `total` is their number, None if it is not known."""
    # One job more than is shown, to learn if there are others.
    wanted = replace(selection, limit=selection.limit + 1)
    if queue is not None:
        async with store.existing(queue) as opened:
            found, total = await _of_queue(opened, wanted)
    else:
        found, total = await _of_every_queue(store, wanted)
    return {
        "jobs": found[: selection.limit],
        "more": len(found) > selection.limit,
        "total": total if selection.is_counted else None,
    }


async def _of_every_queue(store: Store, selection: JobSelection) -> tuple[list[Document], int]:
    found: list[Document] = []
    total = 0
    for name in await targets.queue_names(store.storage, store.prefix):
        left = selection.limit - len(found)
        if not selection.may_be_in(name) or (left == 0 and not selection.is_counted):
            continue
        try:
            async with store.queue(name) as opened:
                jobs, count = await _of_queue(opened, replace(selection, limit=left))
        # One queue of another program or layout must not hide the others.
        except IncompatibleQueueError as error:
            typer.echo(output.text(f"{name}: {error}"), err=True)
            continue
        found += jobs
        total += count
    return found, total


async def _of_queue(queue: Queue[Any, Any], selection: JobSelection) -> tuple[list[Document], int]:
    total = 0
    if selection.is_counted:
        counts = await queue.get_job_counts()
        total = sum(counts[state] for state in selection.counted_states)
    jobs = await _jobs(queue, selection) if selection.limit else []
    tasks = await task_parameters(queue)
    return [documents.job_document(job, tasks) for job in jobs], total


async def _jobs(queue: Queue[Any, Any], selection: JobSelection) -> list[Job[Any, Any]]:
    limit, newest_first = selection.limit, selection.newest_first
    if selection.wanted is not None:
        return await queue.find(selection.wanted, limit, newest_first=newest_first)
    # `get_jobs` reads a range of positions. A filter needs `search_jobs`, which reads all jobs until enough of them
    # match, so an offset has no meaning there.
    if selection.states is not None and selection.name is None and selection.data is None:
        end = selection.offset + limit - 1
        return await queue.get_jobs(selection.states, selection.offset, end, newest_first=newest_first)
    return await queue.search_jobs(selection.states, selection.name, selection.data, limit, newest_first=newest_first)
