"""A task that waits at a point continues inside of the callback that resumes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import pytest
import uvloop

from glidemq_async._internal.wait_point import TaskEvent, WaitPoint

_variable: ContextVar[str] = ContextVar("variable", default="unset")
New = Callable[[], asyncio.AbstractEventLoop]

both_loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class Waiting:
    """A task that waits at a point twice and notes what happens."""

    def __init__(self) -> None:
        self.point = WaitPoint(asyncio.get_running_loop())
        self.notes: list[object] = []
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        _variable.set("of the task")
        for number in range(2):
            try:
                await self.point
            except asyncio.CancelledError as error:
                self.notes.append(("cancelled", *error.args))
                raise
            self.notes.append((number, _variable.get(), asyncio.current_task() is self.task))


def run(new_loop: New, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(check())


async def in_callback(work: Callable[[], None]) -> None:
    """Call `work` outside of every task."""
    done = asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - for the test
            done.set_exception(error)
        else:
            done.set_result(None)

    asyncio.get_running_loop().call_soon(call)
    await done


@both_loops
def test_the_task_continues_in_the_call(new_loop: New) -> None:
    async def check() -> None:
        waiting = Waiting()
        await asyncio.sleep(0)

        def resume() -> None:
            assert waiting.point.is_waiting
            for number in range(2):
                waiting.point.resume()
                assert waiting.notes[-1] == (number, "of the task", True)
            assert not waiting.point.is_waiting

        await in_callback(resume)
        await waiting.task
        assert _variable.get() == "unset"

    run(new_loop, check)


@both_loops
def test_the_task_continues_in_the_next_iteration(new_loop: New) -> None:
    async def check() -> None:
        waiting = Waiting()
        await asyncio.sleep(0)
        waiting.point.resume_soon()
        assert not waiting.point.is_waiting
        assert waiting.notes == []
        await asyncio.sleep(0)
        assert waiting.notes == [(0, "of the task", True)]
        waiting.point.resume_soon()
        await waiting.task

    run(new_loop, check)


@both_loops
def test_a_cancelled_wait_ends_and_is_not_resumed(new_loop: New) -> None:
    async def check() -> None:
        waiting = Waiting()
        await asyncio.sleep(0)
        assert waiting.task.cancel("why")
        assert not waiting.point.is_waiting
        assert waiting.point.is_cancelled
        with pytest.raises(asyncio.CancelledError):
            await waiting.task
        assert waiting.notes == [("cancelled", "why")]

    run(new_loop, check)


@both_loops
def test_a_task_that_is_cancelled_after_its_resume_was_not_cancelled_by_the_wait(new_loop: New) -> None:
    async def check() -> None:
        waiting = Waiting()
        await asyncio.sleep(0)
        waiting.point.resume_soon()
        waiting.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting.task
        assert waiting.notes == [("cancelled",)]
        assert not waiting.point.is_cancelled

    run(new_loop, check)


@both_loops
def test_an_error_of_the_task_stays_in_the_task(new_loop: New) -> None:
    async def check() -> None:
        point = WaitPoint(asyncio.get_running_loop())

        async def work() -> None:
            await point
            raise ValueError("of the task")

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await in_callback(point.resume)
        with pytest.raises(ValueError, match="of the task"):
            await task

    run(new_loop, check)


class Served:
    """A task that waits for an event again and again."""

    def __init__(self) -> None:
        self.event = TaskEvent(asyncio.get_running_loop())
        self.turns = 0
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while True:
            await self.event.wait()
            self.event.clear()
            self.turns += 1


@both_loops
def test_an_event_continues_its_task_once(new_loop: New) -> None:
    async def check() -> None:
        served = Served()
        for number in range(3):
            await asyncio.sleep(0)
            served.event.set()
            served.event.set()
            assert (served.event.is_set(), served.turns) == (True, number)
            await asyncio.sleep(0)
            assert (served.event.is_set(), served.turns) == (False, number + 1)
        served.task.cancel()

    run(new_loop, check)


@both_loops
def test_an_event_that_is_set_before_the_wait_does_not_wait(new_loop: New) -> None:
    async def check() -> None:
        served = Served()
        served.event.set()
        await asyncio.sleep(0)
        assert (served.event.is_set(), served.turns) == (False, 1)
        served.task.cancel()

    run(new_loop, check)


@both_loops
def test_an_event_continues_its_task_inside_of_the_call(new_loop: New) -> None:
    async def check() -> None:
        served = Served()
        await asyncio.sleep(0)

        def resume() -> None:
            for number in range(2):
                served.event.resume()
                assert served.turns == number + 1

        await in_callback(resume)
        served.task.cancel()

    run(new_loop, check)


@both_loops
def test_an_event_is_kept_for_a_task_that_does_not_wait(new_loop: New) -> None:
    async def check() -> None:
        served = Served()
        served.event.resume()
        assert (served.event.is_set(), served.turns) == (True, 0)
        await asyncio.sleep(0)
        assert served.turns == 1
        served.event.set()
        served.event.resume()  # the task continues in the next iteration, and only once
        assert served.turns == 1
        await asyncio.sleep(0)
        assert served.turns == 2
        served.task.cancel()

    run(new_loop, check)
