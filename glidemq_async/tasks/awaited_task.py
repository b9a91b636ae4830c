"""Calls of a task for one caller that waits for the result: `task.wait_options(...).add_and_wait(...)`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from glidemq_async._internal.blocking import Blocking, blocking
from glidemq_async._internal.loops import Home
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.validation import optional_seconds
from glidemq_async.tasks.definition import TaskDefinition

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """The options of a wait, as for `Queue.add_and_wait`."""

    wait_timeout: float | timedelta | None = None
    revoke_if_abandoned: bool = True

    def __post_init__(self) -> None:
        optional_seconds("wait_timeout", self.wait_timeout)


DEFAULT_WAIT = WaitOptions()


class RequestQueue(Home, Protocol):
    """The parts of the app that a caller with a request uses."""

    async def add_call_and_wait(
        self, definition: TaskDefinition, call: dict[str, Any], options: JobOptions, wait: WaitOptions
    ) -> Any:
        """Add one job for a stored call, and return its result."""
        ...


class AwaitedTask(Generic[P, R]):
    """A task with options for the wait of `add_and_wait`. Created by `task.wait_options(...)`."""

    __slots__ = ("_definition", "_options", "_queue", "_wait")

    def __init__(self, queue: RequestQueue, definition: TaskDefinition, options: JobOptions, wait: WaitOptions) -> None:
        self._queue = queue
        self._definition = definition
        self._options = options
        self._wait = wait

    def __repr__(self) -> str:
        return f"<Task {self._definition.name!r} with {self._options!r} and {self._wait!r}>"

    @property
    def sync(self) -> SyncAwaitedTask[P, R]:
        """The blocking method, for code without an event loop."""
        return SyncAwaitedTask(self, self._queue)

    async def add_and_wait(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Add a call as a job, wait for it, and return its result, like `Task.add_and_wait`.

        Raises ResultTimeout after `wait_timeout` seconds.
        """
        call = self._definition.arguments.stored(args, kwargs)
        return cast("R", await self._queue.add_call_and_wait(self._definition, call, self._options, self._wait))


class SyncAwaitedTask(Blocking[AwaitedTask[P, R]], Generic[P, R]):
    """`task.wait_options(...).sync`: the blocking form of `add_and_wait`."""

    add_and_wait = blocking(AwaitedTask[P, R].add_and_wait)
