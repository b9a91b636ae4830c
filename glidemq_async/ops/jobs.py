"""Find jobs, look at one, and change one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from glidemq_async.errors import JobNotFound, JobStateError, StorageUnavailable
from glidemq_async.filters.fields import Present
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.functions.bulk import ChangeStep
from glidemq_async.jobs.job import Job
from glidemq_async.ops.audit import Change, log_change
from glidemq_async.ops.bulk.action import ActionCall
from glidemq_async.ops.bulk.steps import change, prepare
from glidemq_async.ops.history import note_action
from glidemq_async.ops.part import OpsPart
from glidemq_async.ops.rows import JobDetail, detail_of
from glidemq_async.ops.search import JobPage, Search, SearchPlace
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.inspection import task_parameters
from glidemq_async.queues.internals import client_of
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.stored.call import changed_call

_REMEDY: Mapping[str, str] = {
    "retry": "only failed jobs are retried; force a retry to run a completed one again",
    "move": "only jobs that have not started, and failed ones, can move",
    "edit": "jobs that have not started and failed ones can be edited; force an edit to run a completed one again",
}


class JobMethods(OpsPart):
    """The methods of Ops for jobs. Each change writes an audit line, and takes the `reason` for it."""

    async def find(self, wanted: str | Filter, *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """Return the jobs of all queues that match a filter, queue by queue, up to `limit` (at most 200).

        A filter such as `queue:mail-* state:failed` searches some of the queues; docs/finding.md describes it. Pass
        `cursor` of a page to get the next one. A page ends early after 10,000 jobs or 2 seconds. Jobs that change their
        state between two pages may be missed or come twice.

        Raises FilterError, ValueError for a bad limit or cursor, and QueueNotFound if the filter names one queue that
        does not exist.
        """
        whole_number("limit", limit, least=1, most=200)
        checked = wanted if isinstance(wanted, Filter) else Filter(wanted)
        return await Search(self._connections, checked, limit, SearchPlace.parse(cursor)).run()

    async def job(self, queue: str, job_id: str) -> JobDetail:
        """Return everything about a job. Raises QueueNotFound, JobNotFound."""
        opened = await self.queue(queue)
        job = await opened.get_job(job_id)
        if job is None:
            raise _missing(queue, job_id)
        return detail_of(job, await task_parameters(opened), await opened.get_job_logs(job_id))

    async def retry(self, queue: str, job_id: str, *, force: bool = False, reason: str = "") -> None:
        """Run a failed job again with fresh attempts, with `force` a completed one too.

        Raises JobStateError, JobNotFound, QueueNotFound.
        """
        await self._change_one(queue, job_id, ActionCall("retry", {"force": force}, reason))

    async def edit_and_replay(
        self,
        queue: str,
        job_id: str,
        *,
        data: object = None,
        options: Mapping[str, Any] | None = None,
        force: bool = False,
        reason: str = "",
    ) -> None:
        """Change the data or the options of a job. A failed job, and with `force` a completed one, then runs again.

        `data` names arguments of a task, or items of a mapping; the others stay. Other data are replaced. `options` has
        options of the run, such as `attempts`. They apply to jobs that have ended.

        Raises JobStateError, JobNotFound, QueueNotFound, SerializationError, and TypeError or ValueError for options
        that cannot be edited.
        """
        arguments = {"data": data, "options": options, "force": force or None}
        await self._change_one(queue, job_id, ActionCall("edit", arguments, reason))

    async def move(self, queue: str, job_id: str, to: str, *, reason: str = "") -> None:
        """Put a job that has not started, or a failed one, into another queue, exactly once.

        The job keeps its options and the rest of its delay. A job with a generated id gets a new one there. A job whose
        own id exists there already is a duplicate of that job. Clients that wait for the result get JobNotFound.

        Raises JobStateError, JobNotFound, QueueNotFound, SerializationError, and ValueError for the queue of the job.
        """
        if to == queue:
            raise ValueError(f"job {job_id} is in queue {queue!r} already; name another queue")
        await self._change_one(queue, job_id, ActionCall("move", {"to": to}, reason))

    async def revoke(self, queue: str, job_id: str, *, reason: str = "") -> bool:
        """Revoke a job; see `Job.revoke`. Return True if it has failed now, False if a worker has to stop it."""
        async with self.changing_job("revoke", queue, job_id, reason):
            return await (await self.queue(queue)).revoke(job_id, reason or None)

    async def promote(self, queue: str, job_id: str, *, reason: str = "") -> None:
        """Make a delayed job ready now. Raises JobStateError, JobNotFound, QueueNotFound."""
        async with self.changing_job("promote", queue, job_id, reason):
            await (await self._job(queue, job_id)).promote()

    async def delay(self, queue: str, job_id: str, delay: float | timedelta, *, reason: str = "") -> None:
        """Delay a job that has not started by `delay` seconds from now. Raises the errors of `promote`, ValueError."""
        async with self.changing_job("delay", queue, job_id, reason, delay=delay):
            await (await self._job(queue, job_id)).change_delay(delay)

    async def change_priority(self, queue: str, job_id: str, priority: int, *, reason: str = "") -> None:
        """Change the priority of a job that has not started. Raises the errors of `promote`, ValueError."""
        async with self.changing_job("change_priority", queue, job_id, reason, priority=priority):
            await (await self._job(queue, job_id)).change_priority(priority)

    async def update_data(self, queue: str, job_id: str, data: object, *, reason: str = "") -> None:
        """Change the data of a job for its later runs: arguments of a task by their names, items of a mapping, or all.

        Arguments and items that are not named stay. The data are not audited.

        Raises JobNotFound, QueueNotFound, SerializationError, and TypeError unless the data of a task are its arguments
        by name.
        """
        async with self.changing_job("update_data", queue, job_id, reason):
            job = await self._job(queue, job_id)
            tasks = await task_parameters(await self.queue(queue))
            await job.update_data(changed_call(job.data, data, tasks.get(job.name)))

    async def delete(self, queue: str, job_id: str, *, reason: str = "") -> None:
        """Delete a job. A running one is stopped. Raises JobNotFound, QueueNotFound."""
        async with self.changing("delete", queue, job_id, reason=reason):
            await (await self._job(queue, job_id)).remove()

    async def signal(
        self,
        queue: str,
        job_id: str,
        name: str,
        data: object = None,
        *,
        ttl: float | timedelta | None = None,
        reason: str = "",
    ) -> bool:
        """Send a signal to a job; see `Queue.signal`. Return True if it resumed the job. The data are not audited."""
        async with self.changing_job("signal", queue, job_id, reason, name=name):
            return await (await self.queue(queue)).signal(job_id, name, data, ttl=ttl)

    async def resume_job(self, queue: str, job_id: str, *, reason: str = "") -> None:
        """Resume a suspended job without a signal; see `Queue.resume_job`."""
        async with self.changing_job("resume_job", queue, job_id, reason):
            await (await self.queue(queue)).resume_job(job_id)

    @asynccontextmanager
    async def changing_job(
        self, action: str, queue: str, job_id: str, reason: str, **arguments: object
    ) -> AsyncGenerator[None]:
        """Write one audit line about the change of a job that the block makes, and note it in the job's history."""
        async with self.changing(action, queue, job_id, reason=reason, **arguments):
            yield
            try:
                await note_action(await self.queue(queue), [job_id], self.actor, action, reason)
            except (StorageUnavailable, FunctionError) as error:  # the change is made, and has its audit line
                log_change(self.actor, Change("note", queue, job_id), f"missing in the history of the job: {error}")

    async def _job(self, queue: str, job_id: str) -> Job[Any, Any]:
        job = await (await self.queue(queue)).get_job(job_id)
        if job is None:
            raise _missing(queue, job_id)
        return job

    async def _change_one(self, name: str, job_id: str, action: ActionCall) -> None:
        """Make a change for which the server checks the state of the job."""
        async with self.changing(action.name, name, job_id, reason=action.reason, **action.arguments):
            queue = await self.queue(name)
            await self._job(name, job_id)
            present = Present(datetime.now(UTC), {})
            changes, _ = await prepare(self._connections, queue, action, [job_id], FilterPlan(Filter("")), present)
            target = client_of(await self.queue(action.to)).keys.base if action.to else ""
            made = (uuid4().hex, action.name, action.argument(target))
            step = ChangeStep(*made, actor=self.actor.label, note=action.reason)
            [status] = await change(queue, step, 1, changes)
            if status == "removed":
                raise _missing(name, job_id)
            if status != "ok":
                found = status.removeprefix("state ")
                raise JobStateError(f"{action.name} job {job_id}", found, _REMEDY.get(action.name, "look at it again"))


def _missing(queue: str, job_id: str) -> JobNotFound:
    return JobNotFound(
        f"queue {queue!r} has no job {job_id!r}: it was never added, was removed, or its retention is over"
    )
