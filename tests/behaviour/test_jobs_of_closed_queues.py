"""A job outlives the queue or the app that returned it: its errors say that this is closed, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import GlideMQ, Queue, QueueClosed
from glidemq_async.storage import MemoryStorage
from tests.support.helpers import echo, soon, worker_of


async def test_a_job_of_a_closed_queue_says_so_and_what_to_do() -> None:
    async with Queue[Any, Any]("mail", "memory://") as queue:
        job = await queue.add("n")
    for call in (job.result, job.refresh, job.remove):
        with pytest.raises(QueueClosed, match=r"^queue 'mail' is closed.*new Queue.*get_job\(id\)"):
            await call()


async def test_a_job_of_a_closed_app_says_so_and_what_to_do() -> None:
    app = GlideMQ("memory://")

    @app.task
    async def work() -> None: ...

    async with app:
        job = await work.add()
    with pytest.raises(QueueClosed, match=r"^the app is closed.*open it again.*get_job\(id\)"):
        await job.result()


async def test_a_job_of_a_closed_queue_can_still_be_awaited_in_an_open_storage() -> None:
    async with MemoryStorage() as storage:
        async with Queue[Any, Any]("mail", storage) as queue:
            job = await queue.add("n", 5)
        async with Queue[Any, Any]("mail", storage) as other, worker_of(other, echo):
            assert await soon(job.result()) == 5
    with pytest.raises(QueueClosed, match=r"the storage .* is closed; open another one"):
        await job.refresh()
