"""Steps of workflows: functions whose results are recorded when a workflow calls them."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, cast, overload

from glidemq_async.jobs.job import called
from glidemq_async.jobs.journal import check_step
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.validation import optional_backoff, optional_positive_number, optional_positive_seconds
from glidemq_async.tasks.arguments import Arguments
from glidemq_async.workflows.attempts import StepOptions, attempt
from glidemq_async.workflows.run import LIBRARY_STEPS, WorkflowRun, current_run, running

P = ParamSpec("P")
R = TypeVar("R")


class StepOptionsDict(TypedDict, total=False):
    """The keywords of `mq.step`."""

    name: str | None
    attempts: int | None
    backoff: Backoff | None
    timeout: float | timedelta | None


class Step(Generic[P, R]):
    """A function whose result is recorded when a workflow calls it. Created by `mq.step`.

    In a workflow a call is executed once for the job, and later runs get the recorded result. Elsewhere, and inside of
    another step, it is an ordinary call: without a record, attempts or timeout.
    """

    def __init__(self, function: Callable[..., Any], name: str, options: StepOptions, key: str | None = None) -> None:
        self.function = function
        self.name = name
        self._options = options
        self._key = key
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Step {self.name!r}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function. Await the return value. A plain function runs in a thread."""
        run = current_run()
        if run is None:
            return called(self.function, *args, **kwargs)
        return self._in_run(run, args, kwargs)

    @property
    def sync(self) -> Callable[P, R]:
        """The blocking call, for threads that a workflow has started with `asyncio.to_thread`."""
        return self._call_in_thread

    def with_key(self, key: str) -> Step[P, R]:
        """Return the step with a key, which identifies its call in a run instead of the arguments.

        Raises TypeError or ValueError for a bad key.
        """
        check_step(self.name, key)
        return Step(self.function, self.name, self._options, key)

    @cached_property
    def _arguments(self) -> Arguments:
        # Not in `__init__`: an annotation may name a class further down in the module.
        return Arguments(self.name, self.function, frozenset(), "step")

    async def _in_run(self, run: WorkflowRun, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> R:
        arguments = self._arguments
        values = self._stored_call(args, kwargs)
        if (found := run.recall(self.name, values, self._key)) is not None:
            return cast("R", arguments.read_result(found[0]))

        async def once() -> object:
            # Inside of a step the workflow has no steps: they would not be asked for when the step is recorded.
            with running(None):
                return await called(self.function, *args, **kwargs)

        async def execute() -> object:
            return arguments.stored_result(await attempt(self._options, once))

        recorded = () if self._options.attempts is None else Exception
        result = await run.ask(self.name, values, execute, key=self._key, recorded_failures=recorded)
        return cast("R", arguments.read_result(result))

    def _stored_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the stored arguments, the same for `f(1, b=2)` and `f(1, 2)`."""
        arguments = self._arguments
        if kwargs:
            try:
                bound = arguments.signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"step {self.name!r}{arguments.signature}: {error}") from None
            args, kwargs = bound.args, bound.kwargs
        stored = arguments.stored(args, dict(sorted(kwargs.items())) if kwargs else {})
        return [stored["a"], stored["k"]]

    def _call_in_thread(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        run = current_run()
        if run is None:
            raise RuntimeError(
                f"step {self.name!r}: .sync is for threads of a workflow, and no workflow runs in this one; call "
                f"{self.name}.function(...)"
            )
        # The context of this thread has the run, and the coroutine gets a copy of that context.
        return asyncio.run_coroutine_threadsafe(self(*args, **kwargs), run.loop).result()


class StepDecorator(Protocol):
    """Turns a function into a step and keeps its signature."""

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


def step_of(function: Callable[..., Any], given: Mapping[str, Any]) -> Step[..., Any]:
    """Return the step of a function. Raises TypeError or ValueError for bad options."""
    if not inspect.isroutine(function):
        raise TypeError(f"a step must be a function, not {function!r}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__name__} is a generator function, but a step has one result; return a list")
    name = given.get("name") or function.__name__
    check_step(name, None)
    if name.startswith(LIBRARY_STEPS):
        raise ValueError(
            f"step name {name!r} begins with {LIBRARY_STEPS!r}, which the library uses; choose another name="
        )
    backoff = optional_backoff("backoff", given.get("backoff"))
    if backoff is not None and backoff.kind == "custom":
        raise ValueError("backoff of a step must be Backoff.fixed or Backoff.exponential, not a custom strategy")
    options = StepOptions(
        attempts=optional_positive_number("attempts", given.get("attempts")),
        backoff=backoff,
        timeout=optional_positive_seconds("timeout", given.get("timeout")),
    )
    return Step(function, name, options)
