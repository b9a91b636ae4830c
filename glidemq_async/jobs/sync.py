"""The type of `job.sync`: the methods of Job as blocking functions. `_internal/blocking.py` implements them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol

from typing_extensions import TypeVar

from glidemq_async.stored.record import State

Data_contra = TypeVar("Data_contra", default=Any, contravariant=True)
Result_co = TypeVar("Result_co", default=Any, covariant=True)


class SyncJob(Protocol[Data_contra, Result_co]):
    """`job.sync`: the blocking methods of a job for code without an event loop.

    Parameters, results and errors are the same as in Job. In a handler of the thread executor,
    `job.sync.log(...)` and the other methods use the worker's event loop.
    """

    def log(self, line: str) -> None:
        """Append one line to the job's log, which keeps the last 1,000 lines."""
        ...

    def update_progress(self, progress: object) -> None:
        """Store the progress of the run: a number, or any payload."""
        ...

    def update_data(self, data: Data_contra) -> None:
        """Replace the payload for later runs. Raises LeaseLost, JobNotFound, SerializationError."""
        ...

    def heartbeat(self) -> None:
        """Report that the run is alive."""
        ...

    def result(self, timeout: float | timedelta | None = None) -> Result_co:
        """Wait until the job has ended, and return its result."""
        ...

    def refresh(self) -> None:
        """Read the job again. Raises JobNotFound."""
        ...

    def get_state(self) -> State:
        """Return the current state. Raises JobNotFound."""
        ...

    def remove(self) -> None:
        """Delete the job and its data. A running job is stopped, and its outcome is refused."""
        ...

    def retry(self) -> None:
        """Run a completed or failed job again, with fresh attempts. Raises JobStateError, JobNotFound."""
        ...

    def promote(self) -> None:
        """Make a delayed job ready now. Raises JobStateError, JobNotFound."""
        ...

    def update_result_ttl(self, ttl: float | timedelta | None) -> None:
        """Keep the record and the result of this ended job for exactly `ttl` seconds from now."""
        ...

    def change_priority(self, priority: int) -> None:
        """Change the priority of a job that has not started.

        It goes behind the jobs that already have this priority.
        """
        ...

    def change_delay(self, delay: float | timedelta) -> None:
        """Delay a job that has not started by `delay` seconds from now; 0 makes it ready immediately."""
        ...

    def revoke(self, reason: str | None = None) -> bool:
        """Ensure that the job does not complete: it fails with the reason "revoked"."""
        ...
