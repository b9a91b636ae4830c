"""Inspect a queue: jobs by state, counts, logs, search, metrics and workers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, cast

import msgpack

from glidemq_async._internal.generics import Data, Result
from glidemq_async.durations import from_ms, instant_to_ms
from glidemq_async.errors import SerializationError
from glidemq_async.functions.metrics import MinuteRow
from glidemq_async.functions.worker_list import WorkerRow
from glidemq_async.instrumentation import QueueDepth
from glidemq_async.jobs.chunks import StreamItem, is_readable, read_chunks
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import job_of_record, leave_out_data
from glidemq_async.options.validation import whole_number
from glidemq_async.queues.base import QueuePart
from glidemq_async.stored.call import TaskParameters, named_call
from glidemq_async.stored.names import check_id
from glidemq_async.stored.record import FINAL, STATES, State

PAGE: Final = 500
"""Number of jobs that one call lists."""
RANKED: Final[frozenset[State]] = frozenset({"prioritized", "delayed", "failed", "suspended", "waiting-children"})
"""The states whose cursor in `listJobs` is the number of jobs before it."""
SILENT_SECONDS: Final = 60.0
"""Time without a heartbeat after which a worker counts as gone."""

WorkerState: TypeAlias = Literal["running", "paused", "stopping"]


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The `count` of jobs that ended in one `minute`. `mean_seconds` is the mean duration of their last runs.

    Jobs that ended without a run (expired, or revoked while waiting) or by a decision of the server (stalled) count
    with a duration of zero.
    """

    minute: datetime
    count: int
    mean_seconds: float


@dataclass(frozen=True, slots=True)
class Metrics:
    """The number of jobs that ended in one state.

    `count` is the total. `points` has a point for each minute in which jobs ended, the earliest first.
    """

    count: int
    points: tuple[MetricPoint, ...]


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker of a queue.

    `name` is unique among the workers, `host` and `pid` name its process, and `concurrency` is the number of its slots.
    `running` is the number of its jobs. `last_seen` is measured by the server's clock, `started_at` by the clock of the
    worker's host. `slots` is the number of jobs that it can run at the same time. `state` is "running", "paused" or
    "stopping". `tasks` are the names of the tasks of an app's worker, None for other workers and when there are many.
    `version` is the version of its code, "" if it was not given.
    """

    name: str
    host: str
    pid: int
    concurrency: int
    started_at: datetime
    last_seen: datetime
    running: int
    slots: int = 0
    state: WorkerState = "running"
    tasks: tuple[str, ...] | None = None
    version: str = ""


class Inspection(QueuePart[Data, Result]):
    """The methods of Queue that read and change nothing."""

    _own_tasks: Callable[[], TaskParameters] | None = None

    async def get_job(self, job_id: str) -> Job[Data, Result] | None:
        """Return a job, or None if no job has this id."""
        check_id("job_id", job_id)
        await self.connect()
        record = (await self._client.functions.reading.get_records([job_id]))[0]
        return job_of_record(self._client, job_id, record) if b"place" in record else None

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Return the id of the job that owns a deduplication id, or None.

        An add with this deduplication id would be a duplicate of that job. With mode "throttle" the job may have been
        removed already.
        """
        check_id("deduplication_id", deduplication_id)
        await self.connect()
        return await self._client.functions.deduplication.get_owner(deduplication_id) or None

    async def get_jobs(
        self,
        state: State | Sequence[State],
        start: int = 0,
        end: int = 99,
        *,
        newest_first: bool | None = None,
        with_data: bool = True,
    ) -> list[Job[Data, Result]]:
        """Return the jobs in a state, or in several states, from position `start` to `end`, both included.

        Several states are listed one after the other, in the order given; positions count through all of them.

        `newest_first` chooses the direction in which each state is listed:

        - None (the default): jobs that have not ended come in the order in which they will start, ended jobs come
          newest first.
        - True: every state is listed newest first. Jobs that have not ended come in the reverse of their start order.
        - False: every state is listed oldest first. Ended jobs come in the order in which they ended.

        `waiting` jobs come in three groups: released and reclaimed jobs, which start first; plain jobs, the oldest
        first; and `lifo` jobs, the newest first. Workers alternate between the last two groups, so the order across
        these groups is not defined. `active` jobs come in two groups: jobs that were claimed in FIFO order, and then
        all other jobs, worker by worker. With `with_data=False` the payloads are not read, and `data` of these jobs is
        None. A job that changes its state during the call may be missed, and none is returned twice.

        A high `start` costs nothing if `state` is one of `prioritized`, `delayed`, `failed`, `suspended` and
        `waiting-children`. In other states, and in a list of several states, the server reads the ids of all jobs
        before it, about 500 with each call. Use `iter_jobs` to read all jobs, and `Ops.find`, which has a cursor, to
        read a list page by page.

        Raises ValueError for an unknown state, for no state, and unless 0 <= start <= end.
        """
        if start < 0 or end < start:
            raise ValueError(f"start and end must be 0 <= start <= end, got {start} and {end}")
        found: dict[str, Job[Data, Result]] = {}
        states = _known_states(state)
        position = start if len(states) == 1 and states[0] in RANKED else 0
        async for ids in self._pages_of(states, newest_first, str(position) if position else ""):
            wanted = ids[max(0, start - position) : end + 1 - position]
            for job in await self._read(wanted, with_data):
                # A job that moves to a later state during the call is met again there.
                found.setdefault(job.id, job)
            position += len(ids)
            if position > end:
                break
        return list(found.values())

    async def iter_jobs(
        self, state: State | Sequence[State], *, newest_first: bool | None = None
    ) -> AsyncIterator[Job[Data, Result]]:
        """Iterate over the jobs in one or several states. `newest_first` is as for `get_jobs`.

        Jobs that change their state during the iteration may be missed or come twice.
        """
        async for ids in self._pages_of(_known_states(state), newest_first):
            async for job in self._each(ids):
                yield job

    async def _pages_of(
        self, states: Sequence[State], newest_first: bool | None, cursor: str = ""
    ) -> AsyncIterator[list[str]]:
        for one in states:
            async for ids in self._pages(one, newest_first, cursor=cursor):
                yield ids

    async def _pages(
        self, state: State, newest_first: bool | None, name: str | None = None, *, cursor: str = ""
    ) -> AsyncIterator[list[str]]:
        await self.connect()
        functions = self._client.functions
        # The server lists ended jobs newest first and all others in the order of their start, so the same direction is
        # the reverse of one and not of the other.
        backwards = newest_first is not None and newest_first != (state in FINAL)
        while True:
            if name is None:
                cursor, ids = await functions.reading.list_jobs(state, cursor, PAGE, backwards=backwards)
            else:
                cursor, ids, _ = await functions.searching.find(state, cursor, PAGE, name, backwards=backwards)
            yield ids
            if not cursor:
                return

    async def _each(self, ids: Sequence[str]) -> AsyncIterator[Job[Data, Result]]:
        """Iterate over the jobs that still exist, in reads that stay within the size limit of a reply."""
        async for piece in self._client.functions.reading.iter_records(ids):
            for job_id, record in piece:
                if b"place" in record:
                    yield job_of_record(self._client, job_id, record)

    async def _read(self, ids: Sequence[str], with_data: bool) -> list[Job[Data, Result]]:
        if with_data:
            return [job async for job in self._each(ids)]
        jobs: list[Job[Data, Result]] = []
        for job_id, record in zip(ids, await self._client.functions.reading.get_outlines(ids), strict=True):
            if b"place" in record:
                job = job_of_record(self._client, job_id, record)
                leave_out_data(job)
                jobs.append(job)
        return jobs

    async def get_job_counts(self) -> dict[State, int]:
        """Return the number of jobs in each state. All counts are read in one step."""
        await self.connect()
        return cast("dict[State, int]", await self._client.functions.reading.count_jobs())

    async def get_depth(self) -> QueueDepth:
        """Return the number of jobs in each state, the age of the oldest job that is ready, and the number of workers.

        All figures are read in one step. Pass this method to `watch` of `Prometheus` or `OpenTelemetry` to export the
        depth of a queue that has no worker in this process.
        """
        await self.connect()
        return await self._client.depth()

    async def count(self) -> int:
        """Return the number of jobs that wait for a first or a further run, in all waiting states together."""
        counts = await self.get_job_counts()
        return sum(number for state, number in counts.items() if state not in {"active", *FINAL})

    async def get_job_logs(self, job_id: str, start: int = 0, end: int = -1) -> list[str]:
        """Return the log lines of a job from `start` to `end`, both included. Negative positions count from the end."""
        check_id("job_id", job_id)
        await self.connect()
        _, lines = await self._client.functions.reading.get_logs(job_id, start, end)
        return lines

    async def chunks(self, job_id: str, after: str | None = None) -> AsyncGenerator[StreamItem]:
        """Iterate over the chunks of a job by its id, also after its record was removed; see `Job.chunks`."""
        await self.connect()
        async with aclosing(read_chunks(self._client, check_id("job_id", job_id), after)) as items:
            async for item in items:
                yield item

    async def has_chunks(self, job_id: str) -> bool:
        """Return whether `chunks` can read this job: it exists, and its stream is not forgotten."""
        await self.connect()
        return await is_readable(self._client, check_id("job_id", job_id))

    async def search_jobs(
        self,
        state: State | Sequence[State] | None = None,
        name: str | None = None,
        data: object = None,
        limit: int = 100,
        *,
        newest_first: bool | None = None,
    ) -> list[Job[Data, Result]]:
        """Return up to `limit` jobs that match all given filters, in the order of `get_jobs`, state by state.

        `state` is one state or several; None means every state. `name` must be equal. If `data` is a mapping, it
        matches jobs whose data is a mapping with all of its items (nested values must be equal); any other value must
        be equal. `newest_first` is the direction, as in `get_jobs`. The search reads all jobs in bounded steps until
        `limit` jobs match, which takes time on a large queue. Jobs that change their state during the search may be
        missed; none is returned twice. The data of a task are its arguments by name.
        """
        states = STATES if state is None else _known_states(state)
        if name is not None:
            check_id("job name", name)
        whole_number("limit", limit, least=0)
        found: list[Job[Data, Result]] = []
        if not limit:
            return found
        met: set[str] = set()
        tasks: TaskParameters = {} if data is None else await task_parameters(self)
        for one in states:
            async for ids in self._pages(one, newest_first, name):
                # The search may take minutes, and jobs move on while it runs. A job that was found in an earlier state
                # is not returned again.
                fresh = [job_id for job_id in ids if job_id not in met]
                async for job in self._each(fresh):
                    # The record is read after the list, so the job may have left the wanted states by now.
                    if (data is None or _matches(job, data, tasks)) and (state is None or job.state in states):
                        met.add(job.id)
                        found.append(job)
                        if len(found) == limit:
                            return found
        return found

    async def get_metrics(
        self,
        state: Literal["completed", "failed"],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> Metrics:
        """Return the number of jobs that ended in `state` in each minute, and the mean duration of their last runs.

        `start` and `end` (with a time zone) are the first and the last minute. The default is the last 24 hours, which
        is all that is stored. Jobs that have since been removed or retried count too; revoked jobs do not count.
        Raises TypeError or ValueError for a bad argument.
        """
        if state not in FINAL:
            raise ValueError(f"metrics exist only for ended jobs; state must be completed or failed, got {state!r}")
        start_ms = None if start is None else instant_to_ms("start", start)
        end_ms = None if end is None else instant_to_ms("end", end)
        if start_ms is not None and end_ms is not None and end_ms < start_ms:
            raise ValueError(f"start must not be after end, got {start} and {end}")
        await self.connect()
        points = tuple(map(_point, await self._client.functions.metrics.get(state, start_ms, end_ms)))
        return Metrics(sum(point.count for point in points), points)

    async def get_workers(self) -> list[WorkerInfo]:
        """Return the workers of this queue, the longest running first.

        A worker without a heartbeat for one minute is left out: it has died or lost its connection, and other workers
        reclaim its jobs when their leases expire.
        """
        await self.connect()
        rows = await self._client.functions.worker_list.list(round(SILENT_SECONDS * 1000))
        return sorted(map(_worker_info, rows), key=lambda worker: (worker.started_at, worker.name))


async def tell_worker(queue: Inspection[Any, Any], name: str, command: str) -> int:
    """Send a command to a worker. Return how many workers received it; -1 if this client may not publish."""
    await queue.connect()
    return await queue._client.functions.leases.tell(name, command)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _known_states(state: State | Sequence[State]) -> tuple[State, ...]:
    """Return the states, each once. Raises ValueError for an unknown one, and for none."""
    states = cast("tuple[State, ...]", (state,) if isinstance(state, str) else tuple(dict.fromkeys(state)))
    for one in states:
        if one not in STATES:
            raise ValueError(f"state must be one of {', '.join(STATES)}, got {one!r}")
    if not states:
        raise ValueError(f"state must name at least one of {', '.join(STATES)}, got {state!r}")
    return states


async def task_parameters(queue: Inspection[Any, Any]) -> TaskParameters:
    """Return the names of the parameters of the tasks that workers of the queue, or its app, have declared."""
    await queue.connect()
    stored = await queue._client.functions.known_tasks.list()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    own = queue._own_tasks  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return {**stored, **own()} if own else stored


def _matches(job: Job[Data, Result], wanted: object, tasks: TaskParameters) -> bool:
    try:
        data = cast("object", job.data)
    except SerializationError:
        return False
    named = named_call(data, tasks.get(job.name))
    # Other programs may use the form of a stored call for their own data.
    return _has(named, wanted) or (named is not data and _has(data, wanted))


def _has(data: object, wanted: object) -> bool:
    if not isinstance(wanted, Mapping):
        return data == wanted
    if not isinstance(data, Mapping):
        return False
    items, known = cast("Mapping[object, object]", wanted), cast("Mapping[object, object]", data)
    return all(key in known and known[key] == value for key, value in items.items())


def _point(row: MinuteRow) -> MetricPoint:
    return MetricPoint(from_ms(row.minute * 60_000), row.jobs, row.run_ms / row.jobs / 1000)


def _worker_info(row: WorkerRow) -> WorkerInfo:
    info = cast("dict[str, object]", msgpack.unpackb(row.info) or {} if row.info else {})
    started = cast("int", info.get("started", 0)) or row.last_seen
    concurrency, tasks = cast("int", info.get("concurrency", 0)), cast("list[str] | None", info.get("tasks"))
    return WorkerInfo(
        row.name,
        cast("str", info.get("host", "")),
        cast("int", info.get("pid", 0)),
        concurrency,
        from_ms(started),
        from_ms(row.last_seen),
        row.running,
        cast("int", info.get("slots", concurrency)),
        cast("WorkerState", info.get("state", "running")),
        None if tasks is None else tuple(tasks),
        cast("str", info.get("version", "")),
    )
