"""A task scope owns its tasks from any method: a cancellation reaches them, and the scope waits for them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from glidemq_async._internal.task_scope import TaskScope
from tests.support.helpers import soon, until

Start: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


def host_of(scope: TaskScope) -> asyncio.Task[None]:
    """Return the task that holds the group."""
    host = scope._host  # pyright: ignore[reportPrivateUsage]
    assert host is not None
    return host


@pytest.fixture(params=["start", "start_eagerly"])
def method(request: pytest.FixtureRequest) -> str:
    """The name of the method that starts a task."""
    name: str = request.param
    return name


async def test_a_cancelled_scope_cancels_its_tasks_and_waits_for_their_cleanup(method: str) -> None:
    steps: list[str] = []

    async def work() -> None:
        steps.append("begin")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("end")

    scope = TaskScope()
    await scope.open()
    start: Start = getattr(scope, method)
    task = start(work())
    await until(lambda: steps == ["begin"])
    host_of(scope).cancel()
    await asyncio.wait([host_of(scope)])
    assert steps == ["begin", "end"]
    assert task.cancelled()


async def test_an_ended_scope_waits_for_its_tasks(method: str) -> None:
    gate = asyncio.Event()
    scope = TaskScope()
    await scope.open()
    start: Start = getattr(scope, method)

    async def work() -> None:
        await gate.wait()

    start(work())
    host = host_of(scope)
    scope.end()
    await asyncio.sleep(0)
    assert not host.done()
    gate.set()
    await soon(host)


async def test_a_closed_scope_starts_nothing(method: str) -> None:
    async def work() -> None: ...

    start: Start = getattr(TaskScope(), method)
    with pytest.raises(RuntimeError, match="not open"):
        start(work())


async def test_a_cancelled_scope_starts_nothing_until_it_is_opened_again(method: str) -> None:
    scope = TaskScope()
    await scope.open()
    cancelled = host_of(scope)
    cancelled.cancel()
    assert [scope.is_open] == [False]
    await asyncio.wait([cancelled])
    if method == "start":  # an eager task ends with its group, which it enters only if it waits
        with pytest.raises(RuntimeError):
            scope.start(asyncio.sleep(0))
    await scope.open()
    assert [scope.is_open] == [True]
    start: Start = getattr(scope, method)
    await soon(start(asyncio.sleep(0)))
    host = host_of(scope)
    scope.end()
    await soon(host)


async def test_a_scope_that_is_cancelled_before_it_is_open_can_be_opened() -> None:
    scope = TaskScope()
    opening = asyncio.create_task(scope.open())
    await asyncio.sleep(0)
    host_of(scope).cancel()
    await asyncio.sleep(0)
    opening.cancel()
    await soon(scope.open())
    assert scope.is_open
    scope.end()


async def test_an_eager_task_that_does_not_wait_ends_before_its_start_returns() -> None:
    scope = TaskScope()
    await scope.open()
    ran: list[object] = []

    async def work() -> None:
        ran.append(asyncio.current_task())

    task = scope.start_eagerly(work())
    assert task.done() is (sys.version_info >= (3, 12))
    await task
    assert ran == [task], "the coroutine runs in its own task, also in its first step"
    scope.end()
