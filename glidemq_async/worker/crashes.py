"""Poison jobs: jobs that repeatedly kill the process they run in. They fail even if attempts are left."""

from __future__ import annotations

from typing import Final

from glidemq_async.errors import ExecutorError

_MOST_JOBS: Final = 10_000


class Crashes:
    """Counts how often each job killed its process in this worker. Remembers the last 10,000 such jobs."""

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
        if len(self._counts) > _MOST_JOBS:
            del self._counts[next(iter(self._counts))]
        return False
