"""A server out of memory: adding is refused, everything that makes room goes on."""

from __future__ import annotations

import pytest

from glidemq_async import Queue, QueueFull
from glidemq_async.storage import open_storage
from tests.places import Place, endpoint_of
from tests.servers import standalone
from tests.tidiness import verify
from tests.workbench import AnyQueue, Gate, echo, ended, worker_of


async def test_adding_is_refused_and_running_jobs_can_end() -> None:
    async with standalone("--maxmemory", "12mb", "--maxmemory-policy", "noeviction") as server:
        place = Place("full", server.url, (endpoint_of(server),))
        async with open_storage(server.url) as storage:
            queue: AnyQueue = Queue("q", storage)
            gate = Gate()
            async with worker_of(queue, gate, concurrency=2, shutdown_timeout=0):
                running = [await queue.add("n", 1), await queue.add("n", 2)]
                await gate.running()
                await gate.running()
                waiting = await queue.add("n", "waiting")
                stored = 0
                with pytest.raises(QueueFull, match="maxmemory.*Nothing was stored"):
                    for _ in range(100):
                        await queue.add("filler", b"x" * 500_000)
                        stored += 1
                assert stored > 3
                await queue.pause()
                # Both can end, whatever the memory: one with a result, one revoked.
                await running[1].revoke()
                assert (await ended(running[1])).failed_reason == "revoked"
                gate.release()
                assert (await ended(running[0])).return_value == 1
            # Looking, removing and draining work too.
            counts = await queue.get_job_counts()
            assert counts["waiting"] >= stored
            fillers = [job async for job in queue.iter_jobs("waiting") if job.name == "filler"]
            for job in fillers[:2]:
                await job.remove()
            with pytest.raises(QueueFull):
                for _ in range(100):
                    await queue.add("filler", b"x" * 500_000)
            await queue.resume()
            await worker_of(queue, swallow, concurrency=5).run(until_empty=True)
            assert (await ended(waiting)).state == "completed"
            async with worker_of(queue, echo):
                assert await queue.add_and_wait("n", 1, wait_timeout=10) == 1
            await queue.close()
            await verify(storage, place)


async def swallow(job: object) -> None:
    """Do nothing and return nothing, so that room is made."""
