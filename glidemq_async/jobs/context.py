"""The current job: a context variable that workers set for every run."""

from __future__ import annotations

from contextvars import Context, ContextVar
from typing import Any, Final, TypeAlias

from glidemq_async.jobs.job import Job

# A context variable and not a global: many runs share one event loop. Tasks and threads that a run starts inherit it
# with their context.
_current: Final[ContextVar[Job[Any, Any] | None]] = ContextVar("glidemq_job", default=None)


def current_job() -> Job[Any, Any]:
    """Return the job whose handler, task or dependency is running, also in a thread of that run.

    Raises RuntimeError outside of a run, and in a batch processor, which receives its jobs as an argument.
    """
    job = _current.get()
    if job is None:
        raise RuntimeError("there is no current job; call current_job() only while a job runs")
    return job


set_current_job: Final = _current.set
"""Set the job of the run that begins in this context. Used by workers and executors."""

Variables: TypeAlias = list[tuple[ContextVar[Any], Any]]
"""The variables of a context and their values."""


def other_variables(context: Context) -> Variables:
    """Return the variables of a context without the variable of the current job."""
    return [(variable, value) for variable, value in context.items() if variable is not _current]
