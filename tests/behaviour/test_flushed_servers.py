"""FLUSHALL under idle workers: the queue continues, and new clients can open it."""

from __future__ import annotations

from glidemq_async import Queue, Worker
from glidemq_async.jobs.job import Job
from glidemq_async.storage import MemoryStorage
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.server import servers_of
from tests.support.helpers import soon


async def double(job: Job[int, int]) -> int:
    return 2 * job.data


async def test_a_queue_can_be_opened_after_a_sweep_of_nothing() -> None:
    async with (
        MemoryStorage() as storage,
        Queue[int, int]("q", storage) as queue,
        Worker("q", double, storage, lock_duration=1, handle_signals=False, poll_interval=0.2),
    ):
        assert await soon(queue.add_and_wait("n", 1), 10) == 2
        wire = await (await servers_of(storage).find_node("glide:{q}")).open()
        deadline = 1e12
        assert await wire.send(pack("FLUSHALL"), deadline) == b"OK"
        # The worker's next renewal or sweep recreates `meta`.
        while await wire.send(pack("EXISTS", "glide:{q}:meta2"), deadline) != 1:
            pass
        async with Queue[int, int]("q", storage) as another:
            assert await soon(another.add_and_wait("n", 2), 10) == 4
