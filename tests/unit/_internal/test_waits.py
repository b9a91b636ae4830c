"""Several coroutines run together: one failure either cancels the others, or lets each of them end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from glidemq_async._internal.waits import finish_all, together
from tests.support.helpers import soon


class Work:
    """A coroutine that waits for a permission, and what became of it."""

    def __init__(self) -> None:
        self.begun, self.allowed = asyncio.Event(), asyncio.Event()
        self.end = ""

    async def run(self) -> str:
        self.begun.set()
        try:
            await self.allowed.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # an end that takes a step of the loop
            self.end = "cancelled"
            raise
        self.end = "done"
        return self.end


async def _fail_after(begun: asyncio.Event) -> str:
    await begun.wait()
    raise OSError("no route")


async def test_results_are_in_the_order_of_the_coroutines() -> None:
    async def after(steps: int) -> int:
        for _ in range(steps):
            await asyncio.sleep(0)
        return steps

    assert await together(after(steps) for steps in (3, 1, 2)) == [3, 1, 2]
    assert await finish_all(after(steps) for steps in (3, 1, 2)) == [3, 1, 2]
    assert await together(()) == await finish_all(()) == []


async def test_a_failure_cancels_the_others_and_is_raised_after_their_end() -> None:
    work = Work()
    with pytest.raises(OSError, match="no route"):
        await soon(together([work.run(), _fail_after(work.begun)]))
    assert work.end == "cancelled"


async def test_a_failure_lets_the_others_finish_where_each_must_end() -> None:
    work = Work()
    waiting = asyncio.ensure_future(finish_all([_fail_after(work.begun), work.run()]))
    await soon(work.begun.wait())
    await asyncio.wait([waiting], timeout=0.02)
    assert not waiting.done()
    work.allowed.set()
    with pytest.raises(OSError, match="no route"):
        await soon(waiting)
    assert work.end == "done"


@pytest.mark.parametrize("run_all", [together, finish_all])
async def test_a_cancellation_reaches_all_and_waits_for_them(
    run_all: Callable[..., Awaitable[list[str]]],
) -> None:
    works = [Work(), Work()]
    waiting = asyncio.ensure_future(run_all(work.run() for work in works))
    for work in works:
        await soon(work.begun.wait())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(waiting)
    assert [work.end for work in works] == ["cancelled", "cancelled"]
