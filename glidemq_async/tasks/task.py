"""A task: a function with a signature whose calls can be added to a queue."""

# BoundTask and `definition_of` use private attributes of Task.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, cast

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async.executors.protocol import Executor
from glidemq_async.jobs.job import Job
from glidemq_async.options.job_options import JobOptions, JobOptionsDict, layered
from glidemq_async.tasks.definition import Call, TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Enqueuer(Protocol):
    """Adds and finds the jobs of tasks. It belongs to one event loop."""

    async def add_call(self, definition: TaskDefinition, call: dict[str, Any], options: JobOptions) -> Job[Any, Any]:
        """Add one job for a stored call. Middleware receives the task of the definition."""
        ...

    async def add_calls(
        self, definition: TaskDefinition, calls: Sequence[dict[str, Any]], options: JobOptions
    ) -> list[Job[Any, Any]]:
        """Add one job for each stored call, like `add_call`."""
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

    async def add_many(self, calls: Iterable[Call]) -> list[Job[Any, R]]:
        """Add many calls, each a tuple of positional arguments or a mapping of named ones. Return one job per call.

        All calls are checked before the first is sent. Raises the errors of `add`.
        """
        return await self._add_many(self._definition.options, calls)

    async def _add(self, options: JobOptions, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job[Any, R]:
        definition = self._definition
        return await self._enqueuer.add_call(definition, definition.arguments.stored(args, kwargs), options)

    async def _add_many(self, options: JobOptions, calls: Iterable[Call]) -> list[Job[Any, R]]:
        definition = self._definition
        return await self._enqueuer.add_calls(definition, definition.stored_calls(calls), options)

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

    async def add_many(self, calls: Iterable[Call]) -> list[Job[Any, R]]:
        """Add many calls, like `Task.add_many`."""
        return await self._task._add_many(self._options, calls)  # noqa: SLF001

    def options(self, options: JobOptions | None = None, /, **keywords: Unpack[JobOptionsDict]) -> BoundTask[P, R]:
        """Return the task with these additional options, given as to `Task.options`."""
        return BoundTask(self._task, layered(self._options, options, keywords))


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
