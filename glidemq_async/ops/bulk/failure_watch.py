"""Watches whether the jobs that an operation has restarted fail again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from glidemq_async.jobs.job import Job
from glidemq_async.queues.queue import Queue, client_of
from glidemq_async.stored.record import place_of, whole

SAMPLE: Final = 200
"""Number of the last restarted jobs that are watched."""
LEAST: Final = 10
"""Number of restarted jobs that must have run before their failures count."""


class FailureWatch:
    """The last jobs that an operation has restarted. It is empty again after a new runner has taken over."""

    def __init__(self, restarts: bool, share: float | None) -> None:
        self._share = share if restarts else None
        self._restarted: list[tuple[Queue[Any, Any], str, int]] = []

    def note(self, queue: Queue[Any, Any], jobs: Sequence[Job[Any, Any] | None]) -> None:
        """Note restarted jobs, as they were before."""
        if self._share is None:
            return
        for job in jobs:
            if job is not None:
                failed_before = job.attempts_made if job.state == "delayed" else 0
                self._restarted.append((queue, job.id, failed_before))
        del self._restarted[:-SAMPLE]

    async def check(self) -> str | None:
        """Return why the operation must stop, None if it can go on."""
        if self._share is None or len(self._restarted) < LEAST:
            return None
        ended = failed = 0
        for queue in {id(queue): queue for queue, _, _ in self._restarted}.values():
            mine = [(job_id, before) for owner, job_id, before in self._restarted if owner is queue]
            records = await client_of(queue).functions.reading.get_outlines([job_id for job_id, _ in mine])
            for record, (_, before) in zip(records, mine, strict=True):
                # A job whose record is gone has completed: failed jobs are kept much longer.
                has_failed = b"place" in record and whole(record, b"failures") > before
                is_over = b"place" not in record or place_of(record).state == "completed"
                failed += has_failed
                ended += has_failed or is_over
        if ended < LEAST or failed <= self._share * ended:
            return None
        return f"{failed} of the last {ended} restarted jobs that ran have failed again"
