"""Direct claims of the active stream: a worker reads the texts of LIFO, prioritized and keyed jobs itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgpack
import pytest

from glidemq_async import JobOptions
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.settle import ACTIVE_STREAM, SettleReply
from tests.support.fake_worker import FakeWorker, leases_of
from tests.support.helpers import AnyJob, AnyQueue, counts, job_events
from tests.support.kinds import KINDS, options_of
from tests.support.stores import RunningStore

Change: TypeAlias = Callable[[AnyQueue, RunningStore], Awaitable[None]]

JOBS = 20
LARGE = "x" * 5_000

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
async def test_a_direct_claim_starts_the_jobs_of_an_ordinary_claim(
    queue: AnyQueue, fake_worker: FakeWorker, kind: str
) -> None:
    jobs = await add(queue, kind, 6, attempts=2)
    [ordinary] = (await fake_worker.claim_in_one_call(1)).jobs
    reply = await fake_worker.claim_directly(3, reads=ACTIVE_STREAM)
    assert reply.is_direct
    assert [ordinary.id, *ids_of(reply)] == [job.id for job in jobs[:4]]
    for job in reply.jobs:
        assert (job.name, job.fence, job.opts, job.is_plain) == ("n", 1, ordinary.opts, False)
        assert job.entry[0] == ordinary.entry[0]
    assert [job.history for job in reply.jobs] == [job.history for job in (await fake_worker.repeat()).jobs]
    assert [msgpack.unpackb(job.data) for job in reply.jobs] == [job.data for job in jobs[1:4]]
    assert (await counts(queue))["active"] == 4
    assert await fake_worker.renew(*leases_of(reply)) == []
    following = await fake_worker.claim_directly(4, 30_000, *leases_of(reply), reads=ACTIVE_STREAM)
    assert (following.is_direct, following.settled, following.refused) == (True, 3, {})
    assert ids_of(following) == [job.id for job in jobs[4:]]
    assert await counts(queue) == {"active": 3, "completed": 3}
    assert [event for event, *_ in await job_events(queue, jobs[1].id)] == ["added", "active", "completed"]
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_repeated_direct_claim_returns_the_same_jobs_and_starts_no_others(
    queue: AnyQueue, fake_worker: FakeWorker, kind: str
) -> None:
    await add(queue, kind, 5)
    reply = await fake_worker.claim_directly(3, reads=ACTIVE_STREAM)
    again = await fake_worker.repeat()
    assert reply.is_direct
    assert again.jobs == reply.jobs
    assert again.claimed_at == reply.claimed_at
    assert (await counts(queue))["active"] == 3
    assert await fake_worker.renew(in_transit=True) == []
    assert await fake_worker.settle(leases_of(again)[0]) is None
    assert await queue.check() == []


@everywhere
@of_each_kind
async def test_a_job_of_a_direct_claim_has_its_own_lease(queue: AnyQueue, fake_worker: FakeWorker, kind: str) -> None:
    [job] = await add(queue, kind, 1, lock_duration=300)
    reply = await fake_worker.claim_directly(1, 1_000, reads=ACTIVE_STREAM)
    assert reply.is_direct
    [lease] = leases_of(reply)
    await fake_worker.vanish(lease, for_ms=290_000)
    assert await fake_worker.sweep() == []
    await fake_worker.vanish(lease, for_ms=301_000)
    assert await fake_worker.sweep() == [job.id]


async def has_large_data(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", LARGE, lifo=True)


async def has_own_lease(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", lifo=True, lock_duration=60)


async def has_record(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", lifo=True, job_id="own")


async def has_returned_jobs(queue: AnyQueue, store: RunningStore) -> None:
    worker = FakeWorker(queue, store)
    await worker.claim(2)
    await worker.leave()


async def has_expired_jobs(queue: AnyQueue, _store: RunningStore) -> None:
    await queue.add("n", lifo=True, ttl=60)


@everywhere
@pytest.mark.parametrize(
    "change", [has_large_data, has_own_lease, has_record, has_returned_jobs, has_expired_jobs], ids=lambda f: f.__name__
)
async def test_a_direct_claim_starts_jobs_of_every_kind_once_and_in_their_order(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, change: Change
) -> None:
    await queue.add("plain", 0)
    for kind in ("lifo", "prioritized", "keyed"):
        await add(queue, kind, 4)
    await change(queue, store)
    total = sum((await counts(queue)).values())
    reply = await fake_worker.claim_directly(2 * JOBS, reads=ACTIVE_STREAM)
    assert reply.is_direct
    assert len(set(ids_of(reply))) == len(reply.jobs) == total
    assert ids_of(await fake_worker.repeat()) == ids_of(reply)
    assert await fake_worker.renew(*leases_of(reply)) == []
    assert await queue.check() == []
    end = await fake_worker.complete(*leases_of(reply))
    assert end.refused == {}
    assert await counts(queue) == {"completed": total}


@everywhere
async def test_a_queue_without_such_jobs_and_a_paused_one_refuse_the_direct_claim(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    await queue.add("n", 0)
    reply = await fake_worker.claim_directly(5, reads=ACTIVE_STREAM)
    assert (reply.is_direct, len(reply.jobs)) == (False, 1)
    await add(queue, "lifo", 2)
    await queue.pause()
    reply = await fake_worker.claim_directly(5, reads=ACTIVE_STREAM)
    assert (reply.is_direct, len(reply.jobs)) == (False, 0)
    assert await queue.check() == []


@everywhere
async def test_a_claim_that_reaches_the_limit_of_the_queue_waits_for_the_end_of_a_run(
    queue: AnyQueue, fake_worker: FakeWorker
) -> None:
    await queue.set_global_concurrency(2)
    await queue.add("n", delay=60)
    await add(queue, "lifo", 3)
    reply = await fake_worker.claim_directly(5, reads=ACTIVE_STREAM)
    assert (reply.is_direct, len(reply.jobs), reply.due) == (False, 2, 0)


async def call_without_reading(queue: AnyQueue, slots: int) -> Functions:
    """Make the first call of a direct claim, and omit the command that reads the entries."""
    functions = Functions(queue.storage, f"glide:{{{queue.name}}}")
    arguments: list[str | int] = ["other", 1, "other", slots, 30_000, "uD", "0 0", "", 0, 0]
    assert await queue.storage.call("settleAndClaim", functions.caller.base, arguments) == 1
    return functions


@everywhere
async def test_a_claim_whose_entries_were_not_read_returns_its_jobs(queue: AnyQueue) -> None:
    jobs = await add(queue, "lifo", 3)
    functions = await call_without_reading(queue, 3)
    reply: Any = await queue.storage.call("finishClaim", functions.caller.base, [3])
    assert [name.decode() for name in reply[2][4::8]] == [job.id for job in jobs]
    assert await counts(queue) == {"active": 3}
    assert await queue.check() == []


@everywhere
async def test_a_sweep_returns_the_jobs_of_an_unfinished_direct_claim(queue: AnyQueue, fake_worker: FakeWorker) -> None:
    jobs = await add(queue, "keyed", 3)
    await call_without_reading(queue, 3)
    await fake_worker.sweep()
    assert await queue.check() == []
    assert {lease.id for lease in await fake_worker.claim(3)} == {job.id for job in jobs}


@everywhere
async def test_a_lost_group_of_the_active_stream_leads_to_an_ordinary_claim(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    jobs = await add(queue, "lifo", 3)
    await store.ask("XGROUP", "DESTROY", f"{fake_worker.base}:lane", "workers")
    reply = await fake_worker.claim_directly(3, reads=ACTIVE_STREAM)
    assert not reply.is_direct
    assert ids_of(reply) == [job.id for job in jobs]
