"""Middleware: code of an app around every add and every run of its tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions

if TYPE_CHECKING:
    from glidemq_async.tasks.task import AnyTask

_log = logging.getLogger(__name__)


class Middleware:
    """Base class of middleware. Override what you need; every method is a coroutine that does nothing by default.

    The first middleware of the app is the outermost one. `before_*` are called in the order of the app's list,
    `after_*` and `on_failure` in the opposite order. The hooks of a run are awaited in the context of the run, so
    dependencies and the function see a context variable that `before_run` sets, also in a thread.

    The order is: before_add, adding, after_add; before_run, dependencies open, function, dependencies close, after_run.
    """

    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:  # noqa: ARG002
        """Return the options to add a job with. An exception is raised to the caller, and nothing is added."""
        return options

    async def after_add(self, task: AnyTask, job: Job[Any, Any]) -> None:
        """Called after a job was added (see `job.outcome`).

        An exception is logged, because the job is already stored.
        """

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        """Called before a run. An exception fails the run, and the function is not called."""

    async def after_run(self, task: AnyTask, job: Job[Any, Any], result: Any) -> None:
        """Called with the return value of the function before it is stored. An exception fails the run."""

    async def on_failure(self, task: AnyTask, job: Job[Any, Any], error: BaseException) -> None:
        """Called after a run that did not complete, for each middleware whose `before_run` has succeeded.

        `error` may also be RetryLater, RateLimited, Postponed or Suspended, and CancelledError when the run was stopped
        (revoked, lease lost, worker shutdown). Retries are decided later. An exception is logged.
        """


class Chain:
    """The middleware of an app, in order."""

    def __init__(self, middleware: Iterable[Middleware]) -> None:
        self.all: list[Middleware] = []
        self._adding: list[Middleware] = []
        self._added: list[Middleware] = []
        self.runs: list[Middleware] = []
        """The middleware that overrides a hook of runs."""
        for one in middleware:
            self.append(one)

    def append(self, one: Middleware) -> None:
        """Add an innermost one. Raises TypeError unless it is a Middleware."""
        if not isinstance(one, Middleware):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"middleware must be instances of Middleware, got {one!r}")
        self.all.append(one)
        for hooks, names in (
            (self._adding, ("before_add",)),
            (self._added, ("after_add",)),
            (self.runs, ("before_run", "after_run", "on_failure")),
        ):
            # A hook without an override must cost nothing per job, so the lists contain only middleware with an effect.
            if any(getattr(type(one), name) is not getattr(Middleware, name) for name in names):
                hooks.append(one)

    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:
        """Pass the options of an add through each middleware."""
        for one in self._adding:
            options = await one.before_add(task, options)
            if not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{type(one).__name__}.before_add must return JobOptions, it returned {options!r}")
        return options

    async def after_add(self, task: AnyTask, job: Job[Any, Any]) -> None:
        """Report an added job to each middleware."""
        for one in reversed(self._added):
            try:
                await one.after_add(task, job)
            except Exception:  # noqa: BLE001 - logged
                _log.exception(
                    "%s.after_add raised an exception; job %s of task %s is stored",
                    type(one).__name__,
                    job.id,
                    task.name,
                )

    async def on_failure(
        self, begun: list[Middleware], task: AnyTask, job: Job[Any, Any], error: BaseException
    ) -> None:
        """Report a failed run to each middleware whose `before_run` has succeeded."""
        # Only middleware whose `before_run` has succeeded: what it began (a span, a transaction) ends here, and the
        # others have begun nothing.
        for one in reversed(begun):
            try:
                await one.on_failure(task, job, error)
            except Exception:  # noqa: BLE001 - logged
                _log.exception(
                    "%s.on_failure raised an exception for job %s of task %s", type(one).__name__, job.id, task.name
                )
