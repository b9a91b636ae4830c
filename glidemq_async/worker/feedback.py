"""Messages from the store to a worker: wake-ups, revocations, lost leases, settled outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from glidemq_async._internal import failpoints
from glidemq_async._internal.repeated_log import RepeatedLog
from glidemq_async.errors import LeaseLost
from glidemq_async.functions.outcomes import Completed, Failed, Released, Retry
from glidemq_async.instrumentation import Instruments
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import settle_as_completed, settle_as_failed
from glidemq_async.stored.failure import stored_failure
from glidemq_async.worker.claim_loop import ClaimLoop
from glidemq_async.worker.listeners import Listeners
from glidemq_async.worker.runs import EndedRun, run_outcome
from glidemq_async.worker.slots import Slots

_log = logging.getLogger(__name__)


class Feedback:
    """Translates messages of the store into stopped runs, calls of the claim loop, and worker events."""

    def __init__(self, worker: str, slots: Slots, listeners: Listeners, instruments: Instruments) -> None:
        self._instruments = instruments
        self._worker = worker
        self._slots = slots
        self._notify = listeners.notify
        self._errors = RepeatedLog(_log)
        self.loop: ClaimLoop | None = None
        self.renew: Callable[[], None] = lambda: None
        self.on_schedule: Callable[[], None] = lambda: None
        """Called when a fire time was set that no process waits for."""
        self.retries_due = 0.0
        """Loop time at which the last retry of a job of this worker is due."""

    def on_message(self, message: bytes) -> None:
        """Handle a message on the worker's own channel. functions/wakeup.lua lists the messages."""
        word, _, detail = message.decode().partition(" ")
        if word == "w" and self.loop is not None:
            self.loop.wake()
        elif word == "e" and self.loop is not None:
            self.loop.echo()
        elif word == "x":
            self.on_lost([detail])
        elif word == "r":
            self.on_revoked([detail])
        elif word == "s":
            self.on_schedule()

    def on_link(self, up: bool) -> None:
        """Handle a confirmed or lost subscription."""
        if self.loop is None:
            return
        self.loop.subscribed = up
        if up:
            if failpoints.armed:
                failpoints.hit("subscribe.after_confirm")
            # Messages published before the subscription was confirmed are lost, so check once for jobs and revocations.
            self.loop.wake()
            self.renew()

    def on_lost(self, entries: list[str]) -> None:
        """Stop the runs whose leases this worker has lost."""
        self._slots.stop_entries(entries, "lease lost")

    def on_revoked(self, entries: list[str]) -> None:
        """Stop the runs whose jobs were revoked."""
        self._slots.stop_entries(entries, "revoked")

    def on_health(self, healthy: bool) -> None:
        """Record whether leases are renewed in time. No job is claimed while they are not."""
        if self.loop is None:
            return
        self.loop.healthy = healthy
        if healthy:
            self.loop.wake()
        else:
            self.on_error(
                LeaseLost("leases could not be renewed in time; the worker claims no jobs until a renewal succeeds")
            )

    def on_stalled(self, recovered: list[str], failed: list[str]) -> None:
        """Report the jobs that a sweep of this worker reclaimed or failed because their leases had expired."""
        self._notify("stalled", recovered, failed)

    def on_error(self, error: Exception) -> None:
        """Report an error that does not belong to a job."""
        self._errors.write((type(error), str(error)), "worker %s: %s", self._worker, error)
        self._notify("error", error)

    def on_settled(self, ended: EndedRun, refused: str | None) -> None:
        """Report that the store has accepted the outcome of a run, or refused it as "stale" or "missing"."""
        job, outcome, value = ended.run.job, ended.outcome, ended.value
        if self._instruments:
            self._instruments.settled(job, run_outcome(outcome) if refused is None else "lease_lost")
        if refused is not None:
            _log.warning("job %s: the outcome of its run was refused as %s", job.id, refused, extra=_about(job))
            self._notify("lease_lost", job)
        elif isinstance(outcome, Completed):
            settle_as_completed(job, outcome.result)
            self._notify("completed", job, value)
        elif isinstance(outcome, Failed):
            about = _about(job)  # before the fields of the job change
            settle_as_failed(job, outcome.cause, outcome.reason)
            _log_failure(job, outcome, about)
            self._notify("failed", job, value)
        elif isinstance(outcome, Retry):
            self._note_retry(outcome.delay)
            # Without a backoff the job is ready again immediately, and the next claim decides when it runs.
            when = f"in {outcome.delay:g} s" if outcome.delay else "as soon as a worker is free"
            text = "job %s (%s) of %s failed, next run %s: %r"
            _log.info(text, job.id, job.name, job.queue, when, value, extra=_about(job))
            self._notify("retrying", job, value, outcome.delay)
        elif isinstance(outcome, Released):
            self._notify("returned", job)
        elif not outcome.reason:
            # A reason names another worker that must run the job. `until_empty` does not wait for such a job.
            self._note_retry(outcome.delay)

    def _note_retry(self, delay: float) -> None:
        self.retries_due = max(self.retries_due, asyncio.get_running_loop().time() + delay)


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
