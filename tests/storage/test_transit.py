"""Claims whose reply takes longer than a lease: the worker renews them while bytes of the reply keep arriving."""

from __future__ import annotations

import asyncio

from glidemq_async import Queue, Worker
from glidemq_async.jobs.job import Job
from tests.support.servers import Server, eventually
from tests.support.slow_link import SlowLink

LEASE = 5.0


async def test_a_payload_that_is_longer_in_transit_than_its_lease_runs_once(server: Server) -> None:
    ran: list[str] = []
    blocked, free = asyncio.Event(), asyncio.Event()

    async def handler(job: Job[object, object]) -> None:
        if job.name == "block":
            blocked.set()
            await free.wait()
        else:
            ran.append(job.id)

    async def ended() -> bool:
        counts = await queue.get_job_counts()
        return counts["completed"] + counts["failed"] == 1

    async with Queue("transit", server.url, payload_limit=4_000_000) as queue:
        # The only slot of a nearby worker is taken. It sweeps, so it reclaims every lease that expires.
        async with Worker("transit", handler, server.url, handle_signals=False, lock_duration=1):
            await queue.add("block")
            await asyncio.wait_for(blocked.wait(), 10)
            large = await queue.add("large", "x" * 3_000_000)
            async with (
                SlowLink(server.port, rate=150_000) as link,
                Worker("transit", handler, link.url, handle_signals=False, lock_duration=LEASE, max_stalled=0),
            ):
                try:
                    # The transfer takes 20 s, four leases.
                    await eventually(ended, "the large job has ended", 60)
                finally:
                    free.set()
        job = await queue.get_job(large.id)
        assert job is not None
        assert (await job.get_state(), job.attempts_made, ran) == ("completed", 1, [large.id])
