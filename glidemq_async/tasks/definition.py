"""The definition of a task: its function, its options, and the conversion of its calls.

A Task shows what users call. The app and its workers use its definition.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias, cast

from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.protocol import Executor, RunsHere
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.retry_rules import RetryRules
from glidemq_async.tasks.arguments import Arguments
from glidemq_async.tasks.dependencies import Dependency, ProviderNode, injected
from glidemq_async.tasks.key_functions import KeyFunction, KeyOfCall

Call: TypeAlias = "tuple[Any, ...] | Mapping[str, Any]"
"""The arguments of one job of `add_many`: positional ones, or by name."""

_HERE: Final = (None, "inline", "thread")


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
    key_function: KeyFunction | None = None


class TaskDefinition:
    """The function of a task, its options, and the conversion of its calls."""

    def __init__(self, function: Callable[..., Any], settings: TaskSettings) -> None:
        self.function = function
        self.settings = settings
        self.name = settings.name
        self.queue = settings.queue
        self.options = settings.options
        """The options of its jobs."""
        self.is_async = inspect.iscoroutinefunction(function)
        self.dependencies: dict[str, ProviderNode] = injected(function)
        """The parameters that workers provide."""
        self._key_of = self._checked_key(settings.key_function)
        self.runs_here: bool = settings.permissions is None and _is_here(settings.executor)
        """True if its function is called in the worker's process, where values need no stored form."""

    @cached_property
    def arguments(self) -> Arguments:
        """The converter of its calls. Created on first use, when all annotations can be resolved."""
        # Not in `__init__`: a decorator runs while its module is being imported, and an annotation may name a class
        # further down.
        return Arguments(self.name, self.function, frozenset(self.dependencies))

    def _checked_key(self, key: KeyFunction | None) -> KeyOfCall | None:
        if key is None:
            return None
        parameters = inspect.signature(self.function).parameters
        return KeyOfCall(
            self.name, key, {name: parameters[name] for name in parameters if name not in self.dependencies}
        )

    def options_of(self, options: JobOptions, call: dict[str, Any]) -> JobOptions:
        """Return the options of the job of a stored call, with the key that the task computes. Raises TypeError."""
        return options if self._key_of is None else self._key_of.options(options, self.arguments, call)

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

    @cached_property
    def stored(self) -> Callable[..., Any]:
        """The function for stored values: it takes stored arguments and returns a stored result.

        Its "module:qualname" refers to the task, so the task must be assigned to its function's name.
        """
        return _stored(self)

    @property
    def remote(self) -> Callable[..., Any]:
        """The function that other processes call with stored arguments: the original, or `stored` if that differs."""
        # A child process imports this function by its name. Without conversions it is the user's function itself.
        return self.function if self.arguments.plain and self.arguments.result is None else self.stored

    def check_provided(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise TypeError unless a direct call passes every parameter that has a provider."""
        # Otherwise the function would receive the `Dependency` object itself as its argument, and would fail far from
        # the cause.
        bound = inspect.signature(self.function).bind_partial(*args, **kwargs)
        bound.apply_defaults()
        for name in self.dependencies:
            if name not in bound.arguments or isinstance(bound.arguments[name], Dependency):
                raise TypeError(
                    f"task {self.name!r} was called directly, so {name!r} has no provider; pass it as {name}=..."
                )

    def stored_calls(self, calls: Iterable[Call]) -> list[dict[str, Any]]:
        """Return the stored forms of the calls. Raises TypeError if one does not fit the signature."""
        return [self._stored_call(call) for call in calls]

    def _stored_call(self, call: Call) -> dict[str, Any]:
        if isinstance(call, Mapping):
            return self.arguments.stored((), {**call})
        if isinstance(call, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return self.arguments.stored(tuple(cast("Iterable[Any]", call)), {})
        raise TypeError(
            f"task {self.name!r}: each call must be a tuple of arguments or a mapping of named ones, got {call!r}"
        )


def _is_here(spec: str | Executor | None) -> bool:
    return spec in _HERE or (isinstance(spec, RunsHere) and spec.runs_here)


def _stored(definition: TaskDefinition) -> Callable[..., Any]:
    arguments, function = definition.arguments, definition.function

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values, named = arguments.read({"a": args, "k": kwargs})
        return function(*values, **named)

    def plain(*args: Any, **kwargs: Any) -> Any:
        return arguments.stored_result(call(args, kwargs))

    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return arguments.stored_result(await cast("Awaitable[Any]", call(args, kwargs)))

    made = coroutine if definition.is_async else plain
    made.__module__ = function.__module__
    # Other processes find it as an attribute of the task.
    made.__name__, made.__qualname__ = "stored", f"{function.__qualname__}._definition.stored"
    return made
