"""The executor of an app's worker. It finds the task of a job and runs its function on the task's own executor.

Middleware and dependencies run in the worker's event loop, around that executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from glidemq_async._internal.repeated_log import RepeatedLog
from glidemq_async._internal.waits import finish_all, together
from glidemq_async.errors import RetryLater, UnknownTaskError
from glidemq_async.executors.calls import FunctionCall
from glidemq_async.executors.deadlines import Deadline
from glidemq_async.executors.inline import InlineExecutor
from glidemq_async.executors.protocol import Executor, Handler, calls_at_end, is_elastic
from glidemq_async.executors.registry import open_executor
from glidemq_async.executors.sharing import ExecutorUse
from glidemq_async.jobs.job import Job
from glidemq_async.options.retry_rules import RetryRules
from glidemq_async.tasks.arguments import comes_after, is_spared
from glidemq_async.tasks.definition import TaskDefinition
from glidemq_async.tasks.middleware import Chain, Middleware
from glidemq_async.tasks.scopes import JobScope, Overrides, WorkerScope
from glidemq_async.tasks.task import AnyTask, definition_of

UNKNOWN_DELAY: Final = 1.0
LONGEST_UNKNOWN_DELAY: Final = 60.0
"""First and longest wait in seconds before a job of an unknown task is claimed again. The wait doubles each time."""
SHOWN: Final = 20
"""Maximum number of task names in a message."""

# The parts around the arguments of a stored call, `{"a": [...], "k": {...}}` in msgpack.
CALL: Final = b"\x82\xa1a"
NAMED_ONLY: Final = CALL + b"\x90\xa1k"
"""The start of a call without positional arguments. The named ones follow."""
POSITIONAL_ONLY: Final = b"\xa1k\x80"
"""The end of a call without named arguments. `CALL` and the positional ones are before it."""
_NAMED_START: Final = len(NAMED_ONLY)
_POSITIONAL_START: Final = len(CALL)
_POSITIONAL_END: Final = -len(POSITIONAL_ONLY)
_NO_ARGUMENTS: Final[list[Any]] = []

_log = logging.getLogger(__name__)

OpenExecutors: TypeAlias = dict[tuple[object, object], Executor]


# For its Worker, an app is one executor with one handler. Claims, leases, retries and settling know nothing of tasks,
# so a task behaves like any other job.
#
# Tasks share executors: one of each kind for all tasks of the queue with the same permissions. A pool of processes per
# task would multiply the processes by the number of tasks. `occupied`, `grace` and `when_ended` add up what these
# executors report, because the worker sees only this one.
#
# The executors start together and stop together. If one cannot start, the worker must not claim jobs: it would fail
# each job of that task.
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
        self._report_broken: Callable[[Exception], None] = lambda _: None
        self._executors: OpenExecutors = {}
        self._bounded: list[Executor] = []
        """The executors that are not elastic."""
        self._uses: dict[int, ExecutorUse] = {}
        self._started: set[int] = set()
        self._of_task: dict[str, Executor] = {}
        self._here: set[str] = set()
        self._direct: dict[str, Callable[..., Any] | None] = {}
        """Coroutine functions by job name that can be called directly with the stored arguments, None for others."""
        for task in {id(each): each for each in tasks.values() if each.queue == queue}.values():
            self._executor_of(definition_of(task))

    async def handler(self, job: Job[Any, Any]) -> object:
        """Placeholder for the handler that every worker needs. Never called, because `run` finds the task."""
        raise NotImplementedError(f"job {job.id}: an app's worker runs tasks")

    @property
    def is_elastic(self) -> bool:
        """True if all tasks run inline, so that any number of jobs can run at the same time."""
        return all(is_elastic(executor) for executor in self._executors.values())

    @property
    def task_names(self) -> Collection[str]:
        """The names of the jobs that it can run."""
        return self._tasks.keys()

    @property
    def occupied(self) -> int:
        """Slots of all executors that are occupied by abandoned runs."""
        # This is read several times a claim. Nothing occupies a slot of an elastic executor.
        return sum(executor.occupied for executor in self._bounded) if self._bounded else 0

    @property
    def grace(self) -> float:
        """Seconds that a cancelled run may take to end, in the slowest executor."""
        return max((getattr(executor, "grace", 0.0) for executor in self._executors.values()), default=0.0)

    def when_ended(self, job: Job[Any, Any], call: Callable[[], None]) -> bool:
        """Call `call` when the abandoned run of a job has returned. Return False if there is none."""
        task = self._tasks.get(job.name)
        executor = self._of_task.get(task.name) if task is not None else None
        return executor is not None and calls_at_end(executor, job, call)

    def when_broken(self, report: Callable[[Exception], None]) -> None:
        """Call `report` when an executor cannot run jobs any more; see `MayBreak`."""
        self._report_broken = report

    def retry_rules(self, job_name: str) -> RetryRules | None:
        """Return the retry rules of a task, None if it has none."""
        task = self._tasks.get(job_name)
        return definition_of(task).settings.retry_rules if task is not None else None

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the executors of the queue's tasks concurrently, all or none.

        Without `warm` they start on first use.
        """
        self._freed = freed
        if not self._warm:
            return
        try:
            await together(self._start(executor) for executor in tuple(self._executors.values()))
        except BaseException:  # also after a cancellation, because nothing else stops the started executors
            await self.stop(0.0)
            raise

    async def stop(self, grace: float) -> None:
        """Stop every executor that has started."""
        uses, self._uses = self._uses, {}
        self._started.clear()
        await finish_all(use.stop(grace) for use in uses.values())

    def _executor_of(self, task: TaskDefinition) -> Executor:
        spec = task.executor_in(self._default)
        key = (spec if isinstance(spec, str) else id(spec), task.settings.permissions)
        executor = self._executors.get(key)
        here = self._runs_here(task)
        function = task.function if here else task.remote
        if executor is None:
            executor = open_executor(spec, function, self._concurrency, task.settings.permissions)
            self._executors[key] = executor
            if not is_elastic(executor):
                self._bounded.append(executor)
        else:  # an executor may prepare for each function before it starts
            open_executor(executor, function, self._concurrency)
        self._of_task[task.name] = executor
        return executor

    def _runs_here(self, task: TaskDefinition) -> bool:
        here = task.runs_here_in(self._default)
        if not here and task.dependencies:
            raise TypeError(
                f"task {task.name!r}: {', '.join(task.dependencies)} would be created in the worker's process, but "
                f"the worker's executor={self._default!r} runs the function in another process; give the task its "
                "own executor"
            )
        if here:
            self._here.add(task.name)
        return here

    async def _start(self, executor: Executor) -> None:
        # `setdefault`, because several first jobs of a task may arrive here at the same time. They share one use, whose
        # lock lets one start the executor while the others wait.
        await self._uses.setdefault(id(executor), ExecutorUse(executor, self._report_broken)).start(self._freed)
        self._started.add(id(executor))

    def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> Any:
        """Return a coroutine that runs the task of a job. It raises UnknownTaskError if no task has the job's name."""
        del handler  # the tasks of the app are the handlers
        return self.begin(job) if timeout is None else self._run(job, timeout)

    def begin(self, job: Job[Any, Any]) -> Any:
        """Return a coroutine that runs the task of a job without a timeout. It raises the same error as `run`."""
        # This is not a coroutine function, so that the worker awaits the coroutine of the task directly. It saves a
        # frame and a coroutine object for each job. The price is that nothing here may need cleaning up, and that
        # errors are raised before the await.
        function = self._direct.get(job.name)
        if function is None or self._chain.runs:
            return self._run(job, None)
        # The path of most jobs. It decodes only the arguments, and keeps none of them: few functions read `job.data`.
        stored, loads = job._data_bytes, job._client.payloads.quick_loads  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        args: Any
        named: Any
        try:
            if loads is None:
                args, named = job.data["a"], job.data["k"]
            elif stored[:_NAMED_START] == NAMED_ONLY:
                args, named = _NO_ARGUMENTS, loads(stored[_NAMED_START:])
            elif stored[_POSITIONAL_END:] == POSITIONAL_ONLY and stored[:_POSITIONAL_START] == CALL:
                args, named = loads(stored[_POSITIONAL_START:_POSITIONAL_END]), {}
            else:
                data: Any = loads(stored)
                args, named = data["a"], data["k"]
        except Exception:  # noqa: BLE001 - decoding once more raises the error that names the job
            return self._run(job, None)
        if type(args) is not list or type(named) is not dict:
            return self._run(job, None)
        try:
            return function(*args, **named)
        except TypeError:
            # A call of a coroutine function only binds its arguments. So this error means that they do not fit, or that
            # `function` is not a coroutine function and has raised the error itself.
            definition_of(self._tasks[job.name]).arguments.split(job.data)
            raise

    def may_share(self, job: Job[Any, Any]) -> bool:
        """Return True if only the function of a task is awaited, without middleware and dependencies around it."""
        if self._chain.runs:
            return False
        function = self._direct.get(job.name, self)
        return function is not None if function is not self else self._becomes_direct(job.name)

    def _becomes_direct(self, name: str) -> bool:
        """Note if jobs with this name only call a function, at their first run. Return True if they do."""
        # Not in `__init__`: the annotations can be resolved only after all modules are imported.
        found = self._tasks.get(name)
        if found is None:
            return False
        task = definition_of(found)
        executor = self._of_task.get(task.name)
        if executor is None or id(executor) not in self._started:
            return False
        try:
            self._direct[name] = task.function if _is_direct(task, executor) else None
        except Exception:  # noqa: BLE001 - of an annotation; the run raises it too, and fails its job
            return False
        return self._direct[name] is not None

    async def _run(self, job: Job[Any, Any], timeout: float | None) -> object:
        found = self._tasks.get(job.name)
        if found is None:
            raise self._unknown(job)
        task = definition_of(found)
        executor = self._of_task.get(task.name)
        if executor is None:  # the task was declared after the start, or belongs to another queue
            executor = self._executor_of(task)
        if id(executor) not in self._started:
            await self._start(executor)
        self._becomes_direct(job.name)
        if self._chain.runs or task.dependencies:
            value = await self._run_around(found, executor, job, timeout)
        else:
            value = await self._call(task, executor, job, timeout, None)
        return task.arguments.stored_result(value) if task.name in self._here else value

    async def _call(
        self,
        task: TaskDefinition,
        executor: Executor,
        job: Job[Any, Any],
        timeout: float | None,
        provided: dict[str, Any] | None,
    ) -> object:
        data = job.data
        if comes_after(data):
            values = await job.get_children_values()
            if is_spared(data, values):
                return self._passed_on(task, next(iter(values.values()), None))
            data = task.arguments.with_results(data, values)
        if task.name not in self._here:
            args, kwargs = task.arguments.split(data)
            return await executor.run(FunctionCall(task.remote, tuple(args), kwargs), job, timeout)
        args, kwargs = task.arguments.read(data)
        if provided:
            kwargs = {**kwargs, **provided}
        if timeout is None and type(executor) is InlineExecutor:
            return await task.function(*args, **kwargs)
        return await executor.run(FunctionCall(task.function, tuple(args), kwargs), job, timeout)

    def _passed_on(self, task: TaskDefinition, stored: Any) -> object:
        """Return the result of another job as the result of this task."""
        # A result of a task that runs here is converted to its stored form afterwards.
        return task.arguments.read_result(stored) if task.name in self._here else stored

    async def _run_around(self, task: AnyTask, executor: Executor, job: Job[Any, Any], timeout: float | None) -> object:
        begun: list[Middleware] = []
        try:
            if timeout is None:
                return await self._inside(begun, task, executor, job)
            async with Deadline(job, timeout):
                return await self._inside(begun, task, executor, job)
        # No failure of the job: the process or the coroutine itself is being ended, and nothing may be awaited any
        # more.
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            await self._chain.on_failure(begun, task, job, error)
            raise

    async def _inside(self, begun: list[Middleware], task: AnyTask, executor: Executor, job: Job[Any, Any]) -> object:
        for one in self._chain.runs:
            await one.before_run(task, job)
            # Only after its `before_run` has succeeded, so that `on_failure` finds what `before_run` has prepared.
            begun.append(one)
        value = await self._provide_and_call(definition_of(task), executor, job)
        for one in reversed(begun):
            await one.after_run(task, job, value)
        return value

    async def _provide_and_call(self, task: TaskDefinition, executor: Executor, job: Job[Any, Any]) -> object:
        # The deadline applies to the whole run, not only to the function.
        if not task.dependencies:
            return await self._call(task, executor, job, None, None)
        async with JobScope(self._scope, self._overrides) as scope:
            return await self._call(task, executor, job, None, await scope.resolve(task.dependencies))

    def _unknown(self, job: Job[Any, Any]) -> Exception:
        names = ", ".join(sorted(self._tasks)[:SHOWN]) + (", …" if len(self._tasks) > SHOWN else "")
        remedy = "import the module that declares it, or keep the old name of a renamed task in its aliases"
        # Based on the number of claims, not on the age of the job: a delayed job may be old at its first claim.
        delay, waited = _unknown_delay(job.fence)
        if waited + delay > self._unknown_grace:
            return UnknownTaskError(
                f"job {job.id} of queue {job.queue!r} needs task {job.name!r}, but this app has {names}; {remedy}"
            )
        self._log_unknown(job, delay, names, remedy)
        later = RetryLater(delay)
        later.waits_for = f"waits for a worker with task {job.name!r}; {remedy}"
        return later

    def _log_unknown(self, job: Job[Any, Any], delay: float, names: str, remedy: str) -> None:
        self._unknown_log.write(
            job.name,
            "jobs of queue %r wait because this app has no task %r (next attempt of job %s in %g s); it has %s; %s",
            job.queue,
            job.name,
            job.id,
            delay,
            names,
            remedy,
        )


def _unknown_delay(claims: int) -> tuple[float, float]:
    """Return the next wait of a job after this many claims, and the total wait so far, in seconds."""
    delay, waited = UNKNOWN_DELAY, 0.0
    for done in range(1, claims):
        if delay == LONGEST_UNKNOWN_DELAY:
            return delay, waited + delay * (claims - done)
        waited, delay = waited + delay, min(2 * delay, LONGEST_UNKNOWN_DELAY)
    return delay, waited


def _is_direct(task: TaskDefinition, executor: Executor) -> bool:
    plain = task.arguments.plain and task.arguments.result is None
    return plain and type(executor) is InlineExecutor and not task.dependencies
