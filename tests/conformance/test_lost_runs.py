"""Outcomes of runs whose jobs have lost their records: exactly the keys of the runs that held their lease are freed."""

from __future__ import annotations

import pytest

from glidemq_async import JobOptions
from glidemq_async.functions.outcomes import Completed, Released
from tests.support.fake_worker import NOTHING, FakeWorker
from tests.support.helpers import AnyQueue, counts
from tests.support.stores import RunningStore


@pytest.mark.everywhere
@pytest.mark.parametrize("completes", [True, False], ids=["completed", "released"])
async def test_an_outcome_frees_the_key_of_a_lost_job_and_not_the_one_of_a_removed_job(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker, completes: bool
) -> None:
    """The call ends one run of a job without a record, and one that was removed before. The count of runs is 1."""
    await queue.add_bulk([("n", key, JobOptions(key=key)) for key in "aabb"])
    lost, removed = await fake_worker.claim(2)
    await store.ask("HDEL", f"{fake_worker.base}:compact", lost.id)
    await store.ask("HDEL", f"{fake_worker.base}:compact_runs", lost.id)
    assert await queue.remove(removed.id)
    await fake_worker.end(removed)
    other = FakeWorker(queue, store)
    [successor] = await other.claim(1)
    assert successor.key == "b"
    outcome = Completed(NOTHING) if completes else Released()
    reply = await fake_worker.settle_all([(lost, outcome), (removed, outcome)])
    assert len(reply.refused) == 2
    [freed] = await other.claim(2)
    assert freed.key == "a"
    assert (await other.complete(successor, freed)).refused == {}
    assert (await counts(queue)).get("active", 0) == 0
    await other.leave()


@pytest.mark.everywhere
async def test_an_outcome_without_the_key_frees_the_key_of_a_lost_job(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    await queue.add_bulk([("n", number, JobOptions(key="k")) for number in range(2)])
    [lost] = await fake_worker.claim(1)
    await store.ask("HDEL", f"{fake_worker.base}:compact", lost.id)
    await store.ask("HDEL", f"{fake_worker.base}:compact_runs", lost.id)
    reply = await fake_worker.settle_as(lost._replace(key=None), Released())
    assert reply.refused == {0: "missing"}
    assert [lease.key for lease in await fake_worker.claim(1)] == ["k"]
