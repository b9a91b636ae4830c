"""A server out of memory refuses adds. Everything that frees memory continues."""

from __future__ import annotations

import pytest

from glidemq_async import Queue, QueueFull
from glidemq_async.storage import open_storage
from tests.support.helpers import AnyQueue, Gate, echo, ended, worker_of
from tests.support.leak_check import verify
from tests.support.servers import standalone
from tests.support.stores import RunningStore, endpoint_of

FILLER = b"x" * 500_000


async def fill(queue: AnyQueue) -> int:
    """Add until the memory is full; return the number of jobs."""
    for stored in range(100):
        try:
            await queue.add("filler", FILLER)
        except QueueFull:
            return stored
    raise AssertionError("the memory must become full")


async def test_adding_is_refused_and_active_jobs_can_end() -> None:
    async with standalone("--maxmemory", "12mb", "--maxmemory-policy", "noeviction") as server:
        store = RunningStore("full", server.url, (endpoint_of(server),))
        async with open_storage(server.url) as storage:
            queue: AnyQueue = Queue("q", storage)
            gate = Gate()
            async with worker_of(queue, gate, concurrency=2, shutdown_timeout=0):
                running = [await queue.add("n", 1), await queue.add("n", 2)]
                await gate.running()
                await gate.running()
                waiting = await queue.add("n", "waiting")
                stored = await fill(queue)
                with pytest.raises(QueueFull, match=r"maxmemory.*Nothing was stored"):
                    await queue.add("filler", FILLER)
                assert stored > 3
                await queue.pause()
                # Both can end without free memory: one with a result, one revoked.
                await running[1].revoke()
                assert (await ended(running[1])).failed_reason == "revoked"
                gate.release()
                assert (await ended(running[0])).return_value == 1
            # Reading, removing and draining work too.
            counts = await queue.get_job_counts()
            assert counts["waiting"] >= stored
            fillers = [job async for job in queue.iter_jobs("waiting") if job.name == "filler"]
            # The buffers of the connections count as used memory too, and a slow client or server needs larger ones. So
            # more memory is freed than the next adds need.
            for job in fillers[:5]:
                await job.remove()
            assert await fill(queue) >= 1
            await queue.resume()
            await worker_of(queue, do_nothing, concurrency=5).run(until_empty=True)
            assert (await ended(waiting)).state == "completed"
            # Completed jobs keep their data until they are removed.
            assert len(await queue.clean(0, 100, "completed")) > 5
            async with worker_of(queue, echo):
                assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
            await queue.close()
            await verify(storage, store)


async def do_nothing(job: object) -> None:
    """Return nothing, so that a result needs no memory."""
