"""The executor of an app's worker: it finds the task of a job and runs its function on the task's own tier.

Middleware and dependencies run in the worker's loop, around the tier.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from glidemq_async._internal.repeated_log import RepeatedLog
from glidemq_async._internal.waits import together
from glidemq_async.errors import RetryLater, UnknownTaskError
from glidemq_async.executors.calls import FunctionCall
from glidemq_async.executors.deadlines import deadline
from glidemq_async.executors.inline import InlineExecutor
from glidemq_async.executors.protocol import Executor, Handler, MayBreak
from glidemq_async.executors.registry import open_executor
from glidemq_async.executors.sharing import Hold
from glidemq_async.jobs.job import Job
from glidemq_async.options.retry_rules import RetryRules
from glidemq_async.tasks.middleware import Chain, Middleware
from glidemq_async.tasks.scopes import JobScope, Overrides, WorkerScope
from glidemq_async.tasks.task import AnyTask

UNKNOWN_DELAY: Final = 1.0
LONGEST_UNKNOWN_DELAY: Final = 60.0
"""Seconds until a job of an unknown task is claimed again: the first wait, doubled each time up to the longest."""
SHOWN: Final = 20
"""How many tasks a message names."""

_log = logging.getLogger(__name__)

Tiers: TypeAlias = dict[tuple[object, object], Executor]


class TaskExecutor:
    """Runs the jobs of one queue of an app."""

    def __init__(
        self,
        tasks: Mapping[str, AnyTask],
        chain: Chain,
        scope: WorkerScope,
        overrides: Overrides,
        *,
        queue: str,
        concurrency: int,
        unknown_grace: float,
        default: str | Executor | None = None,
        warm: bool = True,
    ) -> None:
        self._warm = warm
        self._default = default
        self._tasks = tasks
        self._chain = chain
        self._scope = scope
        self._overrides = overrides
        self._concurrency = concurrency
        self._unknown_grace = unknown_grace
        self._unknown_log = RepeatedLog(_log)
        self._freed: Callable[[], None] = lambda: None
        self._tell_broken: Callable[[Exception], None] = lambda _: None
        self._tiers: Tiers = {}
        self._holds: dict[int, Hold] = {}
        self._started: set[int] = set()
        self._of_task: dict[str, Executor] = {}
        self._here: set[str] = set()
        self._direct: dict[str, Callable[..., Any]] = {}
        """By the names of jobs that were run: the coroutine functions that can be called just as their job says."""
        for task in {id(each): each for each in tasks.values() if each.queue == queue}.values():
            self._tier(task)

    async def handler(self, job: Job[Any, Any]) -> object:
        """Stand for the handler of the worker, which always has one. Never called: `run` finds the task."""
        raise NotImplementedError(f"job {job.id}: an app's worker runs tasks")

    @property
    def occupied(self) -> int:
        """Slots taken by runs that were given up, in all tiers."""
        return sum(tier.occupied for tier in self._tiers.values())

    @property
    def grace(self) -> float:
        """How many seconds a run may take to end after it was cancelled, in the slowest tier."""
        return max((getattr(tier, "grace", 0.0) for tier in self._tiers.values()), default=0.0)

    def when_broken(self, tell: Callable[[Exception], None]) -> None:
        """Call `tell` when a tier can run nothing any more."""
        self._tell_broken = tell

    def retry_rules(self, job_name: str) -> RetryRules | None:
        """Return the rules of a task for what its runs raise, None when it names none."""
        task = self._tasks.get(job_name)
        return task.settings.retry_rules if task is not None else None

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the tiers of the queue's tasks at the same time, all or none; without `warm` each at its first job."""
        self._freed = freed
        if not self._warm:
            return
        try:
            await together(self._start(tier) for tier in tuple(self._tiers.values()))
        except BaseException:  # cancelled, too: nobody stops an executor that did not start
            await self.stop(0.0)
            raise

    async def stop(self, grace: float) -> None:
        """Stop every tier that has started."""
        holds, self._holds = self._holds, {}
        self._started.clear()
        await asyncio.gather(*(hold.stop(grace) for hold in holds.values()))

    def _tier(self, task: AnyTask) -> Executor:
        spec = task.executor_in(self._default)
        key = (spec if isinstance(spec, str) else id(spec), task.settings.permissions)
        tier = self._tiers.get(key)
        here = self._runs_here(task)
        function = task.function if here else task.remote
        if tier is None:
            tier = open_executor(spec, function, self._concurrency, task.settings.permissions)
            self._tiers[key] = tier
        else:  # an executor may want to see each function before it starts
            open_executor(tier, function, self._concurrency)
        self._of_task[task.name] = tier
        return tier

    def _runs_here(self, task: AnyTask) -> bool:
        here = task.runs_here_in(self._default)
        if not here and task.dependencies:
            raise TypeError(
                f"task {task.name!r}: {', '.join(task.dependencies)} would be made in the worker's process, and "
                f"executor={self._default!r} of the worker runs the function in another: give the task its own executor"
            )
        if here:
            self._here.add(task.name)
        return here

    async def _start(self, tier: Executor) -> None:
        if isinstance(tier, MayBreak) and id(tier) not in self._holds:
            tier.when_broken(self._tell_broken)
        await self._holds.setdefault(id(tier), Hold(tier)).start(self._freed)
        self._started.add(id(tier))

    def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> Any:
        """Run the task of a job: answers a coroutine. That raises UnknownTaskError when no task has its name."""
        del handler  # the app's tasks are what is run
        function = self._direct.get(job.name)
        if function is None or timeout is not None or self._chain.runs:
            return self._run(job, timeout)
        # The path of most jobs, without a frame between the worker and the function.
        data = job.data
        try:
            args, kwargs = data["a"], data["k"]
        except (TypeError, KeyError, IndexError):
            return self._run(job, timeout)
        if type(args) is not list or type(kwargs) is not dict:
            return self._run(job, timeout)
        try:
            return function(*args, **kwargs)
        except TypeError:
            # Calling a coroutine function only binds its arguments: they do not fit, or it was no coroutine function.
            self._tasks[job.name].arguments.split(data)
            raise

    async def _run(self, job: Job[Any, Any], timeout: float | None) -> object:
        task = self._tasks.get(job.name)
        if task is None:
            raise self._unknown(job)
        tier = self._of_task.get(task.name)
        if tier is None:  # declared after the start, or of another queue
            tier = self._tier(task)
        if id(tier) not in self._started:
            await self._start(tier)
        if _is_direct(task, tier):
            self._direct[job.name] = task.function
        if self._chain.runs or task.dependencies:
            value = await self._run_around(task, tier, job, timeout)
        else:
            value = await self._call(task, tier, job, timeout, None)
        return task.arguments.stored_result(value) if task.name in self._here else value

    async def _call(
        self, task: AnyTask, tier: Executor, job: Job[Any, Any], timeout: float | None, provided: dict[str, Any] | None
    ) -> object:
        if task.name not in self._here:
            args, kwargs = task.arguments.split(job.data)
            return await tier.run(FunctionCall(task.remote, tuple(args), kwargs), job, timeout)
        args, kwargs = task.arguments.read(job.data)
        if provided:
            kwargs = {**kwargs, **provided}
        if timeout is None and type(tier) is InlineExecutor:
            return await task.function(*args, **kwargs)
        return await tier.run(FunctionCall(task.function, tuple(args), kwargs), job, timeout)

    async def _run_around(self, task: AnyTask, tier: Executor, job: Job[Any, Any], timeout: float | None) -> object:
        begun: list[Middleware] = []
        try:
            if timeout is None:
                return await self._inside(begun, task, tier, job)
            async with deadline(job, timeout):
                return await self._inside(begun, task, tier, job)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            await self._chain.on_failure(begun, task, job, error)
            raise

    async def _inside(self, begun: list[Middleware], task: AnyTask, tier: Executor, job: Job[Any, Any]) -> object:
        for one in self._chain.runs:
            await one.before_run(task, job)
            begun.append(one)
        value = await self._provide_and_call(task, tier, job)
        for one in reversed(begun):
            await one.after_run(task, job, value)
        return value

    async def _provide_and_call(self, task: AnyTask, tier: Executor, job: Job[Any, Any]) -> object:
        # The deadline is the whole run's, not the function's alone.
        if not task.dependencies:
            return await self._call(task, tier, job, None, None)
        async with JobScope(self._scope, self._overrides) as scope:
            return await self._call(task, tier, job, None, await scope.resolve(task.dependencies))

    def _unknown(self, job: Job[Any, Any]) -> Exception:
        names = ", ".join(sorted(self._tasks)[:SHOWN]) + (", …" if len(self._tasks) > SHOWN else "")
        remedy = "import the module that declares it, or keep the old name of a renamed task in its aliases"
        # Claims are counted and no clock is read: a delayed job may be old when it is first claimed.
        delay, waited = _unknown_delay(job.fence)
        if waited + delay > self._unknown_grace:
            return UnknownTaskError(
                f"job {job.id} of queue {job.queue!r} asks for task {job.name!r}, this app has {names}: {remedy}"
            )
        self._unknown_log.write(
            job.name,
            "jobs of queue %r wait because this app has no task %r (job %s is tried again in %g s); it has %s: %s",
            job.queue,
            job.name,
            job.id,
            delay,
            names,
            remedy,
        )
        later = RetryLater(delay)
        later.waits_for = f"waits for a worker with task {job.name!r}: {remedy}"
        return later


def _unknown_delay(claims: int) -> tuple[float, float]:
    """Return how long a job that was claimed so often waits now, and for how long it has waited before, in seconds."""
    delay, waited = UNKNOWN_DELAY, 0.0
    for done in range(1, claims):
        if delay == LONGEST_UNKNOWN_DELAY:
            return delay, waited + delay * (claims - done)
        waited, delay = waited + delay, min(2 * delay, LONGEST_UNKNOWN_DELAY)
    return delay, waited


def _is_direct(task: AnyTask, tier: Executor) -> bool:
    plain = task.arguments.plain and task.arguments.result is None
    return plain and type(tier) is InlineExecutor and not task.dependencies
