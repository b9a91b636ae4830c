"""The steps of a change: prepare some jobs, change them on the server, and deliver what follows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from glidemq_async.client.outbox import reach_descendants
from glidemq_async.errors import SerializationError
from glidemq_async.filters.fields import Present
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.functions.bulk import BulkChange, ChangeStep
from glidemq_async.jobs.job import Job
from glidemq_async.ops.bulk.action import ActionCall
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.moves import edited, moved
from glidemq_async.queues.finding import matching
from glidemq_async.queues.inspection import task_parameters
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.call import TaskParameters
from glidemq_async.stored.record import State

MOST_BYTES: Final = 1_048_576
"""New payloads in one call. A larger one is sent alone."""


async def prepare(
    connections: Connections,
    queue: Queue[Any, Any],
    action: ActionCall,
    ids: Sequence[str],
    plan: FilterPlan,
    present: Present,
) -> tuple[list[BulkChange], dict[str, Job[Any, Any]]]:
    """Return the changes of these jobs, with the reason for each job that no longer matches, and the matching jobs.

    The list can end early if the new payloads are large.
    """
    found = {job.id: job for job in await matching(queue, ids, plan, present)}
    missing = [job_id for job_id in ids if job_id not in found]
    exist = {job.id for job in await _existing(queue, missing)} if missing else set[str]()
    target = await connections.queue(action.to) if action.to else queue
    tasks: TaskParameters = await task_parameters(queue) if action.name == "edit" else {}
    changes: list[BulkChange] = []
    size = 0
    for job_id in ids:
        job = found.get(job_id)
        if job is None:
            changes.append(BulkChange(job_id, "changed" if job_id in exist else "removed"))
            continue
        change = _change_of(job, queue, target, action, tasks)
        size += len(change.data)
        if changes and size > MOST_BYTES:
            break
        changes.append(change)
    return changes, found


async def _existing(queue: Queue[Any, Any], ids: Sequence[str]) -> list[Job[Any, Any]]:
    return await matching(queue, ids, FilterPlan(Filter("")), Present(datetime.now(UTC), {}))


def _change_of(
    job: Job[Any, Any], queue: Queue[Any, Any], target: Queue[Any, Any], action: ActionCall, tasks: TaskParameters
) -> BulkChange:
    if not action.changes(job.state):
        return BulkChange(job.id, f"state {job.state}")
    try:
        if action.name == "move":
            return moved(job, target)
        if action.name == "edit":
            return edited(job, queue, tasks, action.data, action.options)
    except SerializationError:
        return BulkChange(job.id, "unreadable")
    return BulkChange(job.id)


async def change(queue: Queue[Any, Any], step: ChangeStep, position: int, changes: Sequence[BulkChange]) -> list[str]:
    """Make the changes and deliver what follows from them in other queues. Return the status of each handled job."""
    client = client_of(queue)
    reply = await client.functions.bulk.change(step, position, changes)
    # A move or the end of a flow's job writes to the outbox. The workers of the queue would deliver it too, but there
    # may be none.
    await reach_descendants(client, reply.rest)
    return reply.statuses


def states_of(plan: FilterPlan) -> tuple[str, ...]:
    """Return the stored names of the states in which the jobs of a filter are changed, () for all."""
    if not plan.names_states:
        return ()
    stored: set[State] = {"key-waiting" if state == "rate-limited" else state for state in plan.states}
    return tuple(sorted(stored))
