"""Poison: jobs that end the process they run in, again and again, whatever attempts they have left."""

from __future__ import annotations

from typing import Final

from glidemq_async.errors import ExecutorError

_MOST_JOBS: Final = 10_000


class Crashes:
    """How often the process of each job has died in this worker; the last 10,000 such jobs are remembered."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: dict[str, int] = {}

    def is_poison(self, job_id: str, error: BaseException) -> bool:
        """Note how a run failed; whether that was one death of its process more than is allowed."""
        if not isinstance(error, ExecutorError) or error.exit_status is None:
            return False
        count = self._counts.pop(job_id, 0) + 1
        if count > self._limit:
            return True
        self._counts[job_id] = count
        if len(self._counts) > _MOST_JOBS:
            del self._counts[next(iter(self._counts))]
        return False
