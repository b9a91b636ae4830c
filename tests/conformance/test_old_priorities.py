"""Prioritized jobs that an earlier build added: they start in their order, before later jobs of their priority."""

from __future__ import annotations

from typing import cast

import pytest

from glidemq_async import Job, JobOptions
from glidemq_async.options.job_options import JobOptionsDict
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyQueue, counts
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere

FIRST_SEQUENCE = 1_000_000_000_001_000


async def make_old(store: RunningStore, base: str) -> None:
    """Give all prioritized jobs the form of earlier builds: 16 digits and the id, with the priority as the score."""
    members = cast("list[bytes]", await store.ask("ZRANGE", f"{base}:prioritized", "0", "-1", "WITHSCORES"))
    await store.ask("DEL", f"{base}:prioritized")
    for number in range(0, len(members), 2):
        member = members[number].decode()
        job_id = member.partition(":")[2] or member
        sequence, priority = FIRST_SEQUENCE + number, int(float(members[number + 1]))
        await store.ask("ZADD", f"{base}:prioritized", str(priority), f"{sequence}{job_id}")
        text = cast("bytes | None", await store.ask("HGET", f"{base}:compact", job_id))
        if text is None:
            await store.ask("HSET", f"{base}:job:{job_id}", "place", f"prioritized {sequence}")
        else:
            await store.ask("HSET", f"{base}:compact", job_id, b"%d %b" % (sequence, text))


async def add(queue: AnyQueue, *names: str) -> list[str]:
    """Add jobs whose names begin with their priority; a job with a custom id if the name ends with `!`."""
    ids: list[str] = []
    for name in names:
        options = JobOptionsDict(priority=int(name[0]))
        if name.endswith("!"):
            options["job_id"] = f"5:{name}"
        ids.append((await queue.add(name, **options)).id)
    return ids


@everywhere
async def test_jobs_of_an_earlier_build_start_before_later_ones_of_their_priority(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await add(queue, "2a", "1a", "2b!", "1b!", "3a")
    await make_old(store, fake_worker.base)
    await add(queue, "2c", "1c!", "2d!", "1d", "3b")
    expected = ["1a", "1b!", "1c!", "1d", "2a", "2b!", "2c", "2d!", "3a", "3b"]
    assert await queue.check() == []
    assert [job.name for job in await queue.get_jobs("prioritized")] == expected
    leases = [lease for _ in range(5) for lease in await fake_worker.claim(2)]
    assert [lease.name for lease in leases] == expected
    for lease in leases:
        job = cast("Job[object, object]", await queue.get_job(lease.id))
        assert (job.name, job.priority) == (lease.name, int(lease.name[0]))
    assert (await fake_worker.complete(*leases)).refused == {}
    assert await queue.check() == []


@everywhere
async def test_jobs_of_an_earlier_build_can_be_changed_and_removed(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    ids = await add(queue, "3a", "3b!", "3c", "3d!", "3e", "3f")
    await make_old(store, fake_worker.base)
    jobs = [cast("Job[object, object]", await queue.get_job(job_id)) for job_id in ids]
    assert [(job.state, job.priority) for job in jobs] == [("prioritized", 3)] * 6
    await jobs[0].change_priority(4)
    await jobs[1].change_priority(2)
    await jobs[2].remove()
    await jobs[3].remove()
    await queue.revoke(ids[4])
    assert await queue.check() == []
    assert await counts(queue) == {"prioritized": 3, "failed": 1}
    assert [lease.name for lease in await fake_worker.claim(6)] == ["3b!", "3f", "3a"]


@everywhere
async def test_a_drain_removes_jobs_of_earlier_builds_and_of_this_one(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await queue.add_bulk([("n", number, JobOptions(priority=1 + number % 3)) for number in range(300)])
    await make_old(store, fake_worker.base)
    await queue.add_bulk([("n", number, JobOptions(priority=1 + number % 3)) for number in range(300)])
    assert await queue.drain() == 600
    assert await queue.check() == []
    assert await counts(queue) == {}


@everywhere
async def test_order_holds_where_ids_get_a_digit_more(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    """Ids are compared as numbers, in one call and across calls, with and without records."""
    await queue.add_bulk([("n", number, JobOptions(priority=7)) for number in range(95)])
    await queue.add("n", 95, priority=7, job_id="own")
    await queue.add_bulk([("n", number, JobOptions(priority=7 + number % 2)) for number in range(96, 130)])
    jobs = [job async for job in queue.iter_jobs("prioritized")]
    assert [job.data for job in jobs] == [*range(96), *range(96, 130, 2), *range(97, 130, 2)]
    claimed = [lease.id for _ in range(2) for lease in await fake_worker.claim(65)]
    assert claimed == [job.id for job in jobs]
