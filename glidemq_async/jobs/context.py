"""Which job is being run here: a context variable that workers set around every run."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from glidemq_async.jobs.job import Job

_current: Final[ContextVar[Job[Any, Any] | None]] = ContextVar("glidemq_job", default=None)


def current_job() -> Job[Any, Any]:
    """Return the job whose handler, task or dependency is running here, in a thread of it too.

    Raises RuntimeError outside of a run, and in a batch processor, which is given its jobs.
    """
    job = _current.get()
    if job is None:
        raise RuntimeError("there is no current job: current_job() works inside the run of a job only")
    return job


def set_current_job(job: Job[Any, Any] | None) -> None:
    """Note the job of the run that begins in this context. For workers and executors."""
    _current.set(job)
