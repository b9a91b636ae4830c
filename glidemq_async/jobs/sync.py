"""The type of `job.sync`: the coroutines of Job as functions that wait; what does the waiting is in sync.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

from typing_extensions import TypeVar

from glidemq_async.stored.record import State

Data_contra = TypeVar("Data_contra", default=Any, contravariant=True)
Result_co = TypeVar("Result_co", default=Any, covariant=True)


class SyncJob(Protocol[Data_contra, Result_co]):
    """`job.sync`: what Job awaits, for code without an event loop; parameters, results and errors are the same.

    In a handler of the thread executor, `job.sync.log(...)` and its like reach the worker's own loop.
    """

    def log(self, line: str) -> None:
        """Append one line to the job's log, which keeps the last 1,000."""
        ...

    def update_progress(self, progress: object) -> None:
        """Say how far the run is: a number, or any payload. Raises LeaseLost, JobNotFound, SerializationError."""
        ...

    def update_data(self, data: Data_contra) -> None:
        """Replace the payload; a later run sees it. Raises LeaseLost, JobNotFound, SerializationError."""
        ...

    def heartbeat(self) -> None:
        """Say that the run is alive."""
        ...

    def result(self, timeout: float | timedelta | None = None) -> Result_co:
        """Wait until the job has ended and return its result."""
        ...

    def refresh(self) -> None:
        """Read the job again. Raises JobNotFound."""
        ...

    def get_state(self) -> State:
        """Return the present state. Raises JobNotFound."""
        ...

    def remove(self) -> None:
        """Delete the job and all that belongs to it; a running one is told to stop, its outcome is refused."""
        ...

    def retry(self) -> None:
        """Run a completed or failed job again, with fresh attempts. Raises JobStateError, JobNotFound."""
        ...

    def promote(self) -> None:
        """Let a delayed job start now. Raises JobStateError, JobNotFound."""
        ...

    def update_result_ttl(self, ttl: float | timedelta | None) -> None:
        """Let the record and the result of this ended job stay for `ttl` seconds from now on, and end then."""
        ...

    def change_priority(self, priority: int) -> None:
        """Give a job that has not started another priority; among its equals it goes to the end."""
        ...

    def change_delay(self, delay: float | timedelta) -> None:
        """Let a job that has not started wait `delay` seconds from now on; 0 = it may start at once."""
        ...

    def revoke(self, reason: str | None = None) -> bool:
        """Make sure the job does not run to its end: it fails with the reason "revoked"."""
        ...
