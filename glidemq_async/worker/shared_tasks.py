"""Tasks that run plain jobs one after another."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from glidemq_async._internal import failpoints
from glidemq_async._internal.task_scope import HAS_EAGER_TASKS, TaskScope
from glidemq_async._internal.wait_point import WaitPoint
from glidemq_async.jobs.context import Variables, other_variables, set_current_job
from glidemq_async.jobs.snapshot import meter_of
from glidemq_async.worker.runs import Run, Runner

RunJob: TypeAlias = Callable[[Run, Coroutine[Any, Any, bool] | None], Coroutine[Any, Any, None]]
"""Runs a job to its end, or only the rest of its run. Then it queues the outcome and frees the slot."""
EndRuns: TypeAlias = Callable[[list[Run]], None]
"""Queues the outcomes of runs and frees their slots."""


# A task for each job costs more than the job itself if the handler never waits. So plain jobs share tasks: a task runs
# one job, then the next one. The handlers must not notice, and a job must not suffer from its predecessor. Four rules
# ensure that:
#
# 1. A handler that waits delays no other job. The next job then begins in another task. On Python 3.12 and newer,
#    `start` begins a task for the jobs that are left whenever a task waits. Python 3.11 has no eager tasks. There a
#    task wakes another one before it calls a handler, if jobs are left. That task finds an empty queue if no handler
#    has waited. Only one woken task is on its way at a time: a second one could not start before the first.
# 2. A job does not see context variables of another one. If a handler has set a variable, the context of its task
#    differs from the context in which the task began, and the task ends.
# 3. A stop cancels only the run that it is for. `Run.task` is removed at the end of the run, before the next job
#    begins. A cancellation that was requested in the last moment of a run would be raised in the next one, so a task
#    that was cancelled ends too, whoever has cancelled it.
# 4. Only jobs that never wait share a task. A job that has waited was the last one of its task. So timeouts, task
#    groups and cancel scopes work as usual, and so do libraries that keep state for `asyncio.current_task()`, such as a
#    database session: such a library waits. A turn is the time between two waits of a task. `_turn` changes before a
#    task that waits is resumed, so a task that finds another turn knows that its job has waited.
#
# The runs of a turn that have ended are queued together at its end. They keep their slots until then, which delays
# nothing: the claim loop cannot run within a turn.
#
# A job with a timeout, a run with instrumentation, and a handler that another executor runs keep a separate task. The
# gain is small there.
class SharedTasks:
    """Runs jobs that do not wait in one task, and each other job in a task that ends with it.

    `runner` calls the handlers. Without it, `run_job` does.
    """

    def __init__(self, tasks: TaskScope, run_job: RunJob, end_runs: EndRuns, runner: Runner | None) -> None:
        self._tasks = tasks
        self._run_job = run_job
        self._end_runs = end_runs
        self._runner = runner
        self._context = copy_context()
        """The context in which the worker starts. A callback of a connection has the context of its first user."""
        self._runs: deque[Run] = deque()
        self._ended: list[Run] = []
        """The runs of this turn that have ended."""
        self._turn = 0
        self._idle: list[WaitPoint] = []
        self._is_next_awake = False
        """True while a task that was woken has not taken its step."""
        self._ends_turn = False
        """True while `start_now` ends this turn itself."""
        self._closed = False

    def start(self, runs: Sequence[Run]) -> None:
        """Run these jobs: now on Python 3.12 and newer, otherwise from the next iteration of the loop on."""
        self._runs.extend(runs)
        if not HAS_EAGER_TASKS:
            self._wake_next()
            return
        try:
            while self._runs:
                self._tasks.start_eagerly(self._run_jobs(None))
                self._turn += 1
        finally:
            self._end_turn()

    def start_now(self, run: Run) -> None:
        """Run a job up to its first real wait, before this method returns. Only outside of every task.

        On Python 3.11 the job begins in the next iteration of the loop if no task is idle.
        """
        if not HAS_EAGER_TASKS and self._idle and not (self._is_next_awake or self._runs):
            idle = self._idle.pop()
            if idle.is_waiting:
                self._runs.append(run)
                self._is_next_awake = self._ends_turn = True
                try:
                    idle.resume()
                finally:
                    self._ends_turn = False
                    self._end_turn()
                return
        self._context.copy().run(self.start, [run])

    def close(self) -> None:
        """End the idle tasks. Each other task ends after its run."""
        self._closed = True
        for idle in self._idle:
            if idle.is_waiting:
                idle.resume_soon()

    def _end_turn(self) -> None:
        self._turn += 1
        if self._ended:
            ended, self._ended = self._ended, []
            self._end_runs(ended)

    def _wake_next(self) -> None:
        if self._is_next_awake or not self._runs:
            return
        self._is_next_awake = True
        while self._idle:
            idle = self._idle.pop()
            if idle.is_waiting:  # otherwise it was cancelled, because the loop ends
                idle.resume_soon()
                return
        self._tasks.start(self._work())

    async def _work(self) -> None:
        """Run jobs on Python 3.11 whenever there are some."""
        loop = asyncio.get_running_loop()
        before = _variables()
        while not self._closed or self._runs:
            self._is_next_awake = False
            if self._runs:
                if not self._ends_turn:
                    # Before the task of any job that waits is resumed, because the loop keeps the order of its
                    # callbacks.
                    loop.call_soon(self._end_turn)
                if len(self._runs) > 1:
                    self._wake_next()
                may_continue = await self._run_jobs(before)
                self._end_turn()
                if not may_continue:
                    self._wake_next()
                    return
            if not self._closed:
                idle = WaitPoint(loop)
                self._idle.append(idle)
                try:
                    await idle
                except asyncio.CancelledError:
                    self._end_idle(idle)
                    raise

    def _end_idle(self, idle: WaitPoint) -> None:
        """Note that an idle task was cancelled: the loop ends, or a handler has kept its task to cancel it later."""
        if not idle.is_cancelled:  # it was woken, so another task must take its place
            self._is_next_awake = False
            self._wake_next()

    async def _run_jobs(self, before: Variables | None) -> bool:
        """Run jobs in this task until none is left, or until the task must end. Return False if it must end.

        `before` contains the variables of the task before its first job, None to read them now.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of a task
        context = _variables() if before is None else before
        size = len(context) + 1
        runs, turn, end = self._runs, self._turn, self._ended.append
        runner = None if failpoints.armed else self._runner
        call, completed = (None, None) if runner is None else (runner.call, runner.completed_none)
        began = time.monotonic()
        while runs:
            run = runs.popleft()
            run.task = task
            stopped = run.stop_reason
            if runner is None or call is None or stopped:
                await self._run_job(run, None)
            else:
                rest: Coroutine[Any, Any, bool] | None = None
                run.begun = True
                job = run.job
                # The next run sets the variable again, so it does not have to be reset.
                set_current_job(job)
                # The handler is awaited here. A coroutine of the worker for each job would cost as much as the rest of
                # its run.
                try:
                    value = await call(job)
                    if value is None and run.options is None and completed is not None:
                        run.outcome = completed
                    else:
                        runner.complete(run, value)
                except (KeyboardInterrupt, GeneratorExit):
                    raise
                except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's failure
                    rest = runner.fail(run, error)
                ended = time.monotonic()
                run.seconds, began = ended - began, ended
                if rest is None and turn == self._turn and not run.stop_reason and meter_of(job) is None:
                    run.task = None
                    end(run)  # of this turn: the list changes with `_turn`
                else:
                    await self._run_job(run, rest or runner.flush(run))
            if turn != self._turn or run.stop_reason or task.cancelling():
                return False
            now = copy_context()
            if len(now) != size or (size > 1 and _differs(now, context)):
                return False
        return True


def _variables() -> Variables:
    """Return the variables of the running task, whose context then has a current job too."""
    set_current_job(None)
    return other_variables(copy_context())


def _differs(now: Context, before: Variables) -> bool:
    """Return whether a variable has another value than before."""
    # By identity: `==` of contexts compares the values with `==`. That may raise an exception (an array has no truth
    # value), and it calls two lists equal which are different objects. The variable of the current job differs, and the
    # next run sets it.
    for variable, value in before:  # noqa: SIM110 - a generator costs a call for each variable
        if now.get(variable) is not value:
            return True
    return False
