"""Runs that an earlier build left in the stream `lane`: a sweep returns their jobs to the queue."""

from __future__ import annotations

from typing import cast

import pytest

from glidemq_async import JobOptions
from tests.support.fake_worker import FakeWorker, Lease
from tests.support.helpers import AnyQueue, counts
from tests.support.kinds import KINDS, options_of
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere


async def make_old(store: RunningStore, worker: FakeWorker, lease: Lease, *, has_text: bool) -> None:
    """Move a run into `lane`, as an earlier build stored it: as a pending entry."""
    base, prefix = worker.base, lease.entry[0]
    line = cast("bytes", await store.ask("HGET", f"{base}:compact", lease.id))
    field = "h" if prefix == "l" else f"k{lease.key}"
    fields = (lease.id, line) if has_text else (field, lease.id)
    await store.ask("XGROUP", "CREATE", f"{base}:lane", "workers", "0", "MKSTREAM")
    raw = cast("bytes", await store.ask("XADD", f"{base}:lane", "*", *fields)).decode()
    await store.ask("XREADGROUP", "GROUP", "workers", worker.name, "STREAMS", f"{base}:lane", ">")
    run = cast("bytes", await store.ask("HGET", f"{base}:compact_runs", lease.id)).decode()
    await store.ask("HSET", f"{base}:compact_runs", lease.id, f"{prefix}{raw} {run.split(' ', 1)[1]}")
    await store.ask("DEL", f"{base}:runs")


@everywhere
@pytest.mark.parametrize("has_text", [False, True], ids=["an id", "a text"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_sweep_returns_the_runs_of_an_earlier_build(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, kind: str, has_text: bool
) -> None:
    jobs = await queue.add_bulk([("n", number, JobOptions(**options_of(kind, 0))) for number in range(2)])
    [lease] = await fake_worker.claim(1)
    await make_old(store, fake_worker, lease, has_text=has_text)
    await fake_worker.sweep()
    assert await store.ask("EXISTS", f"{fake_worker.base}:lane") == 0
    assert await queue.check() == []
    assert (await counts(queue)).get("active", 0) == 0
    other = FakeWorker(queue, store)
    again = await other.claim(1)
    assert [one.id for one in again] == [lease.id]
    assert await fake_worker.settle(lease) == "stale"
    assert (await other.complete(*again)).refused == {}
    assert {one.id for one in await other.claim(2)} == {job.id for job in jobs} - {lease.id}
    await other.leave()


@everywhere
async def test_an_entry_of_a_run_that_was_replaced_frees_no_key(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(2)])
    [lease] = await fake_worker.claim(1)
    await store.ask("XADD", f"{fake_worker.base}:lane", "*", "kk", lease.id)
    await fake_worker.sweep()
    assert await fake_worker.claim(1) == []
    assert await fake_worker.settle(lease) is None
    assert len(await fake_worker.claim(1)) == 1
    assert await queue.check() == []


@everywhere
async def test_an_old_run_whose_job_has_lost_its_record_frees_its_key(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    jobs = await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(2)])
    [lease] = await fake_worker.claim(1)
    await make_old(store, fake_worker, lease, has_text=False)
    await store.ask("HDEL", f"{fake_worker.base}:compact", lease.id)
    await store.ask("HDEL", f"{fake_worker.base}:compact_runs", lease.id)
    await fake_worker.sweep()
    assert [one.id for one in await fake_worker.claim(1)] == [jobs[1].id]
    assert await queue.check() == []
