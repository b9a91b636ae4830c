"""The runner of bulk operations: the handler of the jobs of the queue `system/ops`."""

# A runner may be killed between any two calls, and a new one continues at the stored position. Two things make each job
# of the operation count once:
# 1. The server of the queue stores the reply of each step by its position. A step that was carried out and not noted is
#    sent again, and gets the same reply without a second effect.
# 2. A step is noted only if the stored position is the one at which it began. If two runners are active, because one of
#    them lost the lease of its job, both get the same reply, and the first one notes it. The other one reads the
#    position and continues there, or its step is refused as outdated.

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, Final, NamedTuple, cast

import msgpack

from glidemq_async.durations import from_ms
from glidemq_async.filters.fields import Present
from glidemq_async.filters.filter import Filter
from glidemq_async.filters.plan import FilterPlan
from glidemq_async.functions.bulk import BulkChange, ChangeStep
from glidemq_async.functions.operations import Advance
from glidemq_async.jobs.job import Job
from glidemq_async.ops.bulk.documents import Operation, Stored
from glidemq_async.ops.bulk.failure_watch import FailureWatch, RestartedJob
from glidemq_async.ops.bulk.steps import change, prepare, states_of
from glidemq_async.ops.connections import Connections
from glidemq_async.ops.errors import OperationNotFound, QueueNotFound
from glidemq_async.queues.finding import tasks_of
from glidemq_async.queues.internals import client_of
from glidemq_async.queues.queue import Queue
from glidemq_async.storage.protocol import FunctionError
from glidemq_async.stored.names import SYSTEM_QUEUE
from glidemq_async.worker.worker import Worker

STEP: Final = 250
"""Number of jobs that one call reads. The server may need several calls to change them."""
STEPS_PER_SECOND: Final = 4
FULL_OUTBOX_PAUSE: Final = 0.2


class Prepared(NamedTuple):
    """Changes that the server has not made yet, the position of the first one, and the jobs as they were."""

    position: int
    changes: list[BulkChange]
    found: dict[str, Job[Any, Any]]


class OperationRunner:
    """Runs one operation from its stored position to its end."""

    def __init__(self, connections: Connections, stored: Stored, run: Job[Any, Any]) -> None:
        self._connections = connections
        self._operations = connections.system.operations
        self._stored = stored
        self._run = run
        self._plan = FilterPlan(Filter(stored.filter))
        self._watch = FailureWatch(connections, stored.stop_if_failing if stored.action.kind.restarts else None)
        self._ready = Prepared(0, [], {})
        rate = stored.rate
        self._most = STEP if rate is None else max(1, min(STEP, int(rate / STEPS_PER_SECOND)))
        self._began, self._handled = time.monotonic(), 0

    async def run(self) -> None:
        """Run to the end. Returns also if the operation was cancelled, or if another runner has taken it over."""
        position, chunk = self._stored.position, self._stored.chunk
        state: str = self._stored.state
        self._watch.restore(await self._operations.get_watched(self._stored.id))
        if state == "running":
            state = await self._pause()
        while state == "running":
            packed = await self._operations.get_targets(self._stored.id, chunk)
            if not packed:
                return  # the operation has ended
            queue_name, ids = cast("tuple[str, list[str]]", msgpack.unpackb(packed))
            while state == "running" and position < chunk + len(ids):
                some = ids[position - chunk : position - chunk + self._most]
                state, position = await self._step(queue_name, some, position, chunk, len(ids))
                if position < chunk:
                    return
                if state == "running":
                    state = await self._pause()
            chunk += len(ids)

    async def _step(self, name: str, ids: list[str], position: int, chunk: int, length: int) -> tuple[str, int]:
        """Handle some jobs, and note the new position. Return the state and the position of the operation."""
        try:
            queue = await self._connections.queue(name)
            statuses = await self._change(queue, ids, position)
        except QueueNotFound:
            statuses = ["removed"] * len(ids)
        if not statuses:
            await asyncio.sleep(FULL_OUTBOX_PAUSE)
            return "running", position
        following = position + len(statuses)
        counts = Counter(statuses)
        done = counts.pop("ok", 0)
        at = chunk + length if following >= chunk + length else chunk
        self._handled += len(statuses)
        step = Advance(position, following, at, done, counts, self._watch.packed)
        noted = await self._operations.advance(self._stored.id, step)
        await self._run.update_progress({"handled": noted[1], "of": self._stored.size})
        return noted

    async def _change(self, queue: Queue[Any, Any], ids: list[str], position: int) -> list[str]:
        stored, action = self._stored, self._stored.action
        if self._ready.position != position or not self._ready.changes:
            present = Present(from_ms(stored.cutoff_ms), await tasks_of(queue, self._plan))
            self._ready = Prepared(position, *await prepare(self._connections, queue, action, ids, self._plan, present))
        changes, found = self._ready.changes, self._ready.found
        target = client_of(await self._connections.queue(action.to)).keys.base if action.to else ""
        made = (stored.id, action.name, action.argument(target), stored.cutoff_ms, states_of(self._plan))
        statuses = await change(queue, ChangeStep(*made, stored.started_by, self._note), position + 1, changes)
        self._ready = Prepared(position + len(statuses), changes[len(statuses) :], found)
        done = [one.id for one, status in zip(changes, statuses, strict=False) if status == "ok"]
        self._watch.note(self._restarted(queue.name, job_id, found.get(job_id)) for job_id in done)
        return statuses

    def _restarted(self, queue: str, job_id: str, before: Job[Any, Any] | None) -> RestartedJob:
        # A job that had ended starts anew, without failures. A step that an earlier runner has made already finds the
        # jobs in their new state.
        is_delayed = before is not None and before.state == "delayed"
        return RestartedJob(queue, job_id, before.attempts_made if before is not None and is_delayed else 0)

    @property
    def _note(self) -> str:
        """The note in the histories of the jobs."""
        reason = self._stored.action.reason
        return f"operation {self._stored.id}{f': {reason}' if reason else ''}"

    async def _pause(self) -> str:
        """Wait as the rate demands, and stop the operation if too many of its jobs fail again. Return the state."""
        if self._stored.rate is not None:
            due = self._began + self._handled / self._stored.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        reason = await self._watch.check()
        if reason is None:
            return "running"
        await self._operations.end(self._stored.id, "stopped", reason)
        return "stopped"


def operation_worker(connections: Connections, concurrency: int = 4, lock_duration: float = 30.0) -> Worker[Any, Any]:
    """Return a worker that runs bulk operations."""

    async def run(job: Job[Any, Any]) -> dict[str, object]:
        return await run_operation(connections, job)

    return Worker(
        SYSTEM_QUEUE,
        run,
        connections.storage,
        prefix=connections.prefix,
        concurrency=concurrency,
        lock_duration=lock_duration,
        max_stalled=1_000,
        handle_signals=False,
    )


async def run_operation(connections: Connections, job: Job[Any, Any]) -> dict[str, object]:
    """Run the operation of a job of the queue `system/ops`. Return its result."""
    operation_id = str(job.data["operation"])
    runner = OperationRunner(connections, await stored_operation(connections, operation_id), job)
    try:
        await runner.run()
    except FunctionError as error:
        if error.code != "REPLAY":  # another runner has continued the operation
            raise
    ended: Operation = (await stored_operation(connections, operation_id)).document
    return {"state": ended.state, "done": ended.done, "refused": dict(ended.refused)}


async def stored_operation(connections: Connections, operation_id: str) -> Stored:
    """Return an operation. Raises OperationNotFound."""
    (record,) = await connections.system.operations.get([operation_id])
    if b"document" not in record:
        raise OperationNotFound(operation_id)
    return Stored(operation_id, record)
