"""Values that handlers return, write and ask for arrive with any serializer, in full memory, and at the end of a
burst.
"""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import JsonSerializer, Queue, QueueFull, RateLimited, RetryLater
from glidemq_async.storage import Storage, open_storage
from tests.support.helpers import AnyJob, AnyQueue, Heard, ended, soon, worker_of
from tests.support.leak_check import verify
from tests.support.servers import standalone
from tests.support.stores import RunningStore, endpoint_of


async def test_none_is_a_result_in_json_too(storage: Storage, name: str) -> None:
    async def nothing(job: AnyJob) -> None:
        return None

    serializer = JsonSerializer()
    queue: AnyQueue = Queue(name, storage, serializer=serializer)
    async with queue, worker_of(queue, nothing, serializer=serializer):
        assert await queue.add_and_wait("n", 1, wait_timeout=5) is None
        job = await ended(await queue.add("n", 2))
        assert await job.result(5) is None
        assert (job.state, job.return_value) == ("completed", None)


async def fill(queue: Queue[object, str], size: int) -> None:
    """Add payloads of this size until the memory is full; raises QueueFull."""
    for _ in range(2_000):
        await queue.add("filler", b"x" * size)


async def test_active_jobs_can_write_in_full_memory() -> None:
    full = asyncio.Event()
    started: asyncio.Queue[AnyJob] = asyncio.Queue()

    async def write(job: AnyJob) -> str:
        started.put_nowait(job)
        await full.wait()
        await job.log("a line")
        await job.update_progress({"done": 1})
        return "written"

    async with (
        standalone("--maxmemory", "12mb", "--maxmemory-policy", "noeviction") as server,
        open_storage(server.url) as storage,
    ):
        async with Queue[object, str]("q", storage) as queue:
            async with worker_of(queue, write) as worker:
                errors = Heard(worker, "error")
                job = await queue.add("n")
                await soon(started.get())
                await queue.pause()
                # To the last byte: a large payload that was refused leaves memory for smaller ones.
                for size in (500_000, 20_000, 1_000, 1, 1):
                    with pytest.raises(QueueFull):
                        await fill(queue, size)
                full.set()
                assert await job.result(5) == "written"
                assert errors.count == 0
            await job.refresh()
            assert (job.attempts_made, job.progress) == (1, {"done": 1})
            assert await queue.get_job_logs(job.id) == ["a line"]
        await verify(storage, RunningStore("full", server.url, (endpoint_of(server),)))


@pytest.mark.parametrize("later", [RetryLater, RateLimited])
async def test_a_burst_waits_for_jobs_that_asked_for_more_time(
    queue: AnyQueue, later: type[RetryLater | RateLimited]
) -> None:
    runs: list[str] = []

    async def ask_twice(job: AnyJob) -> str:
        runs.append(job.id)
        if len(runs) < 3:
            raise later(0.3)
        return "done"

    job = await queue.add("n")
    await soon(worker_of(queue, ask_twice).run(until_empty=True))
    await job.refresh()
    assert (runs, job.state, job.return_value) == ([job.id] * 3, "completed", "done")
