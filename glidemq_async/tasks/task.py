"""A task: a function with a signature whose calls can be added to a queue."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, cast

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.protocol import Executor, RunsHere
from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions, JobOptionsDict, layered
from glidemq_async.options.retry_rules import RetryRules
from glidemq_async.tasks.arguments import Arguments
from glidemq_async.tasks.dependencies import Dependency, Node, injected

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Call: TypeAlias = "tuple[Any, ...] | Mapping[str, Any]"
"""The arguments of one job of `add_many`: positional ones, or by name."""

_HERE: Final = (None, "inline", "thread")


class TaskApp(Protocol):
    """The part of an app that its tasks use."""

    async def add_task(self, task: AnyTask, data: dict[str, Any], options: JobOptions) -> Job[Any, Any]:
        """Add one job of a task."""
        ...

    async def add_tasks(self, task: AnyTask, data: list[dict[str, Any]], options: JobOptions) -> list[Job[Any, Any]]:
        """Add many jobs of a task."""
        ...

    async def find_job(self, task: AnyTask, job_id: str) -> Job[Any, Any]:
        """Return a job of a task. Raises JobNotFound."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop of the app, None before it is open."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """The options of a task."""

    name: str
    queue: str
    executor: str | Executor | None
    permissions: Permissions | None
    aliases: tuple[str, ...]
    version: int | None
    retry_rules: RetryRules | None
    options: JobOptions


class Task(Generic[P, R]):
    """A function of an app whose calls can be added as jobs. Created by `mq.task` and `mq.cron`.

    Calling a task calls the function directly. `add` checks the arguments against the signature and stores the call; a
    worker of the app runs it. Arguments and results that are annotated as dataclass, NamedTuple, pydantic model, Enum,
    datetime, Decimal, UUID or similar types keep their type, also inside list, dict, tuple, set and `X | None`. All
    other values are handled by the serializer.
    """

    def __init__(self, app: TaskApp, function: Callable[P, Any], settings: TaskSettings) -> None:
        self._app = app
        self.function = function
        """The function itself."""
        self.settings = settings
        self.name: str = settings.name
        """The name of its jobs."""
        self.queue: str = settings.queue
        """The name of the queue for its jobs."""
        self.is_async = inspect.iscoroutinefunction(function)
        self.dependencies: dict[str, Node] = injected(function)
        """The parameters that workers provide."""
        self.options_of_jobs: JobOptions = settings.options
        self.runs_here: bool = settings.permissions is None and _is_here(settings.executor)
        """True if its function is called in the worker's process, where values need no stored form."""
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} of queue {self.queue!r}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function. Raises TypeError if a parameter with a provider is not passed."""
        if self.dependencies:
            self._check_provided(args, kwargs)
        return self.function(*args, **kwargs)

    def _check_provided(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        bound = inspect.signature(self.function).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        for name in self.dependencies:
            if name not in bound.arguments or isinstance(bound.arguments[name], Dependency):
                raise TypeError(
                    f"task {self.name!r} was called directly, so {name!r} has no provider; pass it as {name}=..."
                )

    @cached_property
    def arguments(self) -> Arguments:
        """The converter of its calls. Created on first use, when all annotations can be resolved."""
        return Arguments(self.name, self.function, frozenset(self.dependencies))

    @property
    def signature(self) -> inspect.Signature:
        """The parameters of `add`."""
        return self.arguments.signature

    @property
    def reads_result(self) -> bool:
        """True if its results are stored in another form."""
        return self.arguments.result is not None

    @property
    def executor(self) -> str | Executor:
        """The executor of its runs: "inline", "thread", the name of another executor, or an Executor."""
        if self.settings.executor is not None:
            return self.settings.executor
        if self.settings.permissions is not None:
            return "subprocess"
        return "inline" if self.is_async else "thread"

    def executor_in(self, default: str | Executor | None) -> str | Executor:
        """Return the executor of its runs in a worker with this default."""
        own = self.settings.executor is not None or self.settings.permissions is not None
        return self.executor if own or default is None else default

    def runs_here_in(self, default: str | Executor | None) -> bool:
        """Return whether a worker with this default calls its function in its own process."""
        return self.settings.permissions is None and _is_here(self.executor_in(default))

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further job names that it runs."""
        return self.settings.aliases

    @property
    def version(self) -> int | None:
        """The version in its name, None if it has none."""
        return self.settings.version

    @cached_property
    def stored(self) -> Callable[..., Any]:
        """The function for stored values: it takes stored arguments and returns a stored result.

        Its "module:qualname" refers to the task, so the task must be assigned to its function's name.
        """
        return _stored(self)

    @property
    def remote(self) -> Callable[..., Any]:
        """The function that other processes call with stored arguments: the original, or `stored` if that differs."""
        return self.function if self.arguments.plain and self.arguments.result is None else self.stored

    # -- adding ---------------------------------------------------------------------------------------------------

    @property
    def sync(self) -> SyncTask[P, R]:
        """The blocking methods, for code without an event loop, in any thread and in forked children."""
        return SyncTask(self, self._app)

    def blocking(self, bound: BoundTask[P, R]) -> SyncAdds[P, R]:
        """Return the blocking methods of a bound task. Used by bound tasks."""
        return SyncAdds(bound, self._app)

    async def add(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any, R]:
        """Add a call as a job. When this returns, it is stored.

        Raises TypeError, which names the argument, if the signature or an annotation does not allow the call. Raises
        the errors of `Queue.add`.
        """
        return await self._app.add_task(self, self.arguments.stored(args, kwargs), self.options_of_jobs)

    async def add_many(self, calls: Iterable[Call]) -> list[Job[Any, R]]:
        """Add many calls, each a tuple of positional arguments or a mapping of named ones. Return one job per call.

        All calls are checked before the first is sent. Raises the errors of `add`.
        """
        return await self._add_many(calls, self.options_of_jobs)

    async def _add_many(self, calls: Iterable[Call], options: JobOptions) -> list[Job[Any, R]]:
        data = [self._stored_call(call) for call in calls]
        return await self._app.add_tasks(self, data, options)

    def _stored_call(self, call: Call) -> dict[str, Any]:
        if isinstance(call, Mapping):
            return self.arguments.stored((), {**call})
        if isinstance(call, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return self.arguments.stored(tuple(cast("Iterable[Any]", call)), {})
        raise TypeError(
            f"task {self.name!r}: each call must be a tuple of arguments or a mapping of named ones, got {call!r}"
        )

    def options(self, options: JobOptions | None = None, /, **keywords: Unpack[JobOptionsDict]) -> BoundTask[P, R]:
        """Return the task with other options for its jobs, as JobOptions, keywords, or both. Keywords take precedence.

        Raises TypeError or ValueError for bad options.
        """
        return BoundTask(self, layered(self.options_of_jobs, options, keywords))

    async def add_with(self, options: JobOptions, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any, R]:
        """Add a call with exactly these options. Used by bound tasks."""
        return await self._app.add_task(self, self.arguments.stored(args, kwargs), options)

    async def result(self, job_id: str, timeout: float | timedelta | None = None) -> R:
        """Wait until a job of this task has ended, and return its result.

        Raises JobFailed if the job failed, ResultTimeout after `timeout` seconds, and JobNotFound.
        """
        found = await self._app.find_job(self, job_id)
        return cast("R", await found.result(timeout))


class BoundTask(Generic[P, R]):
    """A task with options for the jobs that are added through it. Created by `task.options(...)`."""

    __slots__ = ("options_of_jobs", "task")

    def __init__(self, task: Task[P, R], options: JobOptions) -> None:
        self.task = task
        self.options_of_jobs = options

    def __repr__(self) -> str:
        return f"<{self.task!r} with {self.options_of_jobs!r}>"

    @property
    def sync(self) -> SyncAdds[P, R]:
        """The blocking methods, for code without an event loop."""
        return self.task.blocking(self)

    async def add(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[Any, R]:
        """Add a call as a job, like `Task.add`."""
        return await self.task.add_with(self.options_of_jobs, *args, **kwargs)

    async def add_many(self, calls: Iterable[Call]) -> list[Job[Any, R]]:
        """Add many calls, like `Task.add_many`."""
        return await self.task._add_many(calls, self.options_of_jobs)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def options(self, options: JobOptions | None = None, /, **keywords: Unpack[JobOptionsDict]) -> BoundTask[P, R]:
        """Return the task with these additional options, given as to `Task.options`."""
        return BoundTask(self.task, layered(self.options_of_jobs, options, keywords))


class SyncAdds(Blocking[BoundTask[P, R]], Generic[P, R]):
    """`task.options(...).sync`: blocking adds for code without an event loop, in any thread and in forked children."""

    add = blocking(BoundTask[P, R].add)
    add_many = blocking(BoundTask[P, R].add_many)


class SyncTask(Blocking[Task[P, R]], Generic[P, R]):
    """`task.sync`: blocking methods for code without an event loop, in any thread and in forked children."""

    add = blocking(Task[P, R].add)
    add_many = blocking(Task[P, R].add_many)
    result = blocking(Task[P, R].result)


AnyTask: TypeAlias = "Task[..., Any]"


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


def _is_here(spec: str | Executor | None) -> bool:
    return spec in _HERE or (isinstance(spec, RunsHere) and spec.runs_here)


def _stored(task: AnyTask) -> Callable[..., Any]:
    arguments, function = task.arguments, task.function

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values, named = arguments.read({"a": args, "k": kwargs})
        return function(*values, **named)

    def plain(*args: Any, **kwargs: Any) -> Any:
        return arguments.stored_result(call(args, kwargs))

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return arguments.stored_result(await cast("Awaitable[Any]", call(args, kwargs)))

    made = coroutine if task.is_async else plain
    made.__module__ = function.__module__
    made.__name__, made.__qualname__ = "stored", f"{function.__qualname__}.stored"
    return made
