"""The type of `queue.sync`: the methods of Queue as blocking functions. `_internal/blocking.py` implements them."""

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
    """`queue.sync`: the blocking methods of a queue for code without an event loop.

    Parameters, results and errors are the same as in Queue. As a context manager it connects and closes the
    queue. The jobs that it returns are the same too: `job.sync.result()` waits for a result. It works in any thread and
    in forked children.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def connect(self) -> None:
        """Connect and check the stored queue. Idempotent; every other method connects when needed."""
        ...

    def close(self) -> None:
        """Send the waiting adds, then close the connections. Idempotent."""
        ...

    def add(
        self,
        name: str,
        data: Data = _NO_DATA,
        options: JobOptions | None = None,
        **keywords: Unpack[JobOptionsDict],
    ) -> Job[Data, Result]:
        """Add a job. When this returns, the job is stored and will reach exactly one final state."""
        ...

    def add_bulk(self, jobs: Iterable[JobInput[Data]]) -> list[Job[Data, Result]]:
        """Add many jobs, each given as (name, data) or (name, data, JobOptions). Return one job per input, in order."""
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
        """Add a job, wait for it, and return its result. Takes the same options as `add`."""
        ...

    def pause(self) -> None:
        """Stop claims: no worker starts another job of the queue."""
        ...

    def resume(self) -> None:
        """End a pause. Idle workers start immediately."""
        ...

    def is_paused(self) -> bool:
        """Return whether the queue is paused."""
        ...

    def check(self) -> list[Finding]:
        """Verify the integrity of every stored structure and record. Return the faults; [] means none."""
        ...

    def get_job(self, job_id: str) -> Job[Data, Result] | None:
        """Return a job, or None if no job has this id."""
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
        """Return the number of jobs in each state. All counts are read in one step."""
        ...

    def count(self) -> int:
        """Return the number of jobs that wait for a first or a further run, in all waiting states together."""
        ...

    def get_job_logs(self, job_id: str, start: int = 0, end: int = -1) -> list[str]:
        """Return the log lines of a job from `start` to `end`, both included. Negative positions count from the end."""
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
        """Return up to `limit` jobs that match all given filters, in the order of `get_jobs`, state by state."""
        ...

    def get_metrics(
        self, state: Literal["completed", "failed"], *, start: datetime | None = None, end: datetime | None = None
    ) -> Metrics:
        """Return the number of jobs that ended in `state` in each minute, and the mean duration of their last runs."""
        ...

    def get_workers(self) -> list[WorkerInfo]:
        """Return the workers of this queue, the longest running first."""
        ...

    def revoke(self, job_id: str, reason: str | None = None) -> bool:
        """Ensure that a job does not complete; see `Job.revoke`."""
        ...

    def remove(self, job_id: str) -> bool:
        """Delete a job. Return False if it does not exist."""
        ...

    def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Return the id of the job that owns a deduplication id, or None."""
        ...

    def release_deduplication(self, deduplication_id: str) -> bool:
        """Release a deduplication id, so that the next add with it creates a job although the owner has not ended."""
        ...

    def drain(self, delayed: bool = False) -> int:
        """Remove the waiting jobs, and with `delayed=True` the delayed ones too. Return their number."""
        ...

    def clean(self, grace: float | timedelta = 0, limit: int = 1000, state: CleanState = "completed") -> list[str]:
        """Remove at most `limit` jobs in `state` that are at least `grace` seconds old. Return their ids."""
        ...

    def promote_jobs(self, count: int | None = None) -> int:
        """Make at most `count` delayed jobs ready now, the next due ones first. Return their number."""
        ...

    def update_result_ttl(self, job_id: str, ttl: float | timedelta | None) -> None:
        """Change how long the result of an ended job is kept; see `Job.update_result_ttl`."""
        ...

    def retry_jobs(self, state: Literal["failed", "completed"] = "failed", count: int | None = None) -> int:
        """Run at most `count` ended jobs again with fresh attempts, the newest first. Return their number."""
        ...

    def obliterate(self, force: bool = False) -> int:
        """Remove the queue: its jobs in every state and all its store keys. Return the number of jobs."""
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
        """Create a job scheduler, or change the one with this id. When this returns, it is stored."""
        ...

    def get_job_scheduler(self, scheduler_id: str) -> JobScheduler[Data] | None:
        """Return a job scheduler, or None if no scheduler has this id."""
        ...

    def get_job_schedulers(self) -> list[JobScheduler[Data]]:
        """Return all job schedulers, by id. Those that this version cannot read are logged and left out."""
        ...

    def pause_job_scheduler(self, scheduler_id: str) -> bool:
        """Stop a job scheduler from adding jobs until it is resumed. Return False if no scheduler has this id."""
        ...

    def resume_job_scheduler(self, scheduler_id: str) -> bool:
        """End the pause of a job scheduler. Return False if no scheduler has this id."""
        ...

    def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Delete a job scheduler and its history, but not its jobs. Return False if no scheduler has this id."""
        ...

    def trigger_job_scheduler(self, scheduler_id: str) -> Job[Data, Result]:
        """Add a job of a scheduler now, with a generated id. The schedule and the overlap policy are ignored."""
        ...

    def get_dead_letter_jobs(
        self, start: int = 0, end: int = 99, *, cause: FailureCause | None = None
    ) -> list[Job[Data, Result]]:
        """Return the dead letters from position `start` to `end`, both included. Changes nothing."""
        ...

    def replay_dead_letter_jobs(self, count: int | None = None, *, cause: FailureCause | None = None) -> int:
        """Run at most `count` of the current dead letters again, the oldest first. Return their number."""
        ...

    def set_dead_letter_queue(self, name: str | None) -> None:
        """Set the queue that receives a copy of each dead letter of this queue. None removes the setting."""
        ...

    def get_dead_letter_queue(self) -> str | None:
        """Return the queue that receives dead letters, None if they only stay in `failed`."""
        ...

    def set_global_concurrency(self, concurrency: int | None) -> None:
        """Limit the number of jobs of the queue that run at the same time on all workers; None removes the limit."""
        ...

    def get_global_concurrency(self) -> int | None:
        """Return the limit of running jobs, None if there is none."""
        ...

    def set_global_rate_limit(self, rate_limit: RateLimit) -> None:
        """Limit the queue to `max` job starts in any window of `duration` seconds, on all workers together."""
        ...

    def get_global_rate_limit(self) -> RateLimit | None:
        """Return the rate limit of the queue, None if there is none."""
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
        """Set the limits of one ordering key; `key=None` sets the default for keys without a limit of the same kind."""
        ...

    def get_key_limits(self, key: str | None) -> KeyLimits:
        """Return the limits that were set for one ordering key, or with None the default for all keys."""
        ...

    def pause_key(self, key: str, seconds: float | timedelta) -> None:
        """Stop starts of jobs with this key for `seconds` from now; 0 ends a pause. Running jobs continue."""
        ...
