"""The confirmation that an add waits for: the server's disk, a replica, or only the reply."""

from __future__ import annotations

import asyncio

import pytest

from glidemq_async import JobOptions, StorageUnavailable, UnsupportedDurability
from tests.support.helpers import AnyQueue, echo, worker_of


@pytest.mark.only_on("file", "redis", "cluster", "sentinel")
async def test_an_add_can_wait_for_the_disk(queue: AnyQueue) -> None:
    job = await queue.add("n", 1, durability="fsync")
    jobs = await asyncio.gather(*(queue.add("n", number, durability="fsync") for number in range(50)))
    bulk = await queue.add_bulk([("n", 1, JobOptions(durability="fsync")), ("n", 2)])
    assert {one.outcome for one in (job, *jobs, *bulk)} == {"added"}
    again = await queue.add("n", 2, durability="fsync", job_id="a")
    assert (again.outcome, (await queue.add("n", 3, durability="fsync", job_id="a")).outcome) == ("added", "duplicate")
    async with worker_of(queue, echo, concurrency=10):
        assert await job.result(10) == 1


@pytest.mark.only_on("cluster", "sentinel")
async def test_an_add_can_wait_for_a_replica(queue: AnyQueue) -> None:
    jobs = await asyncio.gather(*(queue.add("n", number, durability="replicated") for number in range(50)))
    assert [job.outcome for job in jobs] == ["added"] * 50
    assert await queue.count() == 50


@pytest.mark.only_on("memory", "redis7", "unix")
async def test_a_server_that_cannot_confirm_refuses_and_stores_nothing(queue: AnyQueue) -> None:
    with pytest.raises(UnsupportedDurability, match="fsync"):
        await queue.add("n", durability="fsync")
    with pytest.raises(UnsupportedDurability, match="fsync"):
        await queue.add_bulk([("n", 1, JobOptions(durability="fsync"))])
    assert await queue.count() == 0


@pytest.mark.only_on("memory")
async def test_without_a_replica_the_error_states_that_the_job_is_stored(queue: AnyQueue) -> None:
    with pytest.raises(StorageUnavailable, match=r"is stored on .* did not confirm") as caught:
        await queue.add("n", durability="replicated", job_id="a")
    assert "token" not in str(caught.value)
    assert "add it again only with the same job_id" in str(caught.value)
    assert (await queue.add("n", job_id="a")).outcome == "duplicate"
