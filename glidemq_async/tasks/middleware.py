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
    """Override what you need; every method is a coroutine function and does nothing by itself.

    The first one of the app is the outermost: `before_*` are called in the order of the app's list, `after_*` and
    `on_failure` in the opposite one. The hooks of a run are awaited in the run's own context, so a context variable
    that `before_run` sets is seen by the dependencies and the function, in a thread too.

    before_add, adding, after_add; before_run, dependencies open, function, dependencies close, after_run.
    """

    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:  # noqa: ARG002
        """Return the options to add a job with. What it raises is raised to the caller, and nothing is added."""
        return options

    async def after_add(self, task: AnyTask, job: Job[Any, Any]) -> None:
        """See a job that has been added (`job.outcome` tells). What it raises is logged: the job is stored."""

    async def before_run(self, task: AnyTask, job: Job[Any, Any]) -> None:
        """See a run before it begins. What it raises is the run's failure, and the function is not called."""

    async def after_run(self, task: AnyTask, job: Job[Any, Any], result: Any) -> None:
        """See what the function returned, before it is stored. What it raises is the run's failure."""

    async def on_failure(self, task: AnyTask, job: Job[Any, Any], error: BaseException) -> None:
        """See a run that ended otherwise, for each middleware whose `before_run` had passed.

        `error` may also be RetryLater or RateLimited, and CancelledError when the run was cut off (revoked, its lease
        lost, the worker shut down). Whether a retry follows is decided later. What it raises is logged.
        """


class Chain:
    """The middleware of an app, in order."""

    def __init__(self, middleware: Iterable[Middleware]) -> None:
        self.all: list[Middleware] = []
        self._adding: list[Middleware] = []
        self._added: list[Middleware] = []
        self.runs: list[Middleware] = []
        """Those that have a part in runs."""
        for one in middleware:
            self.append(one)

    def append(self, one: Middleware) -> None:
        """Put one innermost. Raises TypeError for what is no Middleware."""
        if not isinstance(one, Middleware):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"middleware must be instances of Middleware, got {one!r}")
        self.all.append(one)
        for hooks, names in (
            (self._adding, ("before_add",)),
            (self._added, ("after_add",)),
            (self.runs, ("before_run", "after_run", "on_failure")),
        ):
            if any(getattr(type(one), name) is not getattr(Middleware, name) for name in names):
                hooks.append(one)

    async def before_add(self, task: AnyTask, options: JobOptions) -> JobOptions:
        """Ask each for the options of an add."""
        for one in self._adding:
            options = await one.before_add(task, options)
            if not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{type(one).__name__}.before_add must return JobOptions, it returned {options!r}")
        return options

    async def after_add(self, task: AnyTask, job: Job[Any, Any]) -> None:
        """Tell each of an added job."""
        for one in reversed(self._added):
            try:
                await one.after_add(task, job)
            except Exception:  # noqa: BLE001 - logged
                _log.exception("%s.after_add, job %s of task %s", type(one).__name__, job.id, task.name)

    async def on_failure(
        self, begun: list[Middleware], task: AnyTask, job: Job[Any, Any], error: BaseException
    ) -> None:
        """Tell those whose part of the run had begun that it failed."""
        for one in reversed(begun):
            try:
                await one.on_failure(task, job, error)
            except Exception:  # noqa: BLE001 - logged
                _log.exception("%s.on_failure, job %s of task %s", type(one).__name__, job.id, task.name)
