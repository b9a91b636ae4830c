"""The runs of one worker, and the decision about the outcome of each run that has ended."""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from glidemq_async._internal import failpoints
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.durations import to_ms
from glidemq_async.errors import (
    ExecutorError,
    PayloadTooLarge,
    Postponed,
    RateLimited,
    RetryLater,
    SerializationError,
    StepFailed,
    Suspended,
    UnrecoverableError,
    WaitingForChildren,
    WorkflowDiverged,
)
from glidemq_async.executors.protocol import AwaitsHandlers, BeginsRuns, Executor, Handler
from glidemq_async.functions import outcomes
from glidemq_async.functions.outcomes import (
    Completed,
    Delayed,
    Failed,
    FailureCause,
    Outcome,
    Released,
    Retention,
    Retry,
)
from glidemq_async.instrumentation import Instruments, RunOutcome
from glidemq_async.jobs.abort import set_abort
from glidemq_async.jobs.context import set_current_job
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import client_of, is_unreadable, meter_of, run_options
from glidemq_async.options.budget import JobBudget
from glidemq_async.options.job_options import JobOptions, KeepJobs
from glidemq_async.options.retention import age_ms
from glidemq_async.options.retry_rules import HasRetryRules, RetryRules
from glidemq_async.stored.failure import Failure, failure_of, one_line
from glidemq_async.stored.hand_over import Waits
from glidemq_async.worker.execution import AfterExecution, Execution, changed_failure, changed_ttl
from glidemq_async.worker.strategies import BackoffStrategy, ask

StopReason: TypeAlias = Literal["", "revoked", "lease lost", "shutdown"]

_NO_FAILURE: Final = Failure("", "", "")
#: Errors for which another attempt would end the same way, and the cause to store.
_FINAL: Final[tuple[tuple[type[Exception], FailureCause], ...]] = (
    (PayloadTooLarge, "oversize"),
    (UnrecoverableError, "unrecoverable"),
    (SerializationError, "unrecoverable"),
    (StepFailed, "unrecoverable"),
    (WorkflowDiverged, "diverged"),
)

RELEASED: Final = Released()


class Run:
    """One claimed job, from its claim until its outcome is stored."""

    __slots__ = (
        "begun",
        "entry",
        "has_options",
        "job",
        "options",
        "outcome",
        "plain_since",
        "raw",
        "seconds",
        "stop_reason",
        "task",
        "value",
    )

    def __init__(self, job: Job[Any, Any], entry: str, has_options: bool, plain_since: int | None = None) -> None:
        self.job = job
        self.plain_since = plain_since
        """When the run of a plain job began (server ms), None for any other job."""
        self.entry = entry
        """The fencing token of the run."""
        self.raw: bytes | str = entry[1:]
        """The id of the entry."""
        self.has_options = has_options
        """False if `run_options` of the job returns only defaults."""
        self.options: JobOptions | None = None
        """The options of the job, set by its session. None if it has none."""
        self.task: asyncio.Task[None] | None = None
        self.stop_reason: StopReason = ""
        self.begun = False
        self.seconds = 0.0
        """The duration of the run in seconds."""
        self.outcome: Outcome = RELEASED
        self.value: Any = None
        """The result, or the error that the handler raised."""

    def end(self, outcome: Outcome, value: object) -> bool:
        """Set the outcome to store. Return True, for the functions that return whether there is one."""
        self.outcome = outcome
        self.value = value
        return True

    def stopped(self) -> bool:
        """Return whether a stop of the run was requested."""
        return bool(self.stop_reason)

    def stop(self, reason: StopReason) -> None:
        """Set the job's abort signal and cancel the handler. The first reason is kept."""
        if self.stop_reason:
            return
        self.stop_reason = reason
        set_abort(self.job.abort, reason)
        # A stop can come before the task of the run has made its first step: the store sends a message as soon as a job
        # is revoked, and that may be the message after the claim. A task that is cancelled so early never runs any of
        # its code, so nothing would settle the run and free its slot. Such a run is not cancelled. It finds the reason
        # in its first step.
        if self.task is not None and self.begun:
            self.task.cancel(reason)


RunFunction: TypeAlias = Callable[[Run], Awaitable[bool]]
"""Runs a job to its end. Returns False if the outcome must not be stored because the lease is lost."""


def _retention(keep: KeepJobs | None, result_ttl: float | None = None) -> Retention | None:
    """Return the retention of a job; None is the default of the queue."""
    if result_ttl is not None:
        return Retention(ttl_ms=round(result_ttl * 1000))
    return None if keep is None else Retention(keep.count, age_ms(keep))


def _has_executed(outcome: Outcome) -> bool:
    """Return whether the handler itself ended the job. A revoked job has no error of its handler."""
    return isinstance(outcome, Completed) or (isinstance(outcome, Failed) and outcome.cause != "revoked")


def run_outcome(outcome: Outcome) -> RunOutcome:
    """Return the end of a run in the terms of instrumentation."""
    if isinstance(outcome, Failed) and outcome.cause == "revoked":
        return "revoked"
    return _OUTCOMES[type(outcome)]


_OUTCOMES: Final[Mapping[type[Outcome], RunOutcome]] = {
    Completed: "completed",
    Retry: "retrying",
    Failed: "failed",
    Delayed: "delayed",
    outcomes.Suspended: "suspended",
    outcomes.RateLimited: "delayed",
    outcomes.WaitsForChildren: "delayed",
    Released: "returned",
}
_ERRORS: Final = frozenset({"retrying", "failed", "delayed"})
_MAX_CRASHED_JOBS: Final = 10_000


class Crashes:
    """Detects poison jobs, which kill their process again and again. Remembers the last 10,000 such jobs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def is_poison(self, job_id: str, error: BaseException) -> bool:
        """Record a failed run. Return True if the job has killed its process more often than allowed."""
        if not isinstance(error, ExecutorError) or error.exit_status is None:
            return False
        count = self._counts.pop(job_id, 0) + 1
        if count > self._limit:
            return True
        self._counts[job_id] = count
        if len(self._counts) > _MAX_CRASHED_JOBS:
            del self._counts[next(iter(self._counts))]
        return False


class Runner:
    """Runs jobs through the executor and decides the outcome of each run."""

    def __init__(
        self,
        client: QueueClient,
        handler: Handler,
        executor: Executor,
        strategies: Mapping[str, BackoffStrategy],
        after_execution: AfterExecution | None,
        on_error: Callable[[Exception], None],
        instruments: Instruments,
        max_crashes: int,
        rules: RetryRules | None,
    ) -> None:
        self._instruments = instruments
        self._crashes = Crashes(max_crashes)
        self._client = client
        self._longest_rest_ms = to_ms("rest", (client.budget or JobBudget()).rest)
        self._handler = handler
        self._executor = executor
        self._awaits_handlers = isinstance(executor, AwaitsHandlers)
        self.call: Callable[[Job[Any, Any]], Any] = self._begin
        """Calls the handler of a job without a timeout, and returns the awaitable of its result."""
        if isinstance(executor, BeginsRuns):
            self.call = executor.begin
        elif self._awaits_handlers:
            self.call = handler
        self._rules = rules
        self._strategies = strategies
        self._after_execution = after_execution
        self._on_error = on_error
        none = client.payloads.packed_none
        self.completed_none = None if none is None else Completed(none)
        """The most frequent outcome, made once."""

    async def run(self, run: Run) -> bool:
        """Run a job to its end. Return False if the outcome must not be stored because the lease is lost."""
        # From here on `Run.stop` cancels the task. Nothing awaits between this line and the check of the reason, so a
        # stop either is seen by the check or cancels an await of the rest.
        run.begun = True
        # The task of the run has its own context, or the next run of the task sets the variable again.
        set_current_job(run.job)
        if run.stop_reason:
            return await self.flush(run, stored=self._after_stop(run))
        began = time.monotonic()
        timeout = None if run.options is None else run.options.timeout
        try:
            if failpoints.armed:
                failpoints.hit("run.before_handler")
            value = await self._begin(run.job, timeout)
            if failpoints.armed:
                failpoints.hit("run.after_handler")
            self.complete(run, value)
            stored = True
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's failure
            stored = self._ended_by(run, error)
        finally:
            run.seconds = time.monotonic() - began
        return stored if meter_of(run.job) is None else await self.flush(run, stored=stored)

    def _begin(self, job: Job[Any, Any], timeout: float | None = None) -> Any:
        if timeout is None and self._awaits_handlers:
            return self._handler(job)
        return self._executor.run(self._handler, job, timeout)

    async def flush(self, run: Run, *, stored: bool = True) -> bool:
        """Write what the run has left to be written. Return `stored`."""
        if (meter := meter_of(run.job)) is not None:
            await meter.flush()
        return stored

    async def fail(self, run: Run, error: BaseException) -> bool:
        """End a run whose handler has raised an error. Return what `run` returns."""
        return await self.flush(run, stored=self._ended_by(run, error))

    def _ended_by(self, run: Run, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError):
            return self._cancelled(run, error)
        return self._raised(run, error)

    async def run_reviewed(self, run: Run) -> bool:
        """Do the same as `run`, and pass a final outcome to `after_execution`."""
        stored = await self.run(run)
        if stored and self._after_execution is not None and _has_executed(run.outcome):
            await self._review(run, self._after_execution)
        return stored

    async def run_instrumented(self, run: Run) -> bool:
        """Do the same as `run_reviewed`, and report the run to the instrumentation."""
        with self._instruments.running(run.job) as report:
            stored = await self.run_reviewed(run)
            report.seconds = run.seconds
            if stored:
                report.outcome = run_outcome(run.outcome)
                report.error = run.value if report.outcome in _ERRORS else None
        return stored

    def complete(self, run: Run, value: object) -> None:
        """Set the outcome of a run whose handler has returned. Raises an error for a value that cannot be stored."""
        job, options = run.job, run.options
        retention = _retention(options.keep_completed, options.result_ttl) if options else None
        if value is None and retention is None and self.completed_none is not None:
            run.end(self.completed_none, None)
        else:
            run.end(Completed(self._client.encode(value, "result", job.name, job.id), retention), value)

    async def _review(self, run: Run, after_execution: AfterExecution) -> None:
        """Pass a final outcome to `after_execution`. If that function fails, the outcome is stored unchanged."""
        try:
            completed = isinstance(run.outcome, Completed)
            error = None if completed else run.value
            failure = failure_of(error) if error is not None else _NO_FAILURE
            result = run.value if completed else None
            execution = Execution(run.job, result, error, failure)
            answer = after_execution(execution)
            if inspect.isawaitable(answer):
                await answer
            self._change(run, execution, failure)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as broken:  # noqa: BLE001 - a broken function must not lose the outcome
            self._not_reviewed(run, broken)

    def _not_reviewed(self, run: Run, broken: BaseException) -> None:
        if isinstance(broken, asyncio.CancelledError) and run.stopped():
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            return
        error = broken if isinstance(broken, Exception) else RuntimeError(f"{type(broken).__name__}: {broken}")
        error.add_note(f"in after_execution of job {run.job.id}, whose outcome is stored as it was")
        self._on_error(error)

    def _change(self, run: Run, execution: Execution, failure: Failure) -> None:
        job, outcome, ttl = run.job, run.outcome, changed_ttl(execution)
        if isinstance(outcome, Failed):
            # The cause of the failure stays. The function can only change the texts.
            changed, retention = changed_failure(execution, failure), _retention(run_options(job).keep_failed, ttl)
            run.outcome = Failed(_packed(run, changed), outcome.cause, changed.reason(), retention)
            return
        payload = self._client.encode(execution.result, "result", job.name, job.id)
        run.end(Completed(payload, _retention(run_options(job).keep_completed, ttl)), execution.result)

    def _raised(self, run: Run, error: BaseException) -> bool:
        # A handler often answers its cancellation with another error, for example one from a cleanup. That error must
        # not count as an attempt: the stop decides the outcome.
        if run.stopped():
            return self._after_stop(run)
        if isinstance(error, RetryLater) and error.count:
            return self._failed(run, error.__cause__ or error, None, error.delay_ms)
        if isinstance(error, RetryLater):
            return run.end(Delayed(error.delay, one_line(error.waits_for)), error)
        if isinstance(error, RateLimited):
            # A rate-limited job pauses other jobs too, so its budget bounds the pause.
            delay = min(error.delay_ms, self._longest_rest_ms) / 1000
            return run.end(outcomes.RateLimited(delay, one_line(error.waits_for)), error)
        if isinstance(error, Suspended):
            waits = Waits(error.reason, error.signals, error.single, error.known_ends is not None).stored()
            ended = outcomes.Suspended(
                waits, error.timeout_ms, error.step, error.gives_back, error.known_ends, error.is_warm
            )
            return run.end(ended, error)
        if isinstance(error, Postponed):
            return run.end(_delayed(error), error)
        if isinstance(error, WaitingForChildren):
            return run.end(outcomes.WaitsForChildren(), error)
        cause = _final_cause(run.job, error)
        if cause is None and self._crashes.is_poison(run.job.id, error):
            cause = "stalled"
        if cause is None and self._gives_up(run.job, error):
            cause = "unrecoverable"
        return self._failed(run, error, cause)

    def _gives_up(self, job: Job[Any, Any], error: BaseException) -> bool:
        """Return whether the rules of the job's task, or else of the worker, exclude another attempt."""
        rules = self._executor.retry_rules(job.name) if isinstance(self._executor, HasRetryRules) else None
        rules = rules or self._rules
        return rules is not None and rules.ends(error)

    def _cancelled(self, run: Run, error: BaseException) -> bool:
        if not run.stop_reason:
            # The worker has not cancelled the run, so the handler cancelled itself. That is a failure like any other.
            return self._failed(run, error, "unrecoverable" if self._gives_up(run.job, error) else None)
        # The worker requested this cancellation, and it ends here. Without `uncancel`, a timeout or a task group that
        # the task enters later, for example in `after_execution`, could take the old request for a new one.
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        return self._after_stop(run)

    def _after_stop(self, run: Run) -> bool:
        """Set the outcome of a run that was stopped before it returned a result."""
        if run.stop_reason == "revoked":
            retention = _retention(run_options(run.job).keep_failed, run_options(run.job).result_ttl)
            return run.end(Failed(b"", "revoked", "revoked", retention), None)
        return run.end(RELEASED, None) if run.stop_reason == "shutdown" else False

    def _failed(self, run: Run, error: BaseException, cause: FailureCause | None, delay_ms: int | None = None) -> bool:
        """Set the outcome of a failed run. A `cause` means that another attempt cannot succeed, so there is none.

        `delay_ms` is the wait before the next attempt; None means the backoff of the job.
        """
        job, options = run.job, run_options(run.job)
        failure = failure_of(error)
        made = job.attempts_made + 1
        if cause is None and made < options.attempts:
            try:
                delay = self._delay_ms(options, made, error) if delay_ms is None else delay_ms
                if delay is None:
                    return self._failed(run, error, "retries_exhausted")
                return run.end(Retry(_packed(run, failure), delay / 1000, failure.reason()), error)
            except (Exception, SystemExit) as broken:  # noqa: BLE001 - a broken strategy must not lose the outcome
                broken.__context__ = error
                failure, error, cause = failure_of(broken), broken, "unrecoverable"
        retention = _retention(options.keep_failed, options.result_ttl)
        return run.end(Failed(_packed(run, failure), cause or "retries_exhausted", failure.reason(), retention), error)

    def _delay_ms(self, options: JobOptions, made: int, error: BaseException) -> int | None:
        backoff = options.backoff
        if backoff is None:
            return 0
        if backoff.kind != "custom":
            return round(backoff.delay(made, random.random) * 1000)
        return ask(self._strategies, backoff.name, made, error)


def _packed(run: Run, failure: Failure) -> bytes:
    """Return the stored form of the failure of a run."""
    return failure.packed(run.job.name, client_of(run.job).version)


def fail_unreadable(run: Run, error: SerializationError) -> None:
    """Set the outcome of a job whose options cannot be decoded. Its handler was not called."""
    run.end(Failed(_packed(run, failure_of(error)), "malformed", "malformed"), error)


def end_unfinished(run: Run, error: BaseException) -> None:
    """Set the outcome of a run that ended without one: by a defect of this library, or by a late stop."""
    if isinstance(error, asyncio.CancelledError):
        # The server fails a released job that was revoked.
        run.end(RELEASED, None)
        return
    failure = failure_of(error)
    run.end(Failed(_packed(run, failure), "unrecoverable", failure.reason()), error)


def _delayed(error: Postponed) -> Delayed:
    if not error.is_instant:
        return Delayed(error.milliseconds / 1000, step=error.step)
    # The server compares the instant with its own clock. The delay is only for the reports of this worker.
    return Delayed(max(0.0, error.milliseconds / 1000 - time.time()), step=error.step, due_ms=error.milliseconds)


def _final_cause(job: Job[Any, Any], error: BaseException) -> FailureCause | None:
    if is_unreadable(job, error):
        return "malformed"
    return next((cause for kind, cause in _FINAL if isinstance(error, kind)), None)
