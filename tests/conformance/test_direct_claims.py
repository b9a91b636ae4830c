"""Direct claims: a worker reads the entries of plain jobs itself, exactly when a claim would start nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgpack
import pytest

from glidemq_async import JobOptions, RateLimit, Worker
from glidemq_async.functions.settle import SettleReply
from tests.support.fake_worker import FakeWorker, leases_of
from tests.support.helpers import NO_POLLING, AnyJob, AnyQueue, counts, job_events, until
from tests.support.kinds import KINDS, options_of
from tests.support.recording_storage import Relay

everywhere = pytest.mark.everywhere
JOBS = 20


def ids_of(reply: SettleReply) -> list[str]:
    return [job.id for job in reply.jobs]


@everywhere
async def test_a_direct_claim_starts_the_first_jobs_and_counts_as_a_claim(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    jobs = await queue.add_bulk([("n", number, JobOptions(attempts=2)) for number in range(6)])
    reply = await fake_worker.claim_directly(4)
    assert reply.is_direct
    assert ids_of(reply) == [job.id for job in jobs[:4]]
    assert {(job.name, job.fence, job.is_plain, job.history) for job in reply.jobs} == {("n", 1, True, None)}
    assert [msgpack.unpackb(job.data) for job in reply.jobs] == [0, 1, 2, 3]
    assert {bool(job.opts) for job in reply.jobs} == {True}
    assert await counts(queue) == {"active": 4, "waiting": 2}
    assert await fake_worker.renew(*leases_of(reply)) == []
    following = await fake_worker.claim_directly(4, 30_000, *leases_of(reply))
    assert following.is_direct
    assert (following.settled, following.refused) == (4, {})
    assert ids_of(following) == [job.id for job in jobs[4:]]
    assert await counts(queue) == {"active": 2, "completed": 4}
    assert [kind for kind, *_ in await job_events(queue, jobs[0].id)] == ["added", "active", "completed"]
    assert await queue.check() == []


@everywhere
async def test_a_repeated_direct_claim_returns_the_same_jobs_and_starts_no_others(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    await queue.add_bulk([("n", number) for number in range(5)])
    reply = await fake_worker.claim_directly(3)
    again = await fake_worker.repeat()
    assert (ids_of(again), again.claimed_at) == (ids_of(reply), reply.claimed_at)
    assert await counts(queue) == {"active": 3, "waiting": 2}
    assert await fake_worker.renew(in_transit=True) == []
    assert await fake_worker.settle(leases_of(again)[0]) is None
    assert ids_of(await fake_worker.claim_directly(3)) == ["4", "5"]


@everywhere
async def test_a_direct_claim_passes_over_gaps_in_the_numbers(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    delayed = {1, 4, 7}
    jobs = [await queue.add("n", number, JobOptions(delay=60) if number in delayed else None) for number in range(9)]
    plain = [job.id for number, job in enumerate(jobs) if number not in delayed]
    reply = await fake_worker.claim_directly(4)
    # The delayed jobs are in `scheduled`, and none of them is due.
    assert reply.is_direct
    assert ids_of(reply) == plain[:4]
    again = await fake_worker.repeat()
    assert ids_of(again) == plain[:4]
    for job_id in plain[:4]:
        assert [kind for kind, *_ in await job_events(queue, job_id)] == ["added", "active"]
    assert await queue.check() == []


async def has_paused(queue: AnyQueue) -> None:
    await queue.pause()


async def has_limit(queue: AnyQueue) -> None:
    await queue.set_global_rate_limit(RateLimit(100, 60))


async def has_priority(queue: AnyQueue) -> None:
    await queue.add("n", priority=1)


async def has_lifo(queue: AnyQueue) -> None:
    await queue.add("n", lifo=True)


async def has_key(queue: AnyQueue) -> None:
    await queue.add("n", key="k")


async def has_ttl(queue: AnyQueue) -> None:
    await queue.add("n", ttl=60)


async def has_own_id(queue: AnyQueue) -> None:
    await queue.add("n", job_id="own")


async def has_large_data(queue: AnyQueue) -> None:
    await queue.add("n", "x" * 5_000)


async def has_own_lease(queue: AnyQueue) -> None:
    await queue.add("n", lock_duration=60)


async def has_record(queue: AnyQueue) -> None:
    [job, *_] = await queue.get_jobs("waiting")
    await job.update_data(7)


@everywhere
@pytest.mark.parametrize(
    "change",
    [
        has_paused, has_limit, has_priority, has_lifo, has_key, has_ttl, has_own_id, has_large_data, has_own_lease,
        has_record,
    ],
)  # fmt: skip
async def test_the_server_claims_what_needs_more_than_its_delivery(
    queue: AnyQueue, fake_worker: FakeWorker, change: Callable[[AnyQueue], Awaitable[None]]
) -> None:
    await queue.add("n", 0)
    await change(queue)
    reply = await fake_worker.claim_directly(5)
    assert not reply.is_direct
    waiting = 0 if change is not has_paused else 1
    assert len(reply.jobs) == sum((await counts(queue)).values()) - waiting
    assert ids_of(await fake_worker.repeat()) == ids_of(reply)
    assert await queue.check() == []


@everywhere
async def test_later_plain_jobs_are_claimed_directly_again(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    await queue.add("n", "x" * 5_000)
    first = await fake_worker.claim_directly(5)
    assert not first.is_direct
    await queue.add_bulk([("n", number) for number in range(JOBS)])
    claimed = first
    while len(claimed.jobs) > 0 and not claimed.is_direct:
        claimed = await fake_worker.claim_directly(5, 30_000, *leases_of(claimed))
    assert claimed.is_direct


@pytest.mark.parametrize("kind", ["plain", *KINDS])
async def test_a_worker_with_many_plain_jobs_claims_directly(queue: AnyQueue, kind: str) -> None:
    jobs = await queue.add_bulk([("n", n, JobOptions(**options_of(kind, n))) for n in range(10 * JOBS)])
    runs: list[str] = []

    async def note(job: AnyJob) -> None:
        runs.append(job.id)
        await asyncio.sleep(0)

    relay = Relay(queue.storage)
    async with Worker(queue.name, note, relay, concurrency=JOBS, poll_interval=NO_POLLING, handle_signals=False):
        await until(lambda: len(runs) == 10 * JOBS)
        await relay.quiet(queue)
    assert sorted(runs) == sorted(job.id for job in jobs)
    assert (relay.calls.count("finishClaim") > 1) == (kind == "plain")
    assert await counts(queue) == {"completed": 10 * JOBS}
    assert await queue.check() == []
