"""Plain jobs that a client waits for, or that have a time to live, need no record."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import JobOptions, Queue
from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.outcomes import Retention
from glidemq_async.options.stored_options import ReplyTo, pack_extra, stored_form
from glidemq_async.storage import Storage
from glidemq_async.storage.protocol import FunctionError
from tests.support.fake_worker import FakeWorker
from tests.support.helpers import AnyQueue, counts, records
from tests.support.idle_worker import IdleWorker
from tests.support.stores import RunningStore

everywhere = pytest.mark.everywhere
CLIENT = "client"
AWAITED = pack_extra(JobOptions(), ReplyTo(CLIENT))


@pytest.fixture
def functions(queue: AnyQueue) -> Functions:
    return Functions(queue.storage, f"glide:{{{queue.name}}}")


async def add_awaited(functions: Functions, count: int, options: JobOptions | None = None) -> list[str]:
    """Add jobs as a client that waits for their results. Return their ids."""
    extra = pack_extra(options or JobOptions(), ReplyTo(CLIENT))
    return (await functions.add.jobs([AddRequest("", "n", b"\xc0", b"", extra)] * count)).ids


@everywhere
async def test_awaited_jobs_and_jobs_with_a_time_to_live_have_no_record(
    queue: AnyQueue, store: RunningStore, functions: Functions, fake_worker: FakeWorker
) -> None:
    ids = await add_awaited(functions, 2, JobOptions(ttl=60))
    later = await queue.add("n", None, ttl=60)
    assert await functions.job_waiters.add(later.id, CLIENT) == ("waiting", {})
    assert await records(queue, store) == set()
    leases = await fake_worker.claim(3)
    assert [lease.id for lease in leases] == [*ids, later.id]
    await fake_worker.complete(*leases)
    assert await records(queue, store) == set()
    assert await queue.check() == []
    await functions.job_waiters.confirm(CLIENT, [*ids, later.id])


@everywhere
async def test_one_awaited_job_runs_within_its_time_to_live(
    queue: AnyQueue, store: RunningStore, functions: Functions
) -> None:
    await queue.connect()
    base = f"glide:{{{queue.name}}}"
    extra = pack_extra(JobOptions(), ReplyTo(CLIENT, 60_000))
    request = AddRequest("", "n", b"\xc0", b"", extra)
    worker = IdleWorker(queue, store)
    async with worker.listening():
        await worker.wait()
        pushed_id = (await functions.add.one(request, "default")).ids[0]
        assert [job.id for job in (await worker.pushed()).jobs] == [pushed_id]
        assert await store.ask("EXISTS", f"{base}:expiry") == 0
        reply = await functions.add.one(request, "default")
        assert await store.ask("ZSCORE", f"{base}:expiry", reply.ids[0]) == str(reply.now + 60_000).encode()
        assert await store.ask("HMGET", f"{base}:waiters", pushed_id, *reply.ids) == [CLIENT.encode()] * 2
        [untimed] = (await functions.add.one(request._replace(extra=AWAITED), "default")).ids
        assert await store.ask("ZSCORE", f"{base}:expiry", untimed) is None
        assert await queue.check() == []
        await functions.job_waiters.remove_many([pushed_id, *reply.ids, untimed], CLIENT)
        await worker.leave()


@everywhere
async def test_one_awaited_job_keeps_its_options(queue: AnyQueue, functions: Functions) -> None:
    await queue.connect()
    for chosen in (JobOptions(attempts=3), JobOptions(priority=3)):
        request = AddRequest("", "n", b"\xc0", stored_form(chosen), pack_extra(chosen, ReplyTo(CLIENT, 60_000)))
        [id_] = (await functions.add.one(request, "default")).ids
        job = await queue.get_job(id_)
        assert job is not None
        assert job.options.attempts == chosen.attempts
        assert job.state == ("prioritized" if chosen.priority else "waiting")
        await functions.job_waiters.remove_many([id_], CLIENT)


@everywhere
@pytest.mark.parametrize("extra", [b"", AWAITED], ids=["plain", "awaited"])
async def test_one_job_without_a_key_is_refused_by_a_keyed_queue(storage: Storage, name: str, extra: bytes) -> None:
    async with Queue[Any, Any](name, storage, mode="keyed") as queue:
        functions = Functions(storage, f"glide:{{{queue.name}}}")
        with pytest.raises(FunctionError, match="INCOMPATIBLE"):
            await functions.add.one(AddRequest("", "n", b"\xc0", b"", extra), "default")
        assert await counts(queue) == {}


@everywhere
@pytest.mark.parametrize("extra", [b"", AWAITED], ids=["plain", "awaited"])
async def test_one_job_is_refused_by_a_queue_that_was_created_again(
    queue: AnyQueue, functions: Functions, extra: bytes
) -> None:
    await queue.connect()
    functions.caller.incarnation = "another"
    with pytest.raises(FunctionError, match="UNDECLARED"):
        await functions.add.one(AddRequest("", "n", b"\xc0", b"", extra), "default")
    assert await counts(queue) == {}


@everywhere
async def test_retention_leaves_the_result_of_a_plain_job_to_its_client(
    queue: AnyQueue, functions: Functions, fake_worker: FakeWorker
) -> None:
    [awaited] = await add_awaited(functions, 1)
    others = [job.id for job in await queue.add_bulk([("n", number) for number in range(20)])]
    for lease in await fake_worker.claim(21):
        await fake_worker.complete(lease, retention=[Retention(10)])
    kept = {job.id for job in await queue.get_jobs("completed")}
    assert kept == {awaited, *others[-10:]}
    assert await queue.check() == []
    await functions.job_waiters.confirm(CLIENT, [awaited])
    kept = {job.id for job in await queue.get_jobs("completed")}
    assert kept == {*others[-10:]}
    assert await queue.check() == []


@everywhere
async def test_an_awaited_result_outlives_a_retention_that_keeps_nothing(
    queue: AnyQueue, functions: Functions, fake_worker: FakeWorker
) -> None:
    [awaited] = await add_awaited(functions, 1)
    await queue.add("n")
    leases = await fake_worker.claim(2)
    await fake_worker.complete(*leases, retention=[Retention(0)] * 2)
    assert await counts(queue) == {"completed": 1}
    await functions.job_waiters.confirm(CLIENT, [awaited])
    assert await counts(queue) == {}
    assert await queue.check() == []


@everywhere
async def test_many_held_results_of_plain_jobs_survive_retention(
    queue: AnyQueue, functions: Functions, fake_worker: FakeWorker
) -> None:
    """More results are held than one call gives a record."""
    ids = await add_awaited(functions, 100)
    await queue.add_bulk([("n", number) for number in range(100)])
    for _ in range(4):
        leases = await fake_worker.claim(50)
        await fake_worker.complete(*leases, retention=[Retention(1)] * len(leases))
    ended = {job.id for job in await queue.get_jobs("completed", 0, 500)}
    assert ended >= set(ids)
    assert await queue.check() == []
    await functions.job_waiters.confirm(CLIENT, ids)
    assert len(await queue.get_jobs("completed", 0, 500)) <= 100
    assert await queue.check() == []


@everywhere
async def test_a_removed_plain_job_has_no_client_left(queue: AnyQueue, functions: Functions) -> None:
    [awaited] = await add_awaited(functions, 1, JobOptions(ttl=60))
    await queue.drain()
    assert await functions.job_waiters.add(awaited, CLIENT) == ("missing", {})
    assert await queue.check() == []


@everywhere
async def test_the_outcome_of_a_long_run_is_kept_by_its_end(
    queue: AnyQueue, store: RunningStore, fake_worker: FakeWorker
) -> None:
    """Without a record it would keep the outcomes of later jobs beyond their age."""
    await queue.add_bulk([("n", number) for number in range(3)])
    first, *others = await fake_worker.claim(3)
    a_minute_ago = first._replace(plain_since=int(first.plain_since) - 60_000)
    await fake_worker.complete(a_minute_ago, retention=[Retention(age_ms=600_000)])
    await fake_worker.complete(*others, retention=[Retention(age_ms=600_000)] * 2)
    assert await records(queue, store) == {first.id}
    assert await counts(queue) == {"completed": 3}
    assert await queue.check() == []
