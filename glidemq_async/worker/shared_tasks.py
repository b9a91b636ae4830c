"""Tasks that run plain jobs one after another, for Python 3.11, which has no eager tasks."""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import copy_context
from typing import Any, TypeAlias

from glidemq_async._internal.task_scope import TaskScope
from glidemq_async.jobs.context import Variables, other_variables, set_current_job
from glidemq_async.worker.runs import Run

BeginJob: TypeAlias = Callable[[Run], Coroutine[Any, Any, None] | None]
"""Runs a job up to its first wait. Returns the rest of the run, or None if it has ended."""


# A task for each job costs more than the job itself if the handler never waits. So plain jobs share tasks: a task runs
# one job, then the next one. The handlers must not notice, and a job must not suffer from its predecessor. Four rules
# ensure that:
#
# 1. A handler that waits delays no other job. Before a task calls a handler, it wakes another task if jobs are left.
#    That task finds an empty queue if no handler has waited. Only one woken task is on its way at a time: a second one
#    could not start before the first.
# 2. A job does not see context variables of another one. If a handler has set a variable, the context of its task
#    differs from the context in which the task began, and the task ends.
# 3. A stop cancels only the run that it is for. `Run.task` is removed at the end of the run, before the next job
#    begins. A cancellation that was requested in the last moment of a run would be raised in the next one, so a task
#    that was cancelled ends too, whoever has cancelled it.
# 4. Only jobs that never wait share a task. A job that has waited was the last one of its task. So timeouts, task
#    groups and cancel scopes work as usual, and so do libraries that keep state for `asyncio.current_task()`, such as a
#    database session: such a library waits. (`_run` returns whether a job has waited.)
#
# A job with a timeout, a run with instrumentation, and a handler that another executor runs keep a separate task. The
# gain is small there.
class SharedTasks:
    """Runs jobs that do not wait in one task, and each other job in a task that ends with it."""

    def __init__(self, tasks: TaskScope, begin_job: BeginJob) -> None:
        self._tasks = tasks
        self._begin_job = begin_job
        self._runs: deque[Run] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._is_next_awake = False
        """True while a task that was woken has not taken its step."""
        self._closed = False

    def start(self, runs: Sequence[Run]) -> None:
        """Run these jobs, from the next iteration of the loop on."""
        self._runs.extend(runs)
        self._wake_next()

    def close(self) -> None:
        """End the idle tasks. Each other task ends after its run."""
        self._closed = True
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)

    def _wake_next(self) -> None:
        if self._is_next_awake or not self._runs:
            return
        self._is_next_awake = True
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():  # cancelled, because the loop ends
                idle.set_result(None)
                return
        self._tasks.start(self._work())

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of a task
        set_current_job(None)
        context = other_variables(copy_context())
        while not self._closed or self._runs:
            self._is_next_awake = False
            while self._runs:
                run = self._runs.popleft()
                run.task = task
                if self._runs and not self._is_next_awake:
                    self._wake_next()
                rest = self._begin_job(run)
                has_waited = rest is not None and await _run(rest)
                if not self._may_continue(run, task, context) or has_waited:
                    self._wake_next()
                    return
            set_current_job(None)
            if not self._closed:
                idle = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                try:
                    await idle
                except asyncio.CancelledError:
                    self._end_idle(idle)
                    raise

    def _end_idle(self, idle: asyncio.Future[None]) -> None:
        """Note that an idle task was cancelled: the loop ends, or a handler has kept its task to cancel it later."""
        if idle.done() and not idle.cancelled():  # it was woken, so another task must take its place
            self._is_next_awake = False
            self._wake_next()

    def _may_continue(self, run: Run, task: asyncio.Task[Any], context: Variables) -> bool:
        """Return whether the task of a run that has ended is as it was before the run."""
        run.task = None
        if run.stop_reason or task.cancelling():
            return False
        # By identity: `==` of contexts compares the values with `==`. That may raise an exception (an array has no
        # truth value), and it calls two lists equal which are different objects. The variable of the current job
        # differs, and the next run sets it.
        now = copy_context()
        if len(now) != len(context) + 1:
            return False
        for variable, value in context:  # noqa: SIM110 - a generator costs a call for each variable
            if now.get(variable) is not value:
                return False
        return True


@types.coroutine
def _run(job: Coroutine[Any, Any, None]) -> Generator[Any, None, bool]:
    """Run a coroutine to its end. Return whether it has waited."""
    try:
        waits_for = job.send(None)
    except StopIteration:
        return False
    while True:
        try:
            yield waits_for
        except BaseException as error:  # noqa: BLE001 - for example a cancellation, which the coroutine has to get
            try:
                waits_for = job.throw(error)
            except StopIteration:
                return True
        else:
            # A task resumes with None, and so does this statement.
            yield from job
            return True
