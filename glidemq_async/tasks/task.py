"""A task: a function with a signature whose calls can be added to a queue."""

# BoundTask and `definition_of` use private attributes of Task.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    get_args,
)

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async.client.growing_collection import GrowingCollection
from glidemq_async.client.job_collection import Deliver
from glidemq_async.executors.protocol import Executor
from glidemq_async.flows.nodes import FailurePolicy
from glidemq_async.jobs.batch import JobBatch
from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions, JobOptionsDict, layered
from glidemq_async.tasks.arguments import Shape
from glidemq_async.tasks.awaited_task import DEFAULT_WAIT, AwaitedTask, WaitOptions
from glidemq_async.tasks.call_failure import CallFailure
from glidemq_async.tasks.definition import Call, TaskDefinition
from glidemq_async.tasks.mapping import TaskMap

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")

CallPolicy: TypeAlias = Literal["fail", "wait", "ignore"]


class Enqueuer(Protocol):
    """Adds and finds the jobs of tasks. It belongs to one event loop."""

    async def add_call(self, definition: TaskDefinition, call: dict[str, Any], options: JobOptions) -> Job[Any, Any]:
        """Add one job for a stored call. Middleware receives the task of the definition."""
        ...

    async def add_calls(
        self,
        definition: TaskDefinition,
        calls: Sequence[dict[str, Any]],
        options: JobOptions,
        collection: GrowingCollection | None = None,
    ) -> JobBatch[Any, Any]:
        """Add one job for each stored call, like `add_call`. The collection awaits the ends of the jobs."""
        ...

    async def collect_added(self, definition: TaskDefinition, deliver: Deliver) -> GrowingCollection:
        """Return a wait for the ends of the jobs that a map adds. They are revoked when the caller leaves."""
        ...

    async def add_call_and_wait(
        self, definition: TaskDefinition, call: dict[str, Any], options: JobOptions, wait: WaitOptions
    ) -> Any:
        """Add one job for a stored call, like `add_call`, and return its result."""
        ...

    async def add_flow(self, call: FlowCall[Any]) -> Job[Any, Any]:
        """Add a call and the calls on whose results it depends, as one flow. Return the job of the call."""
        ...

    async def call_child(self, call: FlowCall[Any], key: str | None) -> Any:
        """Add a call as a child of the workflow's run, and return its result."""
        ...

    async def find_job(self, definition: TaskDefinition, job_id: str) -> Job[Any, Any]:
        """Return a job of a task. Raises JobNotFound."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, None before it is open."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Task(Generic[P, R]):
    """A function of an app whose calls can be added as jobs. Created by `mq.task` and `mq.cron`.

    Calling a task calls the function directly. `add` checks the arguments against the signature and stores the call; a
    worker of the app runs it. Arguments and results that are annotated as dataclass, NamedTuple, pydantic model, Enum,
    datetime, Decimal, UUID or similar types keep their type, also inside list, dict, tuple, set and `X | None`. All
    other values are handled by the serializer.
    """

    def __init__(self, enqueuer: Enqueuer, definition: TaskDefinition) -> None:
        self._enqueuer = enqueuer
        self._definition = definition
        self._function: Callable[P, Any] = definition.function
        self._has_dependencies = bool(definition.dependencies)
        # The task takes the function's name in its module. `__wrapped__` leads to the function itself, which tools and
        # child processes need.
        functools.update_wrapper(self, definition.function)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of queue {self.queue!r}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function. Raises TypeError if a parameter with a provider is not passed."""
        if self._has_dependencies:
            self._definition.check_provided(args, kwargs)
        return self._function(*args, **kwargs)

    @property
    def function(self) -> Callable[P, Any]:
        """The function itself."""
        return self._function

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return self._definition.name

    @property
    def queue(self) -> str:
        """The name of the queue for its jobs."""
        return self._definition.queue

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further job names that it runs."""
        return self._definition.settings.aliases

    @property
    def version(self) -> int | None:
        """The version in its name, None if it has none."""
        return self._definition.settings.version

    @property
    def executor(self) -> str | Executor:
        """The executor of its runs: "inline", "thread", the name of another executor, or an Executor."""
        return self._definition.executor

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of `add`."""
        return self._definition.arguments.signature

    @property
    def sync(self) -> SyncTask[P, R]:
        """The blocking methods, for code without an event loop, in any thread and in forked children."""
        return SyncTask(self, self._enqueuer)

    async def add(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any, R]:
        """Add a call as a job. When this returns, it is stored.

        Raises TypeError, which names the argument, if the signature or an annotation does not allow the call. Raises
        the errors of `Queue.add`.
        """
        return await self._add(self._definition.options, args, kwargs)

    async def add_many(self, calls: Iterable[Call]) -> JobBatch[Any, R]:
        """Add many calls, each a tuple of positional arguments or a mapping of named ones. Return one job per call.

        The returned list is a JobBatch: `await jobs.results()` waits for all results. All calls are checked before the
        first is sent. Raises the errors of `add`.
        """
        return await self._add_many(self._definition.options, calls)

    async def add_and_wait(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Add a call as a job, wait for it, and return its result. One request to the server does both.

        The job belongs to its caller: if the caller is cancelled, the job is revoked. `wait_options` limits the wait.
        Raises the errors of `add`, and JobFailed.
        """
        return await self._add_and_wait(self._definition.options, args, kwargs)

    def wait_options(
        self, *, wait_timeout: float | timedelta | None = None, revoke_if_abandoned: bool = True
    ) -> AwaitedTask[P, R]:
        """Return the task with options for the wait of `add_and_wait`.

        `add_and_wait` raises ResultTimeout after `wait_timeout` seconds. The job is then revoked, and it expires if it
        has not started within this time. With `revoke_if_abandoned=False` it continues, also if the caller is
        cancelled. Raises TypeError or ValueError for a bad `wait_timeout`.
        """
        wait = WaitOptions(wait_timeout, revoke_if_abandoned)
        return AwaitedTask(self._enqueuer, self._definition, self._definition.options, wait)

    async def _add_and_wait(self, options: JobOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        definition = self._definition
        call = definition.arguments.stored(args, kwargs)
        return cast("R", await self._enqueuer.add_call_and_wait(definition, call, options, DEFAULT_WAIT))

    async def _add(self, options: JobOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job[Any, R]:
        definition = self._definition
        return await self._enqueuer.add_call(definition, definition.arguments.stored(args, kwargs), options)

    async def _add_many(self, options: JobOptions, calls: Iterable[Call]) -> JobBatch[Any, R]:
        definition = self._definition
        return await self._enqueuer.add_calls(definition, definition.stored_calls(calls), options)

    def map(
        self: Task[Concatenate[T, Q], R], items: Iterable[T] | AsyncIterable[T], /, *, at_once: int = 100
    ) -> TaskMap[R]:
        """Return the calls of the task with each item as its first argument, which are added when they are used.

        `async for outcome in task.map(items)` and `await task.map(items).results()` add the jobs and wait for them, at
        most `at_once` at a time. The items are read lazily, so there may be any number of them. Raises ValueError for a
        bad `at_once`, and for a task with the option `job_id`.
        """
        return TaskMap(self._enqueuer, self._definition, self._definition.options, _single(items), at_once)

    def starmap(self, calls: Iterable[Call] | AsyncIterable[Call], /, *, at_once: int = 100) -> TaskMap[R]:
        """Return the given calls, each a tuple of positional arguments or a mapping of named ones; see `map`."""
        return TaskMap(self._enqueuer, self._definition, self._definition.options, calls, at_once)

    def s(self, /, *args: P.args, **kwargs: P.kwargs) -> FlowCall[R]:
        """Return a call that is not sent yet, for flows: `a.s(1).then(b)`. Raises TypeError if it does not fit."""
        definition = self._definition
        return FlowCall(self._enqueuer, definition, definition.arguments.stored(args, kwargs), definition.options)

    async def call(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call as a child job of the workflow that calls this, and return its result. Only in workflows.

        The call is a step of the run: it is made once, and later runs get the recorded result. A run that only waits
        for its calls holds no slot. The child is cancelled if the run ends before it; a cancelled wait leaves it, and
        the next equal call waits for it again.

        Raises StepFailed if the child ends without a result, and the errors of `add`.
        """
        return cast("R", await self._enqueuer.call_child(self.s(*args, **kwargs), None))

    def options(self, options: JobOptions | None = None, /, **keywords: Unpack[JobOptionsDict]) -> BoundTask[P, R]:
        """Return the task with other options for its jobs, as JobOptions, keywords, or both. Keywords take precedence.

        Raises TypeError or ValueError for bad options.
        """
        return BoundTask(self, layered(self._definition.options, options, keywords))

    async def result(self, job_id: str, timeout: float | timedelta | None = None) -> R:
        """Wait until a job of this task has ended, and return its result.

        Raises JobFailed if the job failed, ResultTimeout after `timeout` seconds, and JobNotFound.
        """
        found = await self._enqueuer.find_job(self._definition, job_id)
        return cast("R", await found.result(timeout))


@dataclass(frozen=True, slots=True, eq=False)
class FlowCall(Generic[R]):
    """A call of a task that is not sent yet. Its job returns an R. Created by `task.s(...)` and `then`.

    `definition` is the task, `data` are the stored arguments, and `job_options` the options of the job. `children` are
    the calls on whose results it depends, and `policy` is the one that `on_failure` has chosen.
    """

    _enqueuer: Enqueuer
    definition: TaskDefinition
    data: dict[str, Any]
    job_options: JobOptions
    children: tuple[FlowCall[Any], ...] = ()
    policy: FailurePolicy = "fail"

    def __repr__(self) -> str:
        after = f" after {len(self.children)} calls" if self.children else ""
        return f"<FlowCall of task {self.definition.name!r}{after}>"

    def then(self, task: Task[Concatenate[R, Q], S], /, *args: Q.args, **kwargs: Q.kwargs) -> FlowCall[S]:
        """Return a call of `task` whose first argument is the result of this call.

        The other arguments are given here. Raises TypeError if they do not fit.
        """
        return call_after(task, "one", (self,), args, kwargs)

    def options(self, options: JobOptions | None = None, /, **keywords: Unpack[JobOptionsDict]) -> FlowCall[R]:
        """Return the call with these additional options for its job, given as to `Task.options`."""
        return replace(self, job_options=layered(self.job_options, options, keywords))

    def on_failure(self, policy: CallPolicy) -> FlowCall[R]:
        """Return the call with another policy for the case that its job ends without a result; see FlowJob.

        With "ignore" the result is left out of the list of a group. Raises ValueError for another policy.
        """
        if policy not in get_args(CallPolicy):
            raise ValueError(f"the policy of a call must be one of {', '.join(get_args(CallPolicy))}, got {policy!r}")
        return replace(self, policy=policy)

    def otherwise(
        self, task: Task[Concatenate[CallFailure, Q], S], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> FlowCall[R | S]:
        """Return a call whose result is the result of this call or, if this call ends without one, of `task`.

        `task` gets the failure as its first argument, a CallFailure, and the other arguments are given here. Its job
        ends after the job of this call in any case; without a failure it does not call the function. The choice
        replaces the one of `on_failure`. Raises TypeError if the arguments do not fit.
        """
        return call_after(task, "failure", (replace(self, policy="collect"),), args, kwargs)

    async def call(self, *, key: str | None = None) -> R:
        """Run the call and all calls before it as children of a workflow's run, and return its result; see `Task.call`.

        `key` identifies the call instead of its arguments.
        """
        return cast("R", await self._enqueuer.call_child(self, key))

    async def add(self) -> Job[Any, R]:
        """Add the call and all calls before it as one flow. Return the job of this call, which ends last.

        Raises the errors of `FlowProducer.add`.
        """
        return await self._enqueuer.add_flow(self)


def call_after(
    task: AnyTask, shape: Shape, children: tuple[FlowCall[Any], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> FlowCall[Any]:
    """Return a call of a task whose first argument is made of the results of other calls."""
    definition = task._definition  # noqa: SLF001
    data = definition.arguments.stored_after(shape, args, kwargs)
    return FlowCall(task._enqueuer, definition, data, definition.options, children)  # noqa: SLF001


class BoundTask(Generic[P, R]):
    """A task with options for the jobs that are added through it. Created by `task.options(...)`."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: Task[P, R], options: JobOptions) -> None:
        self._task = task
        self._options = options

    def __repr__(self) -> str:
        return f"<{self._task!r} with {self._options!r}>"

    @property
    def sync(self) -> SyncAdds[P, R]:
        """The blocking methods, for code without an event loop."""
        return SyncAdds(self, self._task._enqueuer)  # noqa: SLF001

    async def add(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any, R]:
        """Add a call as a job, like `Task.add`."""
        return await self._task._add(self._options, args, kwargs)  # noqa: SLF001

    async def add_many(self, calls: Iterable[Call]) -> JobBatch[Any, R]:
        """Add many calls, like `Task.add_many`."""
        return await self._task._add_many(self._options, calls)  # noqa: SLF001

    async def add_and_wait(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Add a call as a job, and return its result, like `Task.add_and_wait`."""
        return await self._task._add_and_wait(self._options, args, kwargs)  # noqa: SLF001

    def wait_options(
        self, *, wait_timeout: float | timedelta | None = None, revoke_if_abandoned: bool = True
    ) -> AwaitedTask[P, R]:
        """Return the task with options for the wait of `add_and_wait`, like `Task.wait_options`."""
        task, wait = self._task, WaitOptions(wait_timeout, revoke_if_abandoned)
        return AwaitedTask(task._enqueuer, task._definition, self._options, wait)  # noqa: SLF001

    async def call(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call as a child job of a workflow's run, like `Task.call`."""
        call = replace(self._task.s(*args, **kwargs), job_options=self._options)
        return cast("R", await self._task._enqueuer.call_child(call, None))  # noqa: SLF001

    def map(
        self: BoundTask[Concatenate[T, Q], R], items: Iterable[T] | AsyncIterable[T], /, *, at_once: int = 100
    ) -> TaskMap[R]:
        """Return the calls of the task with each item, like `Task.map`."""
        task = self._task
        return TaskMap(task._enqueuer, task._definition, self._options, _single(items), at_once)  # noqa: SLF001

    def starmap(self, calls: Iterable[Call] | AsyncIterable[Call], /, *, at_once: int = 100) -> TaskMap[R]:
        """Return the given calls, like `Task.starmap`."""
        task = self._task
        return TaskMap(task._enqueuer, task._definition, self._options, calls, at_once)  # noqa: SLF001

    def options(self, options: JobOptions | None = None, /, **keywords: Unpack[JobOptionsDict]) -> BoundTask[P, R]:
        """Return the task with these additional options, given as to `Task.options`."""
        return BoundTask(self._task, layered(self._options, options, keywords))


class SyncAdds(Blocking[BoundTask[P, R]], Generic[P, R]):
    """`task.options(...).sync`: blocking adds for code without an event loop, in any thread and in forked children."""

    add = blocking(BoundTask[P, R].add)
    add_many = blocking(BoundTask[P, R].add_many)
    add_and_wait = blocking(BoundTask[P, R].add_and_wait)


class SyncTask(Blocking[Task[P, R]], Generic[P, R]):
    """`task.sync`: blocking methods for code without an event loop, in any thread and in forked children."""

    add = blocking(Task[P, R].add)
    add_many = blocking(Task[P, R].add_many)
    add_and_wait = blocking(Task[P, R].add_and_wait)
    result = blocking(Task[P, R].result)


AnyTask: TypeAlias = "Task[..., Any]"


def _single(items: Iterable[T] | AsyncIterable[T]) -> Iterable[Call] | AsyncIterable[Call]:
    """Return calls with one argument each."""
    if isinstance(items, AsyncIterable):
        return ((item,) async for item in items)
    return ((item,) for item in items)


def definition_of(task: AnyTask) -> TaskDefinition:
    """Return the definition of a task, for the app and its workers."""
    return task._definition  # noqa: SLF001


class AsyncTask(Task[P, R]):
    """A task of a coroutine function."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the coroutine function. Await the return value."""
        return cast("Coroutine[Any, Any, R]", super().__call__(*args, **kwargs))


class PlainTask(Task[P, R]):
    """A task of a plain function."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        return cast("R", super().__call__(*args, **kwargs))
