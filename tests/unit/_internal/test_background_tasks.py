"""The owner of background tasks: it ends them, and no error disappears."""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async._internal.background_tasks import BackgroundTasks


async def test_close_cancels_the_tasks_and_waits_for_their_cleanup() -> None:
    began, cleaned = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    tasks = BackgroundTasks()
    tasks.start(work())
    await began.wait()
    assert len(tasks) == 1
    await tasks.close()
    assert cleaned.is_set()
    assert len(tasks) == 0
    await tasks.close()


async def test_a_wait_cancels_tasks_that_do_not_end_in_time() -> None:
    release, done = asyncio.Event(), asyncio.Event()

    async def quick() -> None:
        await release.wait()
        done.set()

    tasks = BackgroundTasks()
    tasks.start(quick())
    release.set()
    await tasks.wait(10)
    assert done.is_set()
    late = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            late.set()

    tasks.start(slow())
    await tasks.wait(0.01)
    await asyncio.wait_for(late.wait(), 10)


async def test_an_error_is_logged_or_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    tasks = BackgroundTasks()
    tasks.start(fail())
    await tasks.wait(10)
    await asyncio.sleep(0)
    assert caplog.messages == ["a background task failed: ValueError('broken')"]
    errors: list[BaseException] = []
    reported = BackgroundTasks(errors.append)
    reported.start(fail())
    await reported.wait(10)
    await asyncio.sleep(0)
    assert [str(error) for error in errors] == ["broken"]
    assert len(caplog.messages) == 1
