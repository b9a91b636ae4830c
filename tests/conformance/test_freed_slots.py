"""A slot under a limit of the queue is used immediately after it becomes free, for any reason."""

from __future__ import annotations

from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyJob, AnyQueue, echo, ended, worker_of
from tests.support.stores import RunningStore
from tests.support.waiting_jobs import idle_workers


async def full(queue: AnyQueue, store: RunningStore) -> tuple[FakeWorker, Lease, AnyJob]:
    """Return a worker whose run uses the only slot of the queue, its lease, and a job that waits."""
    fake_worker = FakeWorker(queue, store)
    await queue.set_global_concurrency(1)
    await queue.add("n", 1)
    (lease,) = await fake_worker.claim()
    return fake_worker, lease, await queue.add("n", 2)


async def test_the_end_of_a_removed_run_starts_the_next_one(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker, lease, waiting = await full(queue, store)
    async with worker_of(queue, echo):
        await idle_workers(queue, store, 1)
        running = await queue.get_job(lease.id)
        assert running is not None
        await running.remove()
        assert await fake_worker.end(lease) == 1
        assert (await ended(waiting)).state == "completed"


async def test_the_failure_of_a_stalled_job_starts_its_successor(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker, lease, waiting = await full(queue, store)
    async with worker_of(queue, echo):
        await idle_workers(queue, store, 1)
        await fake_worker.vanish(lease)
        assert await fake_worker.sweep(max_stalled=0) == []
        assert (await ended(waiting)).state == "completed"


async def test_the_failure_of_a_revoked_job_starts_its_successor(queue: AnyQueue, store: RunningStore) -> None:
    fake_worker, lease, waiting = await full(queue, store)
    async with worker_of(queue, echo):
        await idle_workers(queue, store, 1)
        await queue.revoke(lease.id)
        await fake_worker.vanish(lease)
        assert await fake_worker.sweep() == []
        assert (await ended(waiting)).state == "completed"
