"""Calls of tasks that are combined into flows: `together`, `group`, `chain` and `chord`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from glidemq_async.tasks.arguments import Shape
from glidemq_async.tasks.task import AnyTask, FlowCall, Task, call_after

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
Values = TypeVar("Values")


@dataclass(frozen=True, slots=True, eq=False)
class FanIn(Generic[Values]):
    """Calls that run at the same time. Created by `together` and `group`; `then` uses their results.

    `calls` are these calls, and `shape` is the form of their results.
    """

    calls: tuple[FlowCall[Any], ...]
    shape: Shape

    def then(self, task: Task[Concatenate[Values, Q], S], /, *args: Q.args, **kwargs: Q.kwargs) -> FlowCall[S]:
        """Return a call of `task` whose first argument is the results of all calls, in their order.

        The other arguments are given here. Raises TypeError if they do not fit.
        """
        return call_after(task, self.shape, self.calls, args, kwargs)


@overload
def together(a: FlowCall[A], b: FlowCall[B], /) -> FanIn[tuple[A, B]]: ...
@overload
def together(a: FlowCall[A], b: FlowCall[B], c: FlowCall[C], /) -> FanIn[tuple[A, B, C]]: ...
@overload
def together(a: FlowCall[A], b: FlowCall[B], c: FlowCall[C], d: FlowCall[D], /) -> FanIn[tuple[A, B, C, D]]: ...
@overload
def together(
    a: FlowCall[A], b: FlowCall[B], c: FlowCall[C], d: FlowCall[D], e: FlowCall[E], /
) -> FanIn[tuple[A, B, C, D, E]]: ...
def together(*calls: FlowCall[Any]) -> FanIn[Any]:
    """Combine two to five calls of different tasks. Their results become one tuple.

    Raises ValueError for a call that may leave its place in the tuple empty, see `FlowCall.on_failure`.
    """
    for call in calls:
        if call.policy == "ignore":
            raise ValueError(f"{call!r} may leave its place in the tuple empty; use otherwise(...) to fill it")
    return FanIn(calls, "tuple")


def group(calls: Iterable[FlowCall[R]]) -> FanIn[list[R]]:
    """Combine calls with results of one type. Their results become one list. Raises ValueError without a call."""
    combined = tuple(calls)
    if not combined:
        raise ValueError("a group needs at least one call")
    return FanIn(combined, "list")


def chord(
    calls: Iterable[FlowCall[R]], callback: Task[Concatenate[list[R], Q], S], /, *args: Q.args, **kwargs: Q.kwargs
) -> FlowCall[S]:
    """Return a call of `callback` with the list of the results of the calls: `group(calls).then(callback, ...)`."""
    return group(calls).then(callback, *args, **kwargs)


@overload
def chain(first: FlowCall[A], second: Task[Concatenate[A, ...], B], /) -> FlowCall[B]: ...
@overload
def chain(
    first: FlowCall[A], second: Task[Concatenate[A, ...], B], third: Task[Concatenate[B, ...], C], /
) -> FlowCall[C]: ...
@overload
def chain(
    first: FlowCall[A],
    second: Task[Concatenate[A, ...], B],
    third: Task[Concatenate[B, ...], C],
    fourth: Task[Concatenate[C, ...], D],
    /,
) -> FlowCall[D]: ...
@overload
def chain(
    first: FlowCall[A],
    second: Task[Concatenate[A, ...], B],
    third: Task[Concatenate[B, ...], C],
    fourth: Task[Concatenate[C, ...], D],
    fifth: Task[Concatenate[D, ...], E],
    /,
) -> FlowCall[E]: ...
def chain(first: FlowCall[Any], *tasks: AnyTask) -> FlowCall[Any]:
    """Return a call of the last task. Each task gets the result of the one before it; further arguments need `then`."""
    call = first
    for task in tasks:
        call = call_after(task, "one", (call,), (), {})
    return call
