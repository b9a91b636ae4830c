"""Runs of jobs that did not wait in the stream: their renewals, their sweeps and their workers, see runs.lua."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import JobOptions
from glidemq_async.functions.callers import Functions
from tests.support.clocked_queue import Timed
from tests.support.fake_worker import LONG_AGO, FakeWorker, Lease
from tests.support.helpers import counts
from tests.support.kinds import KINDS, options_of

LEASE_MS = 30_000
MANY = 250
"""More runs than a step of a sweep."""


async def add(timed: Timed, kind: str, count: int) -> None:
    await timed.queue.add_bulk([("n", number, JobOptions(**options_of(kind, number))) for number in range(count)])


async def swept(timed: Timed) -> list[str]:
    """Sweep until nothing is left to do. Return the recovered jobs."""
    functions, recovered = Functions(timed.queue.storage, timed.fake_worker.base), list[str]()
    more = False
    while True:
        reply: Any = await functions.stalled.sweep(3, 0, LONG_AGO, resume=more)
        recovered += reply.recovered
        more = reply.more
        if not more:
            break
    return recovered


@pytest.mark.parametrize("kind", KINDS)
async def test_only_the_named_runs_are_renewed(timed: Timed, kind: str) -> None:
    await add(timed, kind, 2)
    named, other = await timed.fake_worker.claim(2)
    assert await timed.fake_worker.claim(1) == []  # proves that the reply before it has arrived
    await timed.pass_time(LEASE_MS * 2 // 3)
    assert await timed.fake_worker.renew(named) == []
    await timed.pass_time(LEASE_MS * 2 // 3)
    assert await timed.fake_worker.sweep() == [other.id]
    await timed.pass_time(LEASE_MS)
    assert await timed.fake_worker.sweep() == [named.id]
    assert await timed.queue.check() == []
    await timed.fake_worker.leave()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_its_worker_has_named_stalls(timed: Timed, kind: str) -> None:
    """The last claim of the worker has arrived, because the worker has named its run."""
    await add(timed, kind, 1)
    [lease] = await timed.fake_worker.claim(1)
    await timed.pass_time(LEASE_MS * 2 // 3)
    assert await timed.fake_worker.renew(lease) == []
    await timed.pass_time(LEASE_MS * 2 // 3)
    assert await timed.fake_worker.renew() == []
    await timed.pass_time(LEASE_MS * 2 // 3)
    assert await timed.fake_worker.sweep() == [lease.id]
    await timed.fake_worker.leave()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_worker_renews_no_run_of_another_one(timed: Timed, kind: str) -> None:
    await add(timed, kind, 1)
    [lease] = await timed.fake_worker.claim(1)
    other = FakeWorker(timed.queue, timed.store)
    assert await other.renew(lease) == [lease.entry]
    await timed.pass_time(LEASE_MS // 2)
    assert await other.renew(lease) == [lease.entry]
    await timed.pass_time(LEASE_MS)
    assert await timed.fake_worker.sweep() == [lease.id]
    await other.leave()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_verified_call_ends_no_run_of_another_worker(timed: Timed, kind: str) -> None:
    await add(timed, kind, 1)
    [lease] = await timed.fake_worker.claim(1)
    other = FakeWorker(timed.queue, timed.store)
    assert (await other.complete(lease, verify=True)).refused == {0: "stale"}
    assert (await timed.fake_worker.complete(lease, verify=True)).refused == {}
    await other.leave()


async def test_a_sweep_ends_every_expired_run_of_every_worker_once(timed: Timed) -> None:
    await timed.queue.add_bulk([("n", n, JobOptions(lifo=True)) for n in range(2 * MANY + 1)])
    other = FakeWorker(timed.queue, timed.store)
    for worker in (timed.fake_worker, other):
        left = MANY
        while left:
            left -= len(await worker.claim(left))
    await timed.pass_time(LEASE_MS + 1)
    [young] = await other.claim(1)
    recovered = await swept(timed)
    assert len(recovered) == len(set(recovered)) == 2 * MANY
    assert young.id not in recovered
    assert await counts(timed.queue) == {"waiting": 2 * MANY, "active": 1}
    assert await timed.queue.check() == []
    await other.leave()


async def test_a_sweep_ends_the_expired_runs_among_renewed_ones(timed: Timed) -> None:
    """Sweeps read the renewals of all runs, and continue at the right one after a call that had no time left."""
    await timed.queue.add_bulk([("n", n, JobOptions(lifo=True)) for n in range(MANY)])
    leases: list[Lease] = []
    while len(leases) < MANY:
        leases += await timed.fake_worker.claim(MANY - len(leases))
    assert await timed.fake_worker.claim(1) == []  # proves that the replies before it have arrived
    expired = [lease.id for lease in leases[::3]]
    for job in ("one", "two", "three"):  # members without a key, before the first run
        await timed.store.ask("ZADD", f"{timed.fake_worker.base}:runs", 1, f"{leases[0].entry[1:]}k {job}")
    await timed.pass_time(LEASE_MS * 2 // 3)
    assert await timed.fake_worker.renew(*(lease for lease in leases if lease.id not in expired)) == []
    await timed.pass_time(LEASE_MS * 2 // 3)
    assert sorted(await swept(timed)) == sorted(expired)
    assert await swept(timed) == []
    assert await timed.queue.check() == []
    await timed.pass_time(LEASE_MS)
    assert len(await swept(timed)) == MANY - len(expired)
    assert await counts(timed.queue) == {"waiting": MANY}
    await timed.fake_worker.leave()


async def test_a_silent_worker_is_known_as_long_as_it_has_a_run(timed: Timed) -> None:
    await timed.queue.add("n", lifo=True, lock_duration=3_600)
    await timed.fake_worker.renew()
    [lease] = await timed.fake_worker.claim(1)
    await timed.pass_time(900_000)
    other = FakeWorker(timed.queue, timed.store)
    await other.sweep()
    assert await timed.queue.check() == []
    assert await timed.fake_worker.settle(lease) is None
    await timed.fake_worker.leave()
    await other.leave()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_closed_worker_returns_its_runs_in_their_order(timed: Timed, kind: str) -> None:
    await timed.queue.add_bulk([("n", n, JobOptions(**options_of(kind, n))) for n in range(12)])
    before = [lease.id for lease in await timed.fake_worker.claim(12)]
    assert len(before) == 12
    await timed.fake_worker.leave()
    assert await counts(timed.queue) in ({"waiting": 12}, {"key-waiting": 12})
    other = FakeWorker(timed.queue, timed.store)
    assert [lease.id for lease in await other.claim(12)] == before
    await other.leave()


async def test_a_member_that_was_written_by_hand_stops_no_sweep_and_no_listing(timed: Timed) -> None:
    await timed.queue.add("n", lifo=True)
    [lease] = await timed.fake_worker.claim(1)
    for member in ("zzz", "1-1l", "1-2k no key"):
        await timed.store.ask("ZADD", f"{timed.fake_worker.base}:runs", 0, member)
    assert lease.id in [job.id for job in await timed.queue.get_jobs("active")]
    await timed.pass_time(LEASE_MS + 1)
    assert await timed.fake_worker.sweep() == [lease.id]
    assert await timed.store.ask("EXISTS", f"{timed.fake_worker.base}:runs") == 0
    assert await timed.queue.check() == []
