"""The validated options of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from glidemq_async.durations import to_ms
from glidemq_async.options.budget import JobBudget
from glidemq_async.options.retry_rules import ErrorTypes, RetryRules
from glidemq_async.options.validation import MAX_LEASE, MIN_LEASE, positive_number, whole_number
from glidemq_async.worker.strategies import BackoffStrategy, checked_strategies


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of a Worker. Durations are in seconds, except the lease; see Worker."""

    concurrency: int
    max_stalled: int
    lock_ms: int
    poll_interval: float
    shutdown_timeout: float
    backoff_strategies: Mapping[str, BackoffStrategy]
    retry_rules: RetryRules | None
    budget: JobBudget

    @classmethod
    def checked(
        cls,
        *,
        concurrency: int,
        max_stalled: int,
        lock_duration: float | timedelta,
        poll_interval: float | timedelta,
        shutdown_timeout: float | timedelta,
        backoff_strategies: Mapping[str, BackoffStrategy] | None,
        retry_on: ErrorTypes | None,
        give_up_on: ErrorTypes | None,
        budget: JobBudget | None,
    ) -> WorkerOptions:
        """Validate and return the options. Raises ValueError or TypeError."""
        return cls(
            positive_number("concurrency", concurrency),
            whole_number("max_stalled", max_stalled, least=0),
            _lease_ms(lock_duration),
            to_ms("poll_interval", poll_interval, allow_zero=False) / 1000,
            to_ms("shutdown_timeout", shutdown_timeout) / 1000,
            checked_strategies(backoff_strategies),
            RetryRules.checked(retry_on, give_up_on),
            _budget(budget),
        )


def _budget(value: JobBudget | None) -> JobBudget:
    if value is None:
        return JobBudget()
    if not isinstance(value, JobBudget):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"budget must be a JobBudget, got {value!r}")
    return value


def _lease_ms(value: float | timedelta) -> int:
    milliseconds = to_ms("lock_duration", value, allow_zero=False)
    if not MIN_LEASE * 1000 <= milliseconds <= MAX_LEASE * 1000:
        raise ValueError(f"lock_duration must be from 1 second to 24 hours, got {value!r}")
    return milliseconds
