"""Compact jobs that start together: their texts and their tokens in the reply of a claim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any, Final, TypeAlias

import msgpack
import pytest

from glidemq_async import JobOptions
from glidemq_async.functions.settle import SettleReply
from tests.support.fake_worker import FakeWorker, leases_of
from tests.support.helpers import AnyJob, AnyQueue, counts, job_events
from tests.support.kinds import KINDS, options_of
from tests.support.stores import RunningStore

Change: TypeAlias = Callable[[AnyQueue, RunningStore], Awaitable[None]]

JOBS = 20
LARGE = "x" * 5_000
READ_WITHIN: Final = (
    "local record = {}\n"
    + files("glidemq_async.functions").joinpath("compact.lua").read_text(encoding="utf-8")
    + """
local ids = {}
for i = 1, 50 do ids[i] = tostring(i) end
return select(2, compact.lines_within(KEYS[1], ids, tonumber(ARGV[1]), {compact = true}))
"""
)

everywhere = pytest.mark.everywhere
of_each_kind = pytest.mark.parametrize("kind", KINDS)


async def add(queue: AnyQueue, kind: str, number: int, **more: Any) -> list[AnyJob]:
    """Add jobs of a kind. Return them in the order in which they start."""
    jobs = [("n", n, JobOptions(**options_of(kind, n), **more)) for n in range(number)]
    added = await queue.add_bulk(jobs)
    return added[::-1] if kind == "lifo" else added


def ids_of(reply: SettleReply) -> list[str]:
    return [job.id for job in reply.jobs]


@everywhere
@of_each_kind
async def test_jobs_that_start_together_are_complete(queue: AnyQueue, fake_worker: FakeWorker, kind: str) -> None:
    jobs = await add(queue, kind, 6, attempts=2)
    reply = await fake_worker.claim_in_one_call(4)
    assert ids_of(reply) == [job.id for job in jobs[:4]]
    for job in reply.jobs:
        assert (job.name, job.fence, job.is_plain) == ("n", 1, False)
        assert msgpack.unpackb(job.opts) == {"a": 2}
    assert len({job.entry for job in reply.jobs}) == 4
    assert [msgpack.unpackb(job.data) for job in reply.jobs] == [job.data for job in jobs[:4]]
    assert (await counts(queue))["active"] == 4
    assert await fake_worker.renew(*leases_of(reply)) == []
    assert (await fake_worker.complete(*leases_of(reply))).refused == {}
    assert [event for event, *_ in await job_events(queue, jobs[1].id)] == ["added", "active", "completed"]
    assert ids_of(await fake_worker.claim_in_one_call(4)) == [job.id for job in jobs[4:]]
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_repeated_claim_returns_the_same_jobs_and_starts_no_others(
    queue: AnyQueue, fake_worker: FakeWorker, kind: str
) -> None:
    await add(queue, kind, 5)
    reply = await fake_worker.claim_in_one_call(3)
    again = await fake_worker.repeat()
    assert again.jobs == reply.jobs
    assert again.claimed_at == reply.claimed_at
    assert (await counts(queue))["active"] == 3
    assert await fake_worker.renew(in_transit=True) == []
    assert await fake_worker.settle(leases_of(again)[0]) is None
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_job_has_its_own_lease(queue: AnyQueue, fake_worker: FakeWorker, kind: str) -> None:
    [job] = await add(queue, kind, 1, lock_duration=300)
    [lease] = await fake_worker.claim(1, 1_000)
    await fake_worker.vanish(lease, for_ms=290_000)
    assert await fake_worker.sweep() == []
    await fake_worker.vanish(lease, for_ms=301_000)
    assert await fake_worker.sweep() == [job.id]


async def has_large_data(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", LARGE, lifo=True)


async def has_own_lease(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", lifo=True, lock_duration=60)


async def has_record(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", lifo=True, job_id="own id")


async def has_returned_jobs(queue: AnyQueue, store: RunningStore) -> None:
    worker = FakeWorker(queue, store)
    await worker.claim(2)
    await worker.leave()


async def has_expiring_jobs(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", lifo=True, ttl=60)


@everywhere
@pytest.mark.parametrize(
    "change",
    [has_large_data, has_own_lease, has_record, has_returned_jobs, has_expiring_jobs],
    ids=lambda f: f.__name__,
)
async def test_a_claim_starts_jobs_of_every_kind_once(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, change: Change
) -> None:
    await queue.add("plain", 0)
    for kind in ("lifo", "prioritized", "keyed"):
        await add(queue, kind, 4)
    await change(queue, store)
    total = sum((await counts(queue)).values())
    reply = await fake_worker.claim_in_one_call(2 * JOBS)
    assert len(set(ids_of(reply))) == len(reply.jobs) == total
    assert ids_of(await fake_worker.repeat()) == ids_of(reply)
    assert await fake_worker.renew(*leases_of(reply)) == []
    assert await queue.check() == []
    end = await fake_worker.complete(*leases_of(reply))
    assert end.refused == {}
    assert await counts(queue) == {"completed": total}


@everywhere
async def test_a_claim_that_reaches_the_limit_of_the_queue_waits_for_the_end_of_a_run(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    await queue.set_global_concurrency(2)
    await queue.add("n", delay=60)
    await add(queue, "lifo", 3)
    reply = await fake_worker.claim_in_one_call(5)
    assert (len(reply.jobs), reply.due) == (2, 0)


@pytest.mark.parametrize("options", [JobOptions(lifo=True), JobOptions(priority=3)], ids=["LIFO", "prioritized"])
async def test_a_claim_after_small_jobs_takes_few_large_ones(
    queue: AnyQueue, fake_worker: FakeWorker, options: JobOptions
) -> None:
    await queue.add_bulk([("small", 1, options)] * 200)
    for _ in range(2):
        await fake_worker.complete(*await fake_worker.claim(100))
    large = [job.id for job in await queue.add_bulk([("large", "x" * 500_000, options)] * 30)]
    claimed: list[str] = []
    while len(claimed) < len(large):
        reply = await fake_worker.claim_in_one_call(100)
        # The function reads 8 texts before it knows how large the jobs are.
        assert 0 < len(reply.jobs) <= 8
        claimed += ids_of(reply)
        await fake_worker.complete(*leases_of(reply))
    assert claimed == (large[::-1] if options.lifo else large)


@pytest.mark.parametrize(("most", "read"), [(-1, 8), (0, 8), (1, 40), (1_000, 50)])
async def test_a_claim_reads_some_texts_when_its_bytes_are_spent(store: RunningStore, most: int, read: int) -> None:
    await store.ask("HSET", "{q}:compact", "9", "text")
    assert await store.ask("EVAL", READ_WITHIN, 1, "{q}", most) == read
