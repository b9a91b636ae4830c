"""Work that its caller awaits, and that a task continues when the caller leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from glidemq_async._internal.continued_work import ContinuedWork

New = Callable[[], asyncio.AbstractEventLoop]

both_loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def run(new_loop: New, check: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(check())


class Work:
    """Waits for the replies of `waits` one after the other, and notes the task of each step."""

    def __init__(self, waits: int = 1) -> None:
        self.replies: list[asyncio.Future[object]] = [asyncio.get_running_loop().create_future() for _ in range(waits)]
        self.tasks: list[asyncio.Task[Any] | None] = []
        self.ended = False
        self.continued = ContinuedWork(self._steps())
        self.caller = asyncio.create_task(self._call())

    async def _steps(self) -> list[object]:
        try:
            found: list[object] = []
            self.tasks.append(asyncio.current_task())
            for reply in self.replies:
                found.append(await reply)
                self.tasks.append(asyncio.current_task())
            return found
        finally:
            self.ended = True

    async def _call(self) -> list[object]:
        return await self.continued


@both_loops
def test_the_caller_takes_all_steps(new_loop: New) -> None:
    async def check() -> None:
        work = Work()
        await asyncio.sleep(0)
        work.replies[0].set_result("reply")
        await asyncio.sleep(0)
        assert work.caller.done()
        assert await work.caller == ["reply"]
        assert work.tasks == [work.caller, work.caller]
        assert work.continued.rest is None

    run(new_loop, check)


@both_loops
def test_work_that_does_not_wait_ends_at_once(new_loop: New) -> None:
    async def check() -> None:
        work = Work(0)
        await asyncio.sleep(0)
        assert (work.caller.done(), await work.caller) == (True, [])
        early = Work()
        early.replies[0].set_result(1)  # before the first step
        assert await early.caller == [1]

    run(new_loop, check)


@both_loops
@pytest.mark.parametrize("is_late", [False, True], ids=["before the reply", "with the reply"])
def test_a_cancellation_leaves_the_work_to_a_task(new_loop: New, is_late: bool) -> None:
    async def check() -> None:
        work = Work()
        await asyncio.sleep(0)
        if is_late:
            work.replies[0].set_result("reply")
        work.caller.cancel("why")
        with pytest.raises(asyncio.CancelledError, match="why"):
            await work.caller
        assert not work.ended
        rest = work.continued.rest
        assert rest is not None
        if not is_late:
            await asyncio.sleep(0)
            work.replies[0].set_result("reply")
        assert await rest == ["reply"]
        assert work.tasks == [work.caller, rest]

    run(new_loop, check)


@both_loops
def test_a_cancellation_before_the_first_step_begins_nothing(new_loop: New) -> None:
    async def check() -> None:
        work = Work()
        work.caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work.caller
        assert (work.tasks, work.continued.rest) == ([], None)
        work.continued._work.close()  # pyright: ignore[reportPrivateUsage]

    run(new_loop, check)


@both_loops
@pytest.mark.parametrize("error", ["result", "raised", "cancelled"])
def test_the_steps_after_an_error_belong_to_one_task(new_loop: New, error: str) -> None:
    async def check() -> None:
        work = Work()
        await asyncio.sleep(0)
        failure = ConnectionError("lost")
        if error == "result":
            work.replies[0].set_result(failure)
            assert await work.caller == [failure]
            assert work.tasks == [work.caller, work.continued.rest]
            return
        if error == "raised":
            work.replies[0].set_exception(failure)
        else:
            work.replies[0].cancel()
        with pytest.raises(ConnectionError if error == "raised" else asyncio.CancelledError):
            await work.caller
        assert (work.tasks, work.ended) == ([work.caller], True)

    run(new_loop, check)


@both_loops
def test_a_second_wait_belongs_to_a_task(new_loop: New) -> None:
    async def check() -> None:
        work = Work(3)
        await asyncio.sleep(0)
        work.replies[0].set_result(0)
        await asyncio.sleep(0)
        rest = work.continued.rest
        assert rest is not None
        await asyncio.sleep(0)
        work.caller.cancel()  # it reaches the caller only
        with pytest.raises(asyncio.CancelledError):
            await work.caller
        for number in (1, 2):
            work.replies[number].set_result(number)
            await asyncio.sleep(0)
        assert await rest == [0, 1, 2]
        assert work.tasks == [work.caller, work.caller, rest, rest]

    run(new_loop, check)


@both_loops
def test_the_task_of_the_rest_can_be_cancelled(new_loop: New) -> None:
    async def check() -> None:
        work = Work()
        await asyncio.sleep(0)
        work.caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work.caller
        assert work.continued.rest is not None
        work.continued.rest.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work.continued.rest
        assert work.ended

    run(new_loop, check)
