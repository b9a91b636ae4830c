"""A run is idle if nothing but its waits can continue it, whichever construct of asyncio waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from glidemq_async.workflows.idle import is_idle

pytestmark = pytest.mark.smoke

Wait = Callable[[], Awaitable[Any]]


async def directly(wait: Wait) -> None:
    await wait()


async def deeply(wait: Wait) -> None:
    await directly(wait)


async def in_a_task(wait: Wait) -> None:
    await asyncio.create_task(deeply(wait))


async def gathered(wait: Wait) -> None:
    await asyncio.gather(wait(), deeply(wait), asyncio.sleep(0))


async def grouped(wait: Wait) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(gathered(wait))
        group.create_task(directly(wait))


async def grouped_and_ended(wait: Wait) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
        group.create_task(directly(wait))


async def raced(wait: Wait) -> None:
    tasks = [asyncio.create_task(directly(wait)) for _ in range(2)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def timed(wait: Wait) -> None:
    async with asyncio.timeout(60):
        await deeply(wait)


async def waited_for(wait: Wait) -> None:
    await asyncio.wait_for(deeply(wait), 60)


async def from_a_task_group_in_a_group(wait: Wait) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(grouped(wait))


IDLE = (
    directly,
    deeply,
    in_a_task,
    gathered,
    grouped,
    grouped_and_ended,
    raced,
    timed,
    waited_for,
    from_a_task_group_in_a_group,
)


async def sleeping(_: Wait) -> None:
    await asyncio.sleep(60)


async def sleeping_beside(wait: Wait) -> None:
    await asyncio.gather(wait(), asyncio.sleep(60))


async def sleeping_in_a_group(wait: Wait) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(directly(wait))
        group.create_task(asyncio.sleep(60))


async def waiting_for_an_event(_: Wait) -> None:
    await asyncio.Event().wait()


async def racing_with_another(wait: Wait) -> None:
    tasks = [asyncio.create_task(directly(wait)), asyncio.create_task(asyncio.sleep(60))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def in_a_thread(_: Wait) -> None:
    await asyncio.to_thread(print, end="")
    await asyncio.get_running_loop().create_future()


async def in_the_body_of_a_group(wait: Wait) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(directly(wait))
        await asyncio.sleep(60)


async def on_a_foreign_future(_: Wait) -> None:
    await asyncio.get_running_loop().create_future()


BUSY = (
    sleeping,
    sleeping_beside,
    sleeping_in_a_group,
    waiting_for_an_event,
    racing_with_another,
    in_a_thread,
    in_the_body_of_a_group,
    on_a_foreign_future,
)


async def look(program: Callable[[Wait], Awaitable[None]]) -> bool:
    """Start a program, and return whether it is idle when it waits."""
    waits: set[asyncio.Future[Any]] = set()

    async def wait() -> None:
        future = asyncio.get_running_loop().create_future()
        waits.add(future)
        await future

    async def body() -> None:
        await program(wait)

    task = asyncio.create_task(body())
    await asyncio.sleep(0.02)
    assert not task.done()
    idle = is_idle(task, waits)
    task.cancel()
    await asyncio.wait([task])
    return idle


@pytest.mark.parametrize("program", IDLE)
async def test_a_program_that_only_waits_is_idle(program: Callable[[Wait], Awaitable[None]]) -> None:
    assert await look(program)


@pytest.mark.parametrize("program", BUSY)
async def test_a_program_that_does_something_else_is_not_idle(program: Callable[[Wait], Awaitable[None]]) -> None:
    assert not await look(program)


async def test_a_task_that_is_about_to_run_is_not_idle() -> None:
    task = asyncio.create_task(asyncio.sleep(0))
    assert not is_idle(task, ())
    await task
    assert not is_idle(task, ())
