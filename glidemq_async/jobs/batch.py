"""The jobs of one `add_bulk` or `add_many`, with their common progress and results."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, Literal, TypeAlias, cast, get_args, overload

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.generics import Data, Result
from glidemq_async.client.end_collector import EndCollector
from glidemq_async.client.ended import Ended
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import BatchFailed, GlideMQError, ResultTimeout
from glidemq_async.functions.calling import Record
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.reply_codes import not_found
from glidemq_async.jobs.snapshot import client_of, result_of
from glidemq_async.options.validation import optional_seconds
from glidemq_async.stored.record import State, place_of

BatchState: TypeAlias = Literal[State, "missing"]
"""The state of a job of a batch. "missing": the job was removed, or its retention has expired."""
STATES: Final[tuple[BatchState, ...]] = (*get_args(State), "missing")
ENDED: Final[frozenset[BatchState]] = frozenset({"completed", "failed", "missing"})
STEP: Final = 250
"""Number of results that are decoded before other tasks of the event loop run."""


@dataclass(frozen=True, slots=True)
class JobOutcome(Generic[Result]):
    """The end of one job of a batch: its result or its error."""

    job: Job[Any, Result]
    """The job as it was added. Its fields are not read again."""
    error: GlideMQError | None
    """JobFailed if the job has failed, JobNotFound if it is missing, SerializationError if its result is unreadable,
    and None if the job has completed."""
    _value: Result | None = None

    @property
    def value(self) -> Result:
        """The result of the job. Raises `error` if there is one."""
        if self.error is not None:
            raise self.error
        return cast("Result", self._value)


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The number of jobs of a batch in each state, as this process has last seen them."""

    counts: Mapping[BatchState, int]
    """The number of jobs in each state. States without jobs are left out."""

    @property
    def total(self) -> int:
        """The number of jobs."""
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        """The number of jobs that are completed, failed or missing."""
        return sum(self.counts.get(state, 0) for state in ENDED)

    @property
    def fraction(self) -> float:
        """The part of the jobs that have ended, from 0 to 1. An empty batch has ended."""
        return self.ended / self.total if self.counts else 1.0


class JobBatch(list[Job[Data, Result]], Generic[Data, Result]):
    """The list of the jobs of one `add_bulk` or `add_many`, with their common progress and results.

    The jobs are in the order of their inputs. Waiting for their results needs one call for more than a hundred jobs,
    and no connection, task or timer for each job. Results of jobs that ended before the call are found if their records
    are still kept. For more jobs than the queue keeps, add them with a `result_ttl`.
    """

    __slots__ = ("_ends", "_states")

    def __init__(self, jobs: Iterable[Job[Data, Result]] = ()) -> None:
        super().__init__(jobs)
        # Ends that have arrived stay here, so that a caller that was cancelled or ran out of time finds them again.
        # The server need not keep them once they are confirmed.
        self._ends: dict[Job[Data, Result], Ended | None] = {}
        self._states: dict[Job[Data, Result], BatchState] = {}

    @property
    def sync(self) -> SyncJobBatch[Data, Result]:
        """The blocking methods, for code without an event loop. Raises IndexError if the batch is empty."""
        return SyncJobBatch(self, client_of(self[0]).home)

    @property
    def progress(self) -> BatchProgress:
        """The progress that this process knows: from the add, from `counts`, and from ends that have arrived.

        Makes no call to the server.
        """
        return BatchProgress(self._count())

    async def counts(self) -> dict[BatchState, int]:
        """Read the states of the jobs that have not ended yet, and return the number of jobs in each state.

        One call reads as many jobs as the server can look at in 2 ms, at most 500. A job that has ended is not read
        again, so it counts as ended even if its record is removed.
        """
        for client, jobs in _grouped(job for job in self if self._state_of(job) not in ENDED or job.gone).items():
            async for heads in client.functions.reading.iter_heads(list(jobs)):
                for job_id, head in heads:
                    self._states.update(dict.fromkeys(jobs[job_id], _state_in(head)))
        known = self._count()
        return {state: known[state] for state in STATES}

    async def failures(self) -> list[JobOutcome[Result]]:
        """Return the outcomes of the jobs that have failed or are missing so far, in the order of the batch.

        Calls `counts`, and reads the records of the failed jobs.
        """
        await self.counts()
        for client, jobs in _grouped(job for job in self if self._states.get(job) == "failed").items():
            async for records in client.functions.reading.iter_records(list(jobs)):
                for job_id, record in records:
                    self._keep(jobs[job_id], _failure_in(record))
        self._keep([job for job in self if self._states.get(job) == "missing"], None)
        failed = [self._outcome(job) for job in self if self._state_of(job) in {"failed", "missing"}]
        return [outcome for outcome in failed if outcome.error is not None]

    @overload
    async def results(
        self, timeout: float | timedelta | None = None, *, on_failure: Literal["raise"] = "raise"
    ) -> list[Result]: ...

    @overload
    async def results(
        self, timeout: float | timedelta | None = None, *, on_failure: Literal["return"]
    ) -> list[JobOutcome[Result]]: ...

    async def results(
        self, timeout: float | timedelta | None = None, *, on_failure: Literal["raise", "return"] = "raise"
    ) -> list[Result] | list[JobOutcome[Result]]:
        """Wait until all jobs have ended, and return their results in the order of the batch.

        If jobs failed or are missing, raises BatchFailed after all jobs have ended. With `on_failure="return"` the list
        has a JobOutcome for each job instead, and failures raise nothing. Raises ResultTimeout after `timeout` seconds.
        The jobs continue then, and their results can be awaited again. Raises ValueError for any other `on_failure`.
        """
        if on_failure not in {"raise", "return"}:
            raise ValueError(f'on_failure must be "raise" or "return", got {on_failure!r}')
        outcomes: dict[Job[Any, Result], JobOutcome[Result]] = {}
        async for outcome in self.as_ended(timeout):
            outcomes[outcome.job] = outcome
        ordered = [outcomes[job] for job in self]
        return ordered if on_failure == "return" else results_of(ordered)

    def __aiter__(self) -> AsyncIterator[JobOutcome[Result]]:
        """Iterate over the outcomes of the jobs as they end, without a timeout."""
        return self.as_ended()

    async def as_ended(self, timeout: float | timedelta | None = None) -> AsyncIterator[JobOutcome[Result]]:
        """Yield the outcome of each job when the job ends. Outcomes that have arrived before come first.

        Raises ResultTimeout when `timeout` seconds have passed since the first step.
        """
        seconds = optional_seconds("timeout", timeout)
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        known = [job for job in self if job in self._ends]
        open_jobs = _grouped(job for job in self if job not in self._ends)
        for at, job in enumerate(known, 1):
            yield self._outcome(job)
            if at % STEP == 0:
                await asyncio.sleep(0)

        def keep(client: QueueClient, job_id: str, ended: Ended | None) -> None:
            self._keep(open_jobs[client][job_id], ended)

        async with EndCollector(open_jobs, keep) as ends:
            for at in range(1, 1 + sum(map(len, open_jobs.values()))):
                try:
                    async with asyncio.timeout_at(deadline):
                        client, job_id = await ends.next()
                except TimeoutError:
                    raise self._timeout(seconds) from None
                for job in open_jobs[client][job_id]:
                    yield self._outcome(job)
                if at % STEP == 0:
                    await asyncio.sleep(0)

    def _keep(self, jobs: Iterable[Job[Data, Result]], ended: Ended | None) -> None:
        for job in jobs:
            self._ends.setdefault(job, ended)

    def _count(self) -> Counter[BatchState]:
        return Counter(self._state_of(job) for job in self)

    def _state_of(self, job: Job[Data, Result]) -> BatchState:
        if job in self._ends:
            ended = self._ends[job]
            return cast("BatchState", ended.state) if ended is not None else "missing"
        return self._states.get(job) or ("missing" if job.gone else job.state)

    def _outcome(self, job: Job[Data, Result]) -> JobOutcome[Result]:
        return outcome_of(job, self._ends[job])

    def _timeout(self, seconds: float | None) -> ResultTimeout:
        progress = self.progress
        return ResultTimeout(
            f"{progress.total - progress.ended} of {progress.total} jobs did not end within {seconds} s; check that a "
            "worker is running. The jobs continue and their results can be awaited again"
        )


class SyncJobBatch(Blocking[JobBatch[Data, Result]], Generic[Data, Result]):
    """`batch.sync`: the blocking methods of a batch for code without an event loop."""

    counts = blocking(JobBatch[Data, Result].counts)
    failures = blocking(JobBatch[Data, Result].failures)
    results = blocking(JobBatch[Data, Result].results)
    as_ended = blocking(JobBatch[Data, Result].as_ended)


def outcome_of(job: Job[Any, Result], ended: Ended | None) -> JobOutcome[Result]:
    """Return the outcome of a job that has ended, or is missing."""
    if ended is None:
        return JobOutcome(job, not_found("return the result of", job.id))
    try:
        return JobOutcome(job, None, cast("Result", result_of(job, ended)))
    except GlideMQError as error:
        return JobOutcome(job, error)


def results_of(outcomes: Sequence[JobOutcome[Result]]) -> list[Result]:
    """Return the results of outcomes. Raises BatchFailed if some have none."""
    if errors := [_located(each, at) for at, each in enumerate(outcomes) if each.error is not None]:
        raise BatchFailed(f"{len(errors)} of {len(outcomes)} jobs have no result", errors)
    return [outcome.value for outcome in outcomes]


def _grouped(jobs: Iterable[Job[Data, Result]]) -> dict[QueueClient, dict[str, list[Job[Data, Result]]]]:
    """Return jobs by client and id. Several of them have the same id if some are duplicates."""
    grouped: dict[QueueClient, dict[str, list[Job[Data, Result]]]] = {}
    for job in jobs:
        grouped.setdefault(client_of(job), {}).setdefault(job.id, []).append(job)
    return grouped


def _state_in(head: Record) -> BatchState:
    return place_of(head).state if head else "missing"


def _failure_in(record: Record) -> Ended | None:
    if not record:
        return None
    return Ended("failed", record.get(b"error", b""), record.get(b"reason", b"").decode(errors="replace"))


def _located(outcome: JobOutcome[Any], at: int) -> GlideMQError:
    """Return the error of an outcome, with a note about its job."""
    error = outcome.error
    assert error is not None  # noqa: S101 - the caller has checked it
    error.add_note(f"job {outcome.job.id} at position {at} of the batch")
    return error
