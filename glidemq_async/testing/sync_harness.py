"""The types of `harness.sync` and `clock.sync`: what a harness awaits, for tests without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, overload

from glidemq_async.jobs.job import Job
from glidemq_async.queues.queue import Queue
from glidemq_async.tasks import GlideMQ


class SyncHarness(Protocol):
    """`harness.sync`: what Harness awaits, for plain tests; parameters, results and errors are the same.

    Jobs run in the loop of a thread in the background. `job.sync.result()` waits for the result of one.
    """

    def connect(self) -> None:
        """Start the server; idempotent."""
        ...

    def close(self) -> None:
        """Close the queues of the harness and end the server; idempotent."""
        ...

    @overload
    def drain(
        self, jobs: str | Queue[Any, Any], processor: Callable[..., object], **options: Any
    ) -> list[Job[Any, Any]]: ...

    @overload
    def drain(self, jobs: GlideMQ[Any], **options: Any) -> list[Job[Any, Any]]: ...

    def drain(self, jobs: Any, processor: Callable[..., object] | None = None, **options: Any) -> list[Job[Any, Any]]:
        """Run what is due now, and what becomes due by that; returns the jobs as they ended."""
        ...

    def added(self, queue: str | Queue[Any, Any], name: str | None = None, data: object = None) -> list[Job[Any, Any]]:
        """Return the jobs that were added to a queue and still have a record, in order of adding."""
        ...

    def assert_added(
        self, queue: str | Queue[Any, Any], name: str | None = None, *, data: object = None, times: int = 1
    ) -> list[Job[Any, Any]]:
        """Check that so many jobs with this name and data were added, and return them. Raises AssertionError."""
        ...

    def assert_nothing_added(self, queue: str | Queue[Any, Any]) -> None:
        """Check that a queue was given no job. Raises AssertionError."""
        ...


class SyncClock(Protocol):
    """`clock.sync`: what MovableClock awaits, for plain tests; parameters, results and errors are the same."""

    def now(self) -> datetime:
        """Return the server's time."""
        ...

    def advance(self, seconds: float | timedelta) -> datetime:
        """Move on by so many seconds; returns the new time."""
        ...

    def move_to(self, instant: datetime) -> datetime:
        """Move on to an instant; returns the new time. Raises ValueError for a past or a naive one."""
        ...
