"""Helpers to wait for one of several events, or for several coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")


# asyncio's task group and not anyio's. A cancelled scope of anyio cancels every further `await` of its tasks, so a task
# that closes a queue or waits for a process in its `finally` would have to shield each of these steps. asyncio cancels
# a task once.
@asynccontextmanager
async def task_group() -> AsyncGenerator[asyncio.TaskGroup]:
    """Own tasks until all have ended. Raises the first error itself, where `asyncio.TaskGroup` raises a group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
    else:
        return
    raise first


async def first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(event.wait()) for event in events]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            # The group then waits until the cancelled tasks have ended, so none of them outlives this call.
            wait.cancel()


async def together(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all coroutines concurrently and return their results in order.

    The first failure cancels the others and is raised after they have ended.
    """
    async with task_group() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result() for task in tasks]


# `asyncio.gather` alone is neither of the two. It raises the first error and leaves the other tasks running, so they
# use a connection or a queue that its owner has closed by then.
async def finish_all(works: Iterable[Awaitable[_T]]) -> list[_T]:
    """Run all coroutines concurrently, each to its end, and return their results in order.

    Then raises the error of the first one in order that has failed. For closing several things: cancelling the others
    would leave them half closed. A cancellation of the caller cancels all of them.
    """
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
