"""The wait of one caller for the end of one job."""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async.client.ended import Ended
from glidemq_async.client.waiter import Waiter

END = Ended("completed", b"\xc0", "")
LONG = 60.0


async def test_the_end_wakes_the_caller_in_the_next_turn() -> None:
    waiter = Waiter()
    waiting = asyncio.create_task(waiter.wait(LONG))
    await asyncio.sleep(0)
    waiter.set_result(END)
    await asyncio.sleep(0)
    assert waiting.done()
    assert waiter.result() is END


async def test_an_end_that_has_arrived_is_not_waited_for() -> None:
    waiter = Waiter()
    waiter.set_result(None)
    await waiter.wait(LONG)
    assert waiter.done()
    assert waiter.result() is None


async def test_the_caller_wakes_without_an_end_after_its_time() -> None:
    waiter = Waiter()
    await waiter.wait(0.001)
    assert not waiter.done()
    waiter.set_result(END)
    assert waiter.result() is END


async def test_a_cancelled_caller_leaves_the_waiter_as_it_was() -> None:
    waiter = Waiter()
    waiting = asyncio.create_task(waiter.wait(LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert waiting.cancelled()
    assert not waiter.done()


async def test_an_end_that_arrives_together_with_a_cancellation_is_kept() -> None:
    waiter = Waiter()
    waiting = asyncio.create_task(waiter.wait(LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    waiter.set_result(END)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiter.result() is END


async def test_an_error_is_raised_by_the_result() -> None:
    waiter = Waiter()
    waiter.set_exception(ConnectionError("closed"))
    await waiter.wait(LONG)
    with pytest.raises(ConnectionError, match="closed"):
        waiter.result()


async def test_a_message_continues_the_caller_in_its_callback() -> None:
    waiter = Waiter()
    waiting = asyncio.create_task(waiter.wait(LONG))
    await asyncio.sleep(0)
    ended_in_callback = asyncio.get_running_loop().create_future()

    def call() -> None:
        waiter.resume(END)
        ended_in_callback.set_result(waiting.done())

    asyncio.get_running_loop().call_soon(call)
    assert await ended_in_callback
    assert waiter.result() is END


async def test_a_message_after_a_cancellation_keeps_the_end() -> None:
    waiter = Waiter()
    waiting = asyncio.create_task(waiter.wait(LONG))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(waiting.cancel)
    asyncio.get_running_loop().call_soon(waiter.resume, END)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiter.result() is END
