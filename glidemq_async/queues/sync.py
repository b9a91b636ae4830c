"""The type of `queue.sync`: the coroutines of Queue as functions that wait; what does the waiting is in sync.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, Unpack

from glidemq_async._internal.generics import Data, Result
from glidemq_async.functions.callers import Finding
from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions, JobOptionsDict
from glidemq_async.queues.base import JobInput
from glidemq_async.queues.cleaning import CleanState
from glidemq_async.queues.inspection import Metrics, WorkerInfo
from glidemq_async.queues.limits import UNCHANGED, KeyLimits, Unchanged
from glidemq_async.queues.rates import RateLimit, TokenBucket
from glidemq_async.queues.schedulers import JobScheduler, SchedulerOptionsDict
from glidemq_async.schedules.schedule import Schedule
from glidemq_async.stored.dead_letter import FailureCause
from glidemq_async.stored.record import State

_NO_DATA: Final[Any] = None


class SyncQueue(Protocol[Data, Result]):
    """`queue.sync`: what Queue awaits, for code without an event loop; parameters, results and errors are the same.

    As a context manager it connects and closes the queue. What it returns is what Queue returns: `job.sync.result()`
    waits for a result. It may be used from any thread, and in forked children.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def connect(self) -> None:
        """Connect and check the stored queue; idempotent. Every other method does it when needed."""
        ...

    def close(self) -> None:
        """Send the adds that wait in line, then let go of the connections; idempotent."""
        ...

    def add(
        self,
        name: str,
        data: Data = _NO_DATA,
        options: JobOptions | None = None,
        **keywords: Unpack[JobOptionsDict],
    ) -> Job[Data, Result]:
        """Add a job; once this returns it is stored and will reach exactly one final state."""
        ...

    def add_bulk(self, jobs: Iterable[JobInput[Data]]) -> list[Job[Data, Result]]:
        """Add many jobs, (name, data) or (name, data, JobOptions) each; returns one job per input, in order."""
        ...

    def add_and_wait(
        self,
        name: str,
        data: Data = _NO_DATA,
        options: JobOptions | None = None,
        *,
        wait_timeout: float | timedelta | None = None,
        **keywords: Unpack[JobOptionsDict],
    ) -> Result:
        """Add a job and return its result: request and reply through the queue."""
        ...

    def pause(self) -> None:
        """Let no worker claim jobs; those that run go on, and adding, delays and retries go on too."""
        ...

    def resume(self) -> None:
        """End a pause; idle workers start at once."""
        ...

    def is_paused(self) -> bool:
        """Return whether the queue is paused."""
        ...

    def check(self) -> list[Finding]:
        """Prove the stored data: walk every structure and record, and return what is broken ([] = nothing)."""
        ...

    def get_job(self, job_id: str) -> Job[Data, Result] | None:
        """Return a job, None if there is none with this id."""
        ...

    def get_jobs(
        self,
        state: State | Sequence[State],
        start: int = 0,
        end: int = 99,
        *,
        newest_first: bool | None = None,
        with_data: bool = True,
    ) -> list[Job[Data, Result]]:
        """Return the jobs in one or several states from position `start` to `end`, both included."""
        ...

    def iter_jobs(
        self, state: State | Sequence[State], *, newest_first: bool | None = None
    ) -> Iterator[Job[Data, Result]]:
        """Iterate over the jobs in one or several states, in the order of `get_jobs`."""
        ...

    def get_job_counts(self) -> dict[State, int]:
        """Return the number of jobs in each state, computed from the stored structures in one instant."""
        ...

    def count(self) -> int:
        """Return the number of jobs that have not started or wait for another attempt, in whatever state they wait."""
        ...

    def get_job_logs(self, job_id: str, start: int = 0, end: int = -1) -> list[str]:
        """Return log lines of a job from `start` to `end`, both included; negative positions count from the end."""
        ...

    def search_jobs(
        self,
        state: State | Sequence[State] | None = None,
        name: str | None = None,
        data: object = None,
        limit: int = 100,
        *,
        newest_first: bool | None = None,
    ) -> list[Job[Data, Result]]:
        """Return up to `limit` jobs that match every filter given, in the order of `get_jobs`, state by state."""
        ...

    def get_metrics(
        self, state: Literal["completed", "failed"], *, start: datetime | None = None, end: datetime | None = None
    ) -> Metrics:
        """Return how many jobs ended in `state`, minute by minute, and how long their last runs took."""
        ...

    def get_workers(self) -> list[WorkerInfo]:
        """Return the workers of this queue, the longest running first."""
        ...

    def revoke(self, job_id: str, reason: str | None = None) -> bool:
        """Make sure a job does not run to its end; see `Job.revoke`. Raises JobNotFound, JobStateError."""
        ...

    def remove(self, job_id: str) -> bool:
        """Delete a job; returns whether there was one."""
        ...

    def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Return the id of the job that owns a deduplication id, None when no job does."""
        ...

    def release_deduplication(self, deduplication_id: str) -> bool:
        """Let the next add with this deduplication id make a new job, although the owner has not ended."""
        ...

    def drain(self, delayed: bool = False) -> int:
        """Remove the jobs that wait, with `delayed=True` the delayed ones too; returns how many."""
        ...

    def clean(self, grace: float | timedelta = 0, limit: int = 1000, state: CleanState = "completed") -> list[str]:
        """Remove jobs in `state` that are at least `grace` seconds old, at most `limit`; returns their ids."""
        ...

    def promote_jobs(self, count: int | None = None) -> int:
        """Let delayed jobs start now, those that are due next first, at most `count`; returns how many."""
        ...

    def update_result_ttl(self, job_id: str, ttl: float | timedelta | None) -> None:
        """Change how long an ended job's result stays; see `Job.update_result_ttl`."""
        ...

    def retry_jobs(self, state: Literal["failed", "completed"] = "failed", count: int | None = None) -> int:
        """Run ended jobs again with fresh attempts, the newest first, at most `count`; returns how many."""
        ...

    def obliterate(self, force: bool = False) -> int:
        """Remove the queue: its jobs in every state and every key of it; returns the number of jobs."""
        ...

    def upsert_job_scheduler(
        self,
        scheduler_id: str,
        schedule: Schedule | None = None,
        *,
        name: str | None = None,
        data: Data = _NO_DATA,
        **options: Unpack[SchedulerOptionsDict],
    ) -> JobScheduler[Data]:
        """Create a job scheduler, or change the one with this id; once this returns it is stored."""
        ...

    def get_job_scheduler(self, scheduler_id: str) -> JobScheduler[Data] | None:
        """Return a job scheduler, None if there is none with this id."""
        ...

    def get_job_schedulers(self) -> list[JobScheduler[Data]]:
        """Return all job schedulers, by id. One that this version cannot read is left out, with a warning logged."""
        ...

    def pause_job_scheduler(self, scheduler_id: str) -> bool:
        """Let a job scheduler add no jobs until it is resumed; returns False when there is none with this id."""
        ...

    def resume_job_scheduler(self, scheduler_id: str) -> bool:
        """End the pause of a job scheduler; returns False when there is none with this id."""
        ...

    def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Delete a job scheduler and its history; jobs that it has added stay. False when there is none."""
        ...

    def trigger_job_scheduler(self, scheduler_id: str) -> Job[Data, Result]:
        """Add a job of a scheduler now, with a generated id, whatever its schedule and its overlap policy say."""
        ...

    def get_dead_letter_jobs(
        self, start: int = 0, end: int = 99, *, cause: FailureCause | None = None
    ) -> list[Job[Data, Result]]:
        """Return dead letters from position `start` to `end`, both included: a look that changes nothing."""
        ...

    def replay_dead_letter_jobs(self, count: int | None = None, *, cause: FailureCause | None = None) -> int:
        """Run dead letters again, the oldest first, at most `count` of those there now; returns how many."""
        ...

    def set_dead_letter_queue(self, name: str | None) -> None:
        """Say to which queue the dead letters of this one are moved as well, None for none."""
        ...

    def get_dead_letter_queue(self) -> str | None:
        """Return to which queue dead letters are moved, None when they only stay in `failed`."""
        ...

    def set_global_concurrency(self, concurrency: int | None) -> None:
        """Let at most so many jobs of the queue run at once, on all workers together; None removes the limit."""
        ...

    def get_global_concurrency(self) -> int | None:
        """Return the limit of running jobs, None where there is none."""
        ...

    def set_global_rate_limit(self, rate_limit: RateLimit) -> None:
        """Let at most `max` jobs of the queue start in any window of `duration` seconds, on all workers together."""
        ...

    def get_global_rate_limit(self) -> RateLimit | None:
        """Return the rate limit of the queue, None where there is none."""
        ...

    def remove_global_rate_limit(self) -> None:
        """Remove the rate limit of the queue."""
        ...

    def set_key_limits(
        self,
        key: str | None,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate_limit: RateLimit | Unchanged | None = UNCHANGED,
        token_bucket: TokenBucket | Unchanged | None = UNCHANGED,
    ) -> None:
        """Limit the jobs of one key; `key=None` sets each limit for the keys that have none of that kind themselves."""
        ...

    def get_key_limits(self, key: str | None) -> KeyLimits:
        """Return what was set for a key itself, or with None for the keys that do not set it themselves."""
        ...

    def pause_key(self, key: str, seconds: float | timedelta) -> None:
        """Let no job of a key start for `seconds` from now on; 0 ends a pause. Jobs that run go on."""
        ...
