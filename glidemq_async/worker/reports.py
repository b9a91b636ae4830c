"""Reports of a worker to its user: log lines, listeners, instrumentation, and the fields of ended jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from glidemq_async._internal.problems import problem_of
from glidemq_async._internal.repeated_log import RepeatedLog
from glidemq_async.functions.outcomes import (
    Completed,
    Delayed,
    Failed,
    Outcome,
    RateLimited,
    Retry,
    Suspended,
    WaitsForChildren,
)
from glidemq_async.instrumentation import Instruments
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import settle_as_completed, settle_as_failed, settle_first_runs
from glidemq_async.stored.failure import stored_failure
from glidemq_async.worker.listeners import Listeners
from glidemq_async.worker.runs import Run, run_outcome

_log = logging.getLogger(__name__)


class Reports:
    """Reports errors and the ends of runs. Any part of the worker may report; nothing here calls another part.

    `worker` is the text that names the worker and its queue in the log.
    """

    def __init__(self, worker: str, listeners: Listeners, instruments: Instruments) -> None:
        self._worker = worker
        self._listeners = listeners
        self._notify = listeners.notify
        self._instruments = instruments
        self._errors = RepeatedLog(_log)
        self.retries_due = 0.0
        """Loop time at which the last retry of a job of this worker is due."""
        self._settled_runs = self._released_jobs = 0

    def error(self, error: Exception) -> None:
        """Report an error that does not belong to a job."""
        self._errors.write((type(error), str(error)), "worker %s: %s", self._worker, error)
        self._notify("error", error)

    def failed_try(self, error: Exception, pause: float) -> None:
        """Report an error after which the worker tries again, in `pause` seconds."""
        problem = problem_of(error)
        when = f"in {pause:.1f} s" if pause >= 0.05 else "now"
        text = "worker %s: %s. The worker tries again %s."
        self._errors.write((type(error), problem), text, self._worker, problem.rstrip("."), when)
        self._notify("error", error)

    def stopped(self, unstored: int) -> None:
        """Report that the worker has stopped. `unstored` is the number of its outcomes that the store may not have."""
        text = "worker %s has stopped; ended runs: %d, released jobs: %d"
        details = [self._settled_runs - self._released_jobs, self._released_jobs]
        if unstored:
            text += ", outcomes not stored: %d"
            details.append(unstored)
        _log.info(text, self._worker, *details)

    def stalled(self, recovered: list[str], failed: list[str]) -> None:
        """Report the jobs that a sweep of this worker reclaimed or failed because their leases had expired."""
        self._notify("stalled", recovered, failed)

    def settled(self, runs: Sequence[Run], refused: Mapping[int, str], uniform: Completed | None = None) -> None:
        """Report that the store has accepted the outcomes of these runs, or refused some as "stale" or "missing".

        `uniform` is the outcome of all runs, None if they differ.
        """
        self._settled_runs += len(runs)
        # Most completed runs have no client that is notified. They cost no call of a function.
        if not refused and not self._instruments and not self._listeners.wants("completed"):
            runs = _settle_as_completed(runs, uniform)
        for position, run in enumerate(runs):
            self._settled(run, refused.get(position))

    def _settled(self, run: Run, refused: str | None) -> None:
        job, outcome = run.job, run.outcome
        if self._instruments:
            self._instruments.settled(job, run_outcome(outcome) if refused is None else "lease_lost")
        if refused is not None:
            _log.warning("job %s: the server refused the outcome of its run as %s", job.id, refused, extra=_about(job))
            self._notify("lease_lost", job)
        elif isinstance(outcome, Completed):
            settle_as_completed([job], [outcome.result])
            self._notify("completed", job, run.value)
        else:
            self._not_completed(job, outcome, run.value)

    def _not_completed(self, job: Job[Any, Any], outcome: Outcome, error: Any) -> None:
        if isinstance(outcome, Failed):
            about = _about(job)  # before the fields of the job change
            settle_as_failed(job, outcome.cause, outcome.reason)
            _log_failure(job, outcome, about)
            self._notify("failed", job, error)
        elif isinstance(outcome, Retry):
            self._note_retry(outcome.delay)
            _log_retry(job, outcome.delay, error)
            self._notify("retrying", job, error, outcome.delay)
        elif isinstance(outcome, Delayed | RateLimited):
            # A reason names another worker that must run the job. `until_empty` does not wait for such a job.
            if not outcome.reason:
                self._note_retry(outcome.delay)
        elif not isinstance(outcome, Suspended | WaitsForChildren):
            self._released_jobs += 1
            self._notify("returned", job)

    def _note_retry(self, delay: float) -> None:
        self.retries_due = max(self.retries_due, asyncio.get_running_loop().time() + delay)


def _settle_as_completed(runs: Sequence[Run], uniform: Completed | None) -> Sequence[Run]:
    """Record that the results of the completed runs were stored. Return the other runs."""
    if uniform is not None:
        settle_first_runs([run.job for run in runs], uniform.result)
        return ()
    completed = [run for run in runs if isinstance(run.outcome, Completed)]
    results = [run.outcome.result for run in runs if isinstance(run.outcome, Completed)]
    settle_as_completed([run.job for run in completed], results)
    return [run for run in runs if not isinstance(run.outcome, Completed)]


def _log_retry(job: Job[Any, Any], delay: float, error: object) -> None:
    # Without a backoff the job is ready again immediately, and the next claim decides when it runs.
    when = f"in {delay:g} s" if delay else "as soon as a worker is free"
    text = "job %s (%s) of %s failed, next run %s: %r"
    _log.info(text, job.id, job.name, job.queue, when, error, extra=_about(job))


def _log_failure(job: Job[Any, Any], outcome: Failed, about: dict[str, object]) -> None:
    if outcome.cause == "revoked":
        _log.info("job %s (%s) of %s was revoked", job.id, job.name, job.queue, extra=about)
        return
    if not _log.isEnabledFor(logging.ERROR):
        return
    path, line, function, _ = _log.findCaller()
    text = "job %s (%s) of %s failed for good"
    record = _log.makeRecord(
        *(_log.name, logging.ERROR, path, line, text, (job.id, job.name, job.queue), None, function),
        extra=about,
    )
    # Log the stored text, not the exception, whose own text may contain characters that a log cannot encode.
    # Formatters print it below the line, or put it into a separate field.
    record.exc_text = stored_failure(outcome.error, "").traceback.rstrip()
    _log.handle(record)


def _about(job: Job[Any, Any]) -> dict[str, object]:
    """Return the fields of a log record, with the names that JobFilter uses."""
    return {"queue": job.queue, "job_id": job.id, "job_name": job.name, "attempt": job.attempts_made + 1}
