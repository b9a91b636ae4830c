"""The types of `harness.sync` and `clock.sync`: blocking methods for tests without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Protocol, overload

from glidemq_async.jobs.job import Job
from glidemq_async.queues.queue import Queue
from glidemq_async.tasks import GlideMQ


class SyncHarness(Protocol):
    """The type of `harness.sync`: the coroutines of Harness as blocking methods with the same parameters and errors.

    Jobs run in the event loop of a background thread. `job.sync.result()` waits for the result of a job.
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
        """Run all due jobs, including the jobs that they add, and return them after they ended."""
        ...

    def added(self, queue: str | Queue[Any, Any], name: str | None = None, data: object = None) -> list[Job[Any, Any]]:
        """Return the jobs that were added to a queue and still have a record, in order of adding."""
        ...

    def assert_added(
        self, queue: str | Queue[Any, Any], name: str | None = None, *, data: object = None, times: int = 1
    ) -> list[Job[Any, Any]]:
        """Return the added jobs with this name and data. Raises AssertionError unless there are `count` of them."""
        ...

    def assert_nothing_added(self, queue: str | Queue[Any, Any]) -> None:
        """Raise AssertionError if a job was added to the queue."""
        ...


class SyncClock(Protocol):
    """The type of `clock.sync`: the coroutines of MovableClock as blocking methods with the same parameters."""

    def now(self) -> datetime:
        """Return the server's time."""
        ...

    def advance(self, seconds: float | timedelta) -> datetime:
        """Move the clock forward by a number of seconds, and return the new time."""
        ...

    def move_to(self, instant: datetime) -> datetime:
        """Move the clock forward to an instant, and return the new time. Raises ValueError for a past or naive one."""
        ...
